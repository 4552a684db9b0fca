"""Runs one command: output capped while it is read, time and processes bounded, the whole tree ended at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from core.redaction import redact
from core.text import visible

from . import sandbox, watch
from .sandbox import Limits

# A command may say this many times what is kept of it; then it is ended.
FLOOD_FACTOR: Final = 10
CHUNK_BYTES: Final = 65_536
# Kept around a cut, so that no secret is cut before it is recognised.
MARGIN_BYTES: Final = 8_192
# A grandchild may hold the pipe for ever: after the command's end it is listened to for this long.
DRAIN_S: Final = 0.5
GONE_WITHIN_S: Final = 3.0
FLOOD_EVERY_S: Final = 0.05
# What it makes is its owner's alone.
UMASK: Final = 0o077
# Every process of a command without a sandbox carries it in its environment, wherever it goes.
MARKER: Final = "_MEAH_COMMAND"


@dataclass(frozen=True)
class Ran:
    """How a command went. `status` is its exit status, negative for a signal, None where it was ended by MEAH."""

    argv: list[str]
    output: str
    status: int | None
    duration_ms: int
    output_bytes: int
    ended: str = ""
    sandboxed: bool = True

    def as_dict(self) -> dict[str, object]:
        return {
            "argv": self.argv,
            "status": self.status,
            "ended": self.ended,
            "durationMs": self.duration_ms,
            "outputBytes": self.output_bytes,
            "sandboxed": self.sandboxed,
        }


@dataclass
class _Output:
    """Head and tail of what was said, and how much it was."""

    keep: int
    total: int = 0
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.keep + MARGIN_BYTES - len(self.head)
        self.head += data[: max(room, 0)]
        self.tail += data[max(room, 0) :]
        del self.tail[: -(self.keep + MARGIN_BYTES)]

    def text(self) -> str:
        """Redacted first, cut then."""
        if self.total <= self.keep:
            return visible(redact(bytes(self.head).decode(errors="replace")))
        half = self.keep // 2
        head = redact(bytes(self.head).decode(errors="replace"))[:half]
        tail = redact(bytes(self.tail or self.head).decode(errors="replace"))[-half:]
        return visible(f"{head}\n[… {self.total - 2 * half:,} bytes left out …]\n{tail}")


async def run(
    argv: Sequence[str],
    *,
    workspace: Path,
    timeout_s: float,
    keep_bytes: int,
    limits: Limits | None = None,
    sandboxed: bool = True,
    also: Sequence[str] = (),
) -> Ran:
    """Run it to its end, and end everything that it has started. A cancel ends it too, and is passed on."""
    begun = time.monotonic()
    mark = secrets.token_hex(8)
    output = _Output(keep_bytes)
    limits = limits or Limits()
    with contextlib.ExitStack() as stack:
        folder = _opened(stack, workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        with _prepared(argv, workspace, folder, mark, limits, sandboxed=sandboxed, also=also) as (words, options):
            child = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                umask=UMASK,
                limit=CHUNK_BYTES,
                **options,
            )
        reading = asyncio.create_task(_read(child, output))
        ended = ""
        try:
            ended = await _ended(child, output, timeout_s, watch.too_much(child.pid, folder, limits))
        finally:
            # Also while this task is being cancelled: nothing of the command stays behind.
            await asyncio.shield(asyncio.ensure_future(_end(child, mark, reading, sandboxed=sandboxed)))
    return Ran(
        argv=list(argv),
        output=await asyncio.to_thread(output.text),
        status=None if ended else child.returncode,
        duration_ms=round((time.monotonic() - begun) * 1000),
        output_bytes=output.total,
        ended=ended,
        sandboxed=sandboxed,
    )


@contextmanager
def _prepared(
    argv: Sequence[str],
    workspace: Path,
    folder: int,
    mark: str,
    limits: Limits,
    *,
    sandboxed: bool,
    also: Sequence[str],
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The command line, and how its process is started; descriptors are open as long as it takes to start."""
    if not sandboxed:
        environ = sandbox.outside_environment(workspace) | {MARKER: mark}
        yield sandbox.limited(argv, limits), {"cwd": workspace, "env": environ, **unprivileged()}
        return
    with contextlib.ExitStack() as stack:
        bound = {path: _opened(stack, path, os.O_PATH) for path in sandbox.outside_usr(argv[0], also)}
        filter_fd = stack.enter_context(sandbox.filter_pipe())
        words = sandbox.wrapped(argv, workspace_fd=folder, filter_fd=filter_fd, limits=limits, bound=bound)
        yield words, {"env": {MARKER: mark}, "cwd": "/", "pass_fds": (folder, filter_fd, *bound.values())}


