"""The transport: what is printed by accident stays off the wire, and frames of any cut arrive whole."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack
from typing import Any

import pytest

from meah_site import stdio
from meah_site.stdio import Streams, _frames, streams
from tests.conftest import ROOT, compiled_environ

PRINTER = """
import os, sys
sys.path.insert(0, sys.argv[1])
print("before", end="")
from meah_site.stdio import Wire
wire = Wire()
print("by accident")
sys.stdout.write("unflushed")
os.system("echo from a child")
os.write(1, b"straight to the descriptor\\n")
os.write(wire.write_fd, b"the protocol\\n")
sys.stdin.read()
"""


def test_nothing_but_the_protocol_reaches_stdout() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINTER, str(ROOT)],
        env=compiled_environ(),
        input=b"for the wire alone",
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0
    # What was printed before the wire was claimed is all that may go astray, and runmcp prints nothing then.
    assert done.stdout == b"beforethe protocol\n"
    for stray in (b"by accident", b"unflushed", b"from a child", b"straight to the descriptor"):
        assert stray in done.stderr


class Pipe:
    """A wire whose other ends the test holds."""

    def __init__(self) -> None:
        self.read_fd, self.to_wire = os.pipe()
        self.from_wire, self.write_fd = os.pipe()
        self.seen: list[Any] = []
        self.ended = asyncio.Event()
        self._ours = {self.to_wire, self.from_wire}
        self._buffer = b""

    async def open(self, stack: AsyncExitStack) -> Streams:
        stack.callback(self.close)
        return await stack.enter_async_context(
            streams(self, on_frame=self.seen.append, on_end=self.ended.set)  # type: ignore[arg-type]
        )

    def close(self, *ends: int) -> None:
        """These of our ends, or all."""
        for fd in set(ends) or set(self._ours):
            self._ours.remove(fd)
            os.close(fd)

    def say(self, *messages: Any) -> None:
        os.write(self.to_wire, b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def heard(self) -> Any:
        while b"\n" not in self._buffer:
            self._buffer += await asyncio.to_thread(os.read, self.from_wire, 65_536)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)


def ping(request_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": "ping"}


def test_frames_go_in_and_answers_come_out(run: Any) -> None:
    async def main() -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCResponse

        async with AsyncExitStack() as stack:
            pipe = Pipe()
            pair = await pipe.open(stack)
            pipe.say(ping(1))
            message = (await pair.read.receive()).message
            assert (message.id, message.method) == (1, "ping")
            assert pipe.seen == [ping(1)]
            unanswered = asyncio.create_task(pair.answered(20))
            await asyncio.sleep(0.05)
            assert not unanswered.done()
            await pair.write.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": "é"})))
            assert await pipe.heard() == {"jsonrpc": "2.0", "id": 1, "result": {"a": "é"}}
            await asyncio.wait_for(unanswered, 5)
            assert not pipe.ended.is_set()
            pipe.close(pipe.to_wire)
            await asyncio.wait_for(pipe.ended.wait(), 5)

    run(main())


def test_a_request_that_was_taken_back_is_not_waited_for(run: Any) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            pipe = Pipe()
            pair = await pipe.open(stack)
            pipe.say(ping("a"))
            await pair.read.receive()
            pipe.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}})
            await pair.read.receive()
            await asyncio.wait_for(pair.answered(20), 5)

    run(main())


def test_an_answer_that_never_comes_is_not_waited_for_long(run: Any) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            pipe = Pipe()
            pair = await pipe.open(stack)
            pipe.say(ping(1))
            await pair.read.receive()
            await asyncio.wait_for(pair.answered(0.1), 5)

    run(main())


def test_a_frame_that_can_not_be_read_is_answered_here_and_goes_no_further(run: Any) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            pipe = Pipe()
            pair = await pipe.open(stack)
            os.write(pipe.to_wire, b'{"jsonrpc":"2.0","id":5,"method":"ping","method":"pong"}\n')
            assert (await pipe.heard())["id"] == 5
            pipe.say(ping(6))
            assert (await pair.read.receive()).message.id == 6
            assert pipe.seen == [ping(6)]

    run(main())


def test_a_client_that_closed_its_end_is_no_error(run: Any) -> None:
    async def main() -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCResponse

        async with AsyncExitStack() as stack:
            pipe = Pipe()
            pair = await pipe.open(stack)
            pipe.close(pipe.from_wire)
            for number in range(3):
                await pair.write.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=number, result={})))
            pipe.say(ping(1))
            assert (await pair.read.receive()).message.id == 1

    run(main())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_whole_however_they_are_cut(run: Any, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(stdio, "CHUNK_BYTES", size)

    async def main() -> list[bytes]:
        reader = asyncio.StreamReader()
        reader.feed_data(b'{"a":1}\n\n  \r\n{"b":2}\r\n{"c":3}')
        reader.feed_eof()
        return [frame async for frame in _frames(reader)]

    assert run(main()) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def test_a_line_without_end_is_cut_and_what_follows_is_not(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_KEPT_BYTES", 10)

    async def main() -> list[bytes]:
        reader = asyncio.StreamReader()
        reader.feed_data(b"x" * 100_000 + b"\nnext\n")
        reader.feed_eof()
        return [frame async for frame in _frames(reader)]

    assert run(main()) == [b"x" * 10, b"next"]
