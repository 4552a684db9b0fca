"""The stdio transport: asyncio pipes of our own.

The SDK's `stdio_server()` reads stdin in a thread, which no signal can stop while stdin is open, and its parser takes
duplicate keys, NaN and integers of any size. Here frames are decoded strictly before the SDK sees them, whatever is
printed by accident goes to stderr, and SIGTERM, SIGINT and end of input all end the transport at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types
from mcp.shared.message import SessionMessage

from core.canonical import StrictDecodeError, strict_loads
from core.errors import MeahError
from core.frames import INVALID_REQUEST, MAX_FRAME_BYTES, PARSE_ERROR, error_frame, has_valid_id, request_id

CHUNK_BYTES: Final = 65_536
# Of a frame above the limit this much is kept, to find the id that its error answers.
MAX_KEPT_BYTES: Final = 2 * MAX_FRAME_BYTES
NOT_JSON: Final = frozenset({"syntax", "encoding", "size"})

OnFrame = Callable[[Any], None]


class Wire:
    """The process's stdin and stdout, claimed before anything can print to them."""

    def __init__(self) -> None:
        """Raises MeahError E_CONFIG when one of them is closed."""
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        try:
            read_fd, write_fd = os.dup(0), os.dup(1)
        except OSError as error:
            raise MeahError(
                "E_CONFIG", "stdin or stdout is closed.", hint="Start it from an MCP client, which gives it both."
            ) from error
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._pumps: list[threading.Thread] = []
        self.read_fd = read_fd if _is_waitable(read_fd) else self._pumped_in(read_fd)
        self.write_fd = write_fd if _is_waitable(write_fd) else self._pumped_out(write_fd)

    def finish(self) -> None:
        """Wait a moment until all that was written has arrived in a file."""
        for pump in self._pumps:
            pump.join(timeout=1.0)

    def _pumped_in(self, file_fd: int) -> int:
        """No event loop can wait for a file or /dev/null: a thread pours it into a pipe."""
        out_fd, in_fd = os.pipe()
        self._pump(file_fd, in_fd, name="meah-stdin")
        return out_fd

    def _pumped_out(self, file_fd: int) -> int:
        out_fd, in_fd = os.pipe()
        self._pumps.append(self._pump(out_fd, file_fd, name="meah-stdout"))
        return in_fd

    @staticmethod
    def _pump(source_fd: int, sink_fd: int, *, name: str) -> threading.Thread:
        def pour() -> None:
            with (
                contextlib.suppress(OSError),
                os.fdopen(source_fd, "rb", 0) as source,
                os.fdopen(sink_fd, "wb", 0) as sink,
            ):
                shutil.copyfileobj(source, sink)

        pump = threading.Thread(target=pour, name=name, daemon=True)
        pump.start()
        return pump


