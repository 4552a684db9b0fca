"""A stdio server as a child process: spawned with a clean environment, spoken to over pipes, ended as a whole tree.

The SDK's own stdio client is not used: it takes up to six seconds to end a child, leaves what a child has started
alone when the child ends by itself, copies a long line once for every chunk of it, and bounds nothing.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, cast

import anyio
import mcp_types
from mcp.shared.message import SessionMessage

from core.errors import MeahError
from core.frames import request_id

from .environment import child_environment
from .groups import MARKER, Group, Ledger, members, send
from .launch import Launch
from .lines import Line, Lines, Tail

MAX_RESULT_BYTES: Final = 16 * 2**20
# What JSON-RPC puts around a result.
FRAME_BYTES: Final = MAX_RESULT_BYTES + 2**18
PAUSE_ABOVE_BYTES: Final = 8 * 2**20
RESUME_BELOW_BYTES: Final = 2**20

STDIN_CLOSED_S: Final = 1.5
TERMINATED_S: Final = 1.2
KILLED_S: Final = 1.0
_POLL_S: Final = 0.02


class Unreadable:
    """Stands in the data of an error that MEAH made itself, for an answer that came and could not be read."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Incoming:
    """What the server sends, in order; ends with the server's output. Reads on only while somebody takes it."""

    def __init__(self, pause: Callable[[bool], None]) -> None:
        self._items: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._ended = False
        self._paused = False
        self._pause = pause
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: Any, size: int) -> None:
        self._items.append((item, size))
        self._bytes += size
        if self._bytes > PAUSE_ABOVE_BYTES and not self._paused:
            self._paused = True
            self._pause(True)
        self._wake()

    def end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def receive(self) -> Any:
        while not self._items:
            if self._ended:
                raise anyio.EndOfStream
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        item, size = self._items.popleft()
        self._bytes -= size
        if self._paused and self._bytes < RESUME_BELOW_BYTES:
            self._paused = False
            self._pause(False)
        return item

    async def aclose(self) -> None:
        self._items.clear()
        self.end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Outgoing:
    """What MEAH sends. `send` returns once the pipe has room again; a cancelled `send` has been sent all the same."""

    def __init__(self, child: Child) -> None:
        self._child = child

    async def send(self, item: SessionMessage) -> None:
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        await self._child.write(data)

    async def aclose(self) -> None:
        return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


class Child(asyncio.SubprocessProtocol):
    """One running server. `gone` is called once, when its output has ended or it has exited."""

    def __init__(self, tail: Tail, gone: Callable[[], None]) -> None:
        self.incoming = Incoming(self._pause_reading)
        self.outgoing = Outgoing(self)
        self.pid = 0
        self.exited = asyncio.Event()
        self.group: Group | None = None
        self._tail = tail
        self.gone = gone
        self._lines = Lines(FRAME_BYTES)
        self._transport: asyncio.SubprocessTransport | None = None
        self._room = asyncio.Event()
        self._room.set()

    # -- asyncio.SubprocessProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._tail.feed(data)
            return
        for line in self._lines.feed(data):
            self._take(line)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 0:
            self._room.set()
        if fd == 1:
            for line in self._lines.end():
                self._take(line)
            self._over()

    def process_exited(self) -> None:
        self.exited.set()
        # What it wrote last may still be in the pipe, and a grandchild may hold the pipe open for ever.
        asyncio.get_running_loop().call_later(0.1, self._over)

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    # --

    @property
    def exit_status(self) -> int | None:
        return None if self._transport is None else self._transport.get_returncode()

    async def write(self, data: bytes) -> None:
        stdin = self._pipe(0)
        if stdin is None or stdin.is_closing() or self.exited.is_set():
            raise anyio.BrokenResourceError
        cast(asyncio.WriteTransport, stdin).write(data)
        await self._room.wait()

    async def end(self, ledger: Ledger) -> None:
        """Close stdin, then SIGTERM, then SIGKILL, to all that it has started; takes at most four seconds."""
        if stdin := self._pipe(0):
            stdin.close()
        await self._left_within(STDIN_CLOSED_S, whole_tree=False)
        for number, seconds in ((signal.SIGTERM, TERMINATED_S), (signal.SIGKILL, KILLED_S)):
            left = self._left()
            if not left:
                break
            send(left, number)
            await self._left_within(seconds, whole_tree=True)
        if self._transport is not None:
            self._transport.close()
        self.incoming.end()
        if self.group is not None:
            ledger.remove(self.group)

    def _left(self) -> list[int]:
        return members(self.group) if self.group is not None else []

    async def _left_within(self, seconds: float, *, whole_tree: bool) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not self.exited.is_set() or (whole_tree and self._left()):
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(_POLL_S)

    def _take(self, line: Line) -> None:
        data = line.data.strip()
        if not line.whole:
            self._refuse(_edge_id(line), "too_large", len(line.data))
        elif data:
            try:
                message = mcp_types.jsonrpc_message_adapter.validate_json(data, by_name=False)
            except ValueError:
                self._not_understood(line)
            else:
                self.incoming.put(SessionMessage(message), len(data))

    def _not_understood(self, line: Line) -> None:
        """Servers print all sorts of things to stdout; what is no JSON object was not meant for us."""
        found = request_id(line.data) if line.data.lstrip().startswith(b"{") else None
        if found is None:
            self._tail.add(Line(b"[stdout] " + line.data[:1000], whole=line.whole))
            return
        self._refuse(found, "not_json", len(line.data))

    def _refuse(self, answered: int | str | None, reason: str, size: int) -> None:
        """Fail the one call whose answer can not be read; the connection stays."""
        self._tail.note(f"an answer could not be read ({reason})")
        if answered is None:
            self._over()
            return
        error = mcp_types.ErrorData(code=mcp_types.INTERNAL_ERROR, message=reason, data=Unreadable(reason))
        message = mcp_types.JSONRPCError(jsonrpc="2.0", id=answered, error=error)
        self.incoming.put(SessionMessage(message), size)

    def _over(self) -> None:
        self.incoming.end()
        self.gone()

    def _pause_reading(self, pause: bool) -> None:
        pipe = cast(asyncio.ReadTransport | None, self._pipe(1))
        if pipe is None or pipe.is_closing():
            return
        if pause:
            pipe.pause_reading()
        else:
            pipe.resume_reading()

    def _pipe(self, fd: int) -> asyncio.BaseTransport | None:
        return None if self._transport is None else self._transport.get_pipe_transport(fd)


async def spawn(launch: Launch, ledger: Ledger, tail: Tail, gone: Callable[[], None]) -> Child:
    """Start a stdio server. Raises MeahError E_CONFIG when a variable is missing or the command can not be started."""
    mark = ledger.next_mark()
    environ = child_environment(launch) | {MARKER: mark}
    child = Child(tail, gone)
    try:
        await asyncio.get_running_loop().subprocess_exec(
            lambda: child, launch.command, *launch.args, env=environ, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise MeahError(
            "E_CONFIG",
            f"its command can not be run: {error}.",
            hint="Check that the command is installed, and on the PATH that MEAH was started with.",
            reason="spawn",
        ) from error
    child.group = ledger.add(child.pid, launch.server, mark)
    return child


def _edge_id(line: Line) -> int | str | None:
    """The id of a frame of which only both ends are there: some servers write it first, some last."""
    found = request_id(line.data)
    if found is not None:
        return found
    last = line.last.rpartition(b'"id":')
    tail = last[2].strip() if last[1] else b""
    return request_id(b'{"id":' + tail) if tail.endswith(b"}") and len(tail) < 200 else None
