"""Tries the sandbox before it is trusted: six ways out, each of which must fail."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import sys
import tempfile
from pathlib import Path
from typing import Final

from . import execution, sandbox

PROBES: Final = ("read outside", "write outside", "TCP", "UDP", "Unix socket", "a parent's environment")
WITHIN_S: Final = 20.0
# Our own interpreter, wherever it was installed: what else there is on this machine, nobody knows.
_INTERPRETER: Final = Path(sys.executable).resolve()
_LIBRARY: Final = Path(sys.base_prefix).resolve()
_SCRIPT: Final = """
import glob, json, os, socket, sys
secret, target, port, abstract, mark = sys.argv[1:]
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
def sees_parent():
    return any(mark.encode() in open(path, "rb").read() for path in glob.glob("/proc/[0-9]*/environ"))
attempt("read outside", lambda: open(secret).read())
attempt("write outside", lambda: open(target, "w").write("x"))
attempt("TCP", lambda: connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(port))))
attempt("UDP", lambda: connected(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", int(port))))
attempt("Unix socket", lambda: connected(socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + abstract))
attempt("a parent's environment", sees_parent)
print(json.dumps(open_))
"""


async def holes() -> str:
    """What the sandbox does not keep in, or why it does not work; empty where all six fail as they must."""
    if why := sandbox.missing():
        return why
    with tempfile.TemporaryDirectory(prefix="meah-probe-") as directory:
        return await _tried(Path(directory))


async def _tried(directory: Path) -> str:
    workspace, secret, target = directory / "w", directory / "secret", directory / "target"
    workspace.mkdir()
    execution.hand_over(workspace)
    secret.write_text("s")
    abstract = f"meah-{secrets.token_hex(8)}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as unix,
    ):
        unix.bind("\0" + abstract)
        unix.listen()
        arguments = [str(secret), str(target), str(tcp.getsockname()[1]), abstract, _own_mark()]
        ran = await execution.run(
            [str(_INTERPRETER), "-I", "-S", "-c", _SCRIPT, *arguments],
            workspace=workspace,
            timeout_s=WITHIN_S,
            keep_bytes=65_536,
            also=[str(_LIBRARY)],
        )
    return _judged(ran, target)


def _own_mark() -> str:
    """A piece of this process's environment that no command should ever see."""
    own = Path("/proc/self/environ").read_bytes().split(b"\0")
    return max(own, key=len).decode(errors="replace")[:200] or "no environment"


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


async def tested() -> tuple[str, bool]:
    """`holes`, tried once in each process; and whether that is news."""
    global _found
    is_news = _found is None or (_found.done() and (_found.cancelled() or _found.exception() is not None))
    if _found is None or is_news:
        _found = asyncio.ensure_future(holes())
    return await asyncio.shield(_found), is_news