def _is_waitable(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


class Streams:
    """The pair of streams that the SDK's server runs on, and what the session wants to know of them."""

    def __init__(
        self,
        read_transport: asyncio.ReadTransport,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_frame: OnFrame,
    ) -> None:
        self._read_transport = read_transport
        self._reader = reader
        self._writer = writer
        self._on_frame = on_frame
        self._unanswered: set[str] = set()
        self._changed = asyncio.Event()
        self._to_server, self.read = anyio.create_memory_object_stream[Any](0)
        self.write, self._from_server = anyio.create_memory_object_stream[Any](0)

    async def receive(self) -> None:
        """Hand on what comes in, until the end of the input. The server's end stays open: the session closes it."""
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for frame in _frames(self._reader):
                if (message := await self._decoded(frame)) is not None:
                    self._note(message)
                    self._on_frame(message)
                    await self._hand_on(frame, message)

    async def send(self) -> None:
        """Write what the server says."""
        async with self._from_server:
            async for item in self._from_server:
                await self._write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
                if isinstance(item.message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
                    self._settle(item.message.id)

    def close(self) -> None:
        for end in (self._to_server, self.read, self.write, self._from_server):
            end.close()
        for transport in (self._read_transport, self._writer.transport):
            _give_back(transport)
            transport.close()

    async def answered(self, within_s: float) -> None:
        """Wait until no request is open any more, but not for long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._unanswered:
                    self._changed.clear()
                    await self._changed.wait()

    async def _decoded(self, frame: bytes) -> Any:
        """The frame's value, or None after it was answered with an error that names what is wrong with it."""
        try:
            return strict_loads(frame, max_bytes=MAX_FRAME_BYTES)
        except StrictDecodeError as error:
            code = PARSE_ERROR if error.reason in NOT_JSON else INVALID_REQUEST
            await self._refuse(frame, code, f"The frame was refused: {error}", reason=error.reason)
            return None

    async def _hand_on(self, frame: bytes, message: Any) -> None:
        try:
            if not has_valid_id(message):
                raise ValueError("the id is neither a string nor an integer")
            item = SessionMessage(mcp_types.jsonrpc_message_adapter.validate_python(message, by_name=False))
        except ValueError:
            await self._refuse(frame, INVALID_REQUEST, "The frame is no JSON-RPC 2.0 message.", reason="not_json_rpc")
            return
        await self._to_server.send(item)

    async def _refuse(self, frame: bytes, code: int, message: str, *, reason: str) -> None:
        frame_id = request_id(frame)
        await self._write(json.dumps(error_frame(frame_id, code, message, reason=reason)).encode())
        self._settle(frame_id)

    async def _write(self, line: bytes) -> None:
        """A client that has closed its end is no error: the end of the input is what stops the server."""
        with contextlib.suppress(OSError):
            self._writer.write(line + b"\n")
            await self._writer.drain()

    def _note(self, message: Any) -> None:
        """A request is open until it is answered, or taken back: a cancelled one gets no answer."""
        if not isinstance(message, dict):
            return
        if message.get("method") == "notifications/cancelled" and isinstance(message.get("params"), dict):
            self._settle(message["params"].get("requestId"))
        elif "method" in message and "id" in message:
            self._unanswered.add(str(message["id"]))

    def _settle(self, message_id: object) -> None:
        self._unanswered.discard(str(message_id))
        self._changed.set()


@asynccontextmanager
async def streams(wire: Wire, *, on_frame: OnFrame, on_end: Callable[[], None]) -> AsyncIterator[Streams]:
    """The transport, from here to the end of the block.

    `on_frame` sees every decoded frame before the SDK does; `on_end` is called at the end of the input.
    """
    pair = Streams(*await _reader(wire.read_fd), await _writer(wire.write_fd), on_frame)

    async def receive() -> None:
        await pair.receive()
        on_end()

    async with anyio.create_task_group() as group:
        group.start_soon(receive)
        group.start_soon(pair.send)
        try:
            yield pair
        finally:
            group.cancel_scope.cancel()
            pair.close()


def _give_back(transport: asyncio.BaseTransport) -> None:
    """A terminal outlives this process, and is no use to it in the mode that asyncio set."""
    pipe = transport.get_extra_info("pipe")
    with contextlib.suppress(OSError, ValueError):
        if pipe is not None and pipe.isatty():
            os.set_blocking(pipe.fileno(), True)


async def _reader(fd: int) -> tuple[asyncio.ReadTransport, asyncio.StreamReader]:
    reader = asyncio.StreamReader(limit=CHUNK_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
    )
    return transport, reader


async def _writer(fd: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(fd, "wb", 0))
    # `drain` then waits until all is written: nothing is left to be lost at the end.
    transport.set_write_buffer_limits(high=0)
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines without their ends. One that is far too long arrives cut, never whole in memory."""
    pending = bytearray()
    while chunk := await reader.read(CHUNK_BYTES):
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            _keep(pending, line)
            if frame := bytes(pending).strip():
                yield frame
            pending.clear()
        _keep(pending, rest)
    if frame := bytes(pending).strip():
        yield frame


def _keep(pending: bytearray, piece: bytes) -> None:
    pending += piece[: max(0, MAX_KEPT_BYTES - len(pending))]
