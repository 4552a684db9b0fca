"""Tries the sandbox before it is trusted: six ways out, each of which must fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from . import execution, sandbox

PROBES: Final = ("read outside", "write outside", "TCP", "UDP", "Unix socket", "a parent's environment")
WITHIN_S: Final = 20.0
AGAIN_AFTER_S: Final = 60.0
# Our own interpreter, wherever it was installed: what else there is on this machine, nobody knows.
_INTERPRETER: Final = Path(sys.executable).resolve()
_LIBRARY: Final = Path(sys.base_prefix).resolve()
_SCRIPT: Final = """
import glob, json, os, socket, sys
secret, target, port, unix, mark = sys.argv[1:]
open_ = {}
def attempt(name, act):
    try:
        open_[name] = bool(act())
    except BaseException:
        open_[name] = False
def connected(family, kind, address):
    with socket.socket(family, kind) as one:
        one.settimeout(1)
        one.connect(address)
        return one.send(b"x")
def connects(address):
    try:
        return connected(socket.AF_UNIX, socket.SOCK_STREAM, address)
    except OSError:
        return False
def environments():
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            yield open(path, "rb").read()
        except OSError:
            # Of another user: the next may be readable.
            pass
attempt("read outside", lambda: open(secret).read())
attempt("write outside", lambda: open(target, "w").write("x"))
attempt("TCP", lambda: connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(port))))
attempt("UDP", lambda: connected(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", int(port))))
attempt("Unix socket", lambda: any(connects(a) for a in (unix, "\\0" + mark)))
attempt("a parent's environment", lambda: any(mark.encode() in text for text in environments()))
print(json.dumps(open_))
"""


async def holes() -> str:
    """What the sandbox does not keep in, or why it does not work; empty where all six fail as they must."""
    if why := sandbox.missing():
        return why
    # Short, since the path of a Unix socket may not be long.
    try:
        with tempfile.TemporaryDirectory(prefix="meah-probe-", dir="/tmp") as directory:
            return await _tried(Path(directory))
    except OSError as error:
        return f"the sandbox can not be tested here: {error.strerror or error}"


async def _tried(directory: Path) -> str:
    workspace, secret, target = directory / "w", directory / "secret", directory / "target"
    workspace.mkdir()
    execution.hand_over(workspace)
    secret.write_text("s")
    if execution.unprivileged():
        # Outside, the command's own user may do all of it: what is closed then is closed by the sandbox alone.
        os.chown(directory, sandbox.NOBODY, sandbox.NOBODY)
    mark = f"meah-{secrets.token_hex(8)}"
    with _listening(directory / "unix", mark) as port, _neighbour(mark):
        ran = await execution.run(
            [
                str(_INTERPRETER),
                "-I",
                "-S",
                "-c",
                _SCRIPT,
                str(secret),
                str(target),
                str(port),
                f"{directory}/unix",
                mark,
            ],
            workspace=workspace,
            timeout_s=WITHIN_S,
            keep_bytes=65_536,
            also=[str(_LIBRARY)],
        )
    return _judged(ran, target)


@contextmanager
def _listening(path: Path, abstract: str) -> Iterator[int]:
    """Sockets that anybody may reach; yields the port, of TCP and of UDP."""
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as unnamed,
    ):
        port = tcp.getsockname()[1]
        with contextlib.suppress(OSError):
            # A datagram that nobody takes counts as well.
            udp.bind(("127.0.0.1", port))
        named.bind(str(path))
        path.chmod(0o777)
        unnamed.bind("\0" + abstract)
        named.listen()
        unnamed.listen()
        yield port


@contextmanager
def _neighbour(mark: str) -> Iterator[None]:
    """A process outside with the mark in its environment, of the user that the command will be.

    Not this process: where it hides its own environment, the others of its user do not.
    """
    options = execution.unprivileged()
    neighbour = subprocess.Popen(
        ["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={"M": mark}, **options
    )
    try:
        yield
    finally:
        neighbour.kill()
        neighbour.communicate()


def _judged(ran: execution.Ran, target: Path) -> str:
    try:
        found = json.loads(ran.output.strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = ran.ended or ran.output.strip()[-300:] or f"exit status {ran.status}"
        return f"the sandbox does not start here: {said}"
    if set(found) != set(PROBES):
        return "the sandbox's self-test answered something else than was asked"
    open_ = [name for name in PROBES if found[name]]
    if target.exists() and "write outside" not in open_:
        open_.append("write outside")
    return f"the sandbox lets through: {', '.join(open_)}" if open_ else ""


_found: asyncio.Task[str] | None = None
_found_at = 0.0


async def tested() -> tuple[str, bool]:
    """`holes`, tried once in each process; and whether that is news. A refusal is tried again after a minute."""
    global _found, _found_at
    is_news = _found is None or _is_stale(_found)
    if _found is None or is_news:
        _found, _found_at = asyncio.ensure_future(holes()), time.monotonic()
    return await asyncio.shield(_found), is_news


def known() -> str:
    """What the last try in this process has found, as long as it counts; empty where nothing is known."""
    if _found is None or not _found.done() or _is_stale(_found):
        return ""
    return _found.result()


def _is_stale(found: asyncio.Task[str]) -> bool:
    if not found.done():
        return False
    if found.cancelled() or found.exception() is not None:
        return True
    return bool(found.result()) and time.monotonic() - _found_at > AGAIN_AFTER_S
