"""The stdio transport: asyncio pipes of our own.

The SDK's `stdio_server()` reads stdin in a thread, which no signal can stop while stdin is open, and its parser takes
duplicate keys, NaN and integers of any size. Here frames are decoded strictly before the SDK sees them, whatever is
printed by accident goes to stderr, and SIGTERM, SIGINT and end of input all end the transport at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types
from mcp.shared.message import SessionMessage

from core.canonical import StrictDecodeError, strict_loads
from core.frames import INVALID_REQUEST, MAX_FRAME_BYTES, PARSE_ERROR, error_frame, request_id

CHUNK_BYTES = 65_536
# Of a frame above the limit this much is kept, to find the id that its error answers.
MAX_KEPT_BYTES = 4 * MAX_FRAME_BYTES
NOT_JSON = frozenset({"syntax", "encoding", "size"})

OnFrame = Callable[[Any], None]


class Wire:
    """The process's stdin and stdout, claimed before anything can print to them."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self.read_fd, self.write_fd = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        sys.stdout = sys.stderr


@asynccontextmanager
async def streams(wire: Wire, *, on_frame: OnFrame, on_end: Callable[[], None]) -> AsyncIterator[tuple[Any, Any]]:
    """The pair of streams that the SDK's server runs on.

    `on_frame` sees every decoded frame before the SDK does; `on_end` is called at the end of the input.
    """
    reader, close_reader = await _reader(wire.read_fd)
    writer = await _writer(wire.write_fd)
    to_server, server_reads = anyio.create_memory_object_stream[Any](0)
    server_writes, from_server = anyio.create_memory_object_stream[Any](0)

    async def receive() -> None:
        async with to_server:
            async for frame in _frames(reader):
                message = _decoded(frame, writer)
                if message is not None:
                    on_frame(message)
                    await to_server.send(_session_message(message))
        on_end()

    async def send() -> None:
        async with from_server:
            async for item in from_server:
                writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()

    async with anyio.create_task_group() as group:
        group.start_soon(receive)
        group.start_soon(_until_broken, send)
        try:
            yield server_reads, server_writes
        finally:
            group.cancel_scope.cancel()
            close_reader()
            writer.close()


async def _until_broken(send: Callable[[], Any]) -> None:
    """A client that has closed its end wants no more answers; the end of the input is what stops the server."""
    try:
        await send()
    except (BrokenPipeError, ConnectionResetError):
        return


async def _reader(fd: int) -> tuple[asyncio.StreamReader, Callable[[], None]]:
    reader = asyncio.StreamReader(limit=CHUNK_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
    )
    return reader, transport.close


async def _writer(fd: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(fd, "wb", 0))
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


def _decoded(frame: bytes, writer: asyncio.StreamWriter) -> Any:
    """The frame's value, or None after it was answered with an error that names what is wrong with it."""
    try:
        return strict_loads(frame, max_bytes=MAX_FRAME_BYTES)
    except StrictDecodeError as error:
        code = PARSE_ERROR if error.reason in NOT_JSON else INVALID_REQUEST
        answer = error_frame(request_id(frame), code, f"The frame was refused: {error}", reason=error.reason)
        writer.write(json.dumps(answer).encode() + b"\n")
        return None


def _session_message(message: Any) -> Any:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_python(message, by_name=False))
    except ValueError as error:
        return error