def _opened(stack: contextlib.ExitStack, path: Path | str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    stack.callback(os.close, descriptor)
    return descriptor


def unprivileged() -> dict[str, Any]:
    """The kernel's limit of processes does not hold for root, so root's commands run as nobody."""
    nobody = {"user": sandbox.NOBODY, "group": sandbox.NOBODY, "extra_groups": []}
    return nobody if sandbox.is_root() else {}


def hand_over(workspace: Path) -> None:
    """What root has written there becomes nobody's; root can read it all the same.

    Only before the first command: what a command leaves behind, links for one, is given to nobody.
    """
    if not sandbox.is_root():
        return
    for _, folders, files, descriptor in os.fwalk(workspace, follow_symlinks=False):
        os.fchown(descriptor, sandbox.NOBODY, sandbox.NOBODY)
        for name in (*folders, *files):
            os.chown(name, sandbox.NOBODY, sandbox.NOBODY, dir_fd=descriptor, follow_symlinks=False)


async def _read(child: asyncio.subprocess.Process, output: _Output) -> None:
    assert child.stdout is not None
    while data := await child.stdout.read(CHUNK_BYTES):
        output.add(data)


async def _ended(
    child: asyncio.subprocess.Process, output: _Output, timeout_s: float, counting: Coroutine[None, None, str]
) -> str:
    """Why it has to be ended; empty once it has ended by itself."""
    deadline = time.monotonic() + timeout_s
    exited = asyncio.ensure_future(child.wait())
    counted = asyncio.create_task(counting)
    try:
        while True:
            await asyncio.wait([exited, counted], timeout=FLOOD_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                return ""
            if counted.done():
                return counted.result()
            if time.monotonic() > deadline:
                return f"it took more than {timeout_s:g} s"
            if output.total > FLOOD_FACTOR * output.keep:
                return f"it wrote more than {FLOOD_FACTOR * output.keep:,} bytes"
    finally:
        exited.cancel()
        counted.cancel()
        # Its thread may still read the directory, which is closed soon.
        await asyncio.wait([counted])


async def _end(child: asyncio.subprocess.Process, mark: str, reading: asyncio.Task[None], *, sandboxed: bool) -> None:
    """Nobody of the tree is left when this returns, or three seconds have passed."""
    if child.returncode is None:
        # Of a sandbox this ends all: its first process takes its namespace along, however many there are.
        _send([child.pid] if sandboxed else _family(child, mark), signal.SIGKILL)
    deadline = time.monotonic() + GONE_WITHIN_S
    while (left := _family(child, mark)) and time.monotonic() < deadline:
        _send(left, signal.SIGKILL)
        await asyncio.sleep(0.01)
    if child.returncode is None:
        await child.wait()
    await asyncio.wait([reading], timeout=DRAIN_S)
    reading.cancel()


def _family(child: asyncio.subprocess.Process, mark: str) -> list[int]:
    own = [] if child.returncode is not None else [child.pid]
    return [*own, *watch.descendants(child.pid), *_marked(mark)]


def _marked(mark: str) -> list[int]:
    """Living processes that carry the mark: those that left the tree on purpose."""
    wanted = f"{MARKER}={mark}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def _send(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
