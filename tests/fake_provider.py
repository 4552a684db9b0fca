"""A real HTTP server on loopback that behaves as providers do, well or badly.

    with FakeProvider() as fake:
        fake.reply(json_reply({"error": "busy"}, status=503), chat("Hello"))   # in turn; the last one stays
        ... call fake.base_url ...
        assert fake.requests[0].json["model"] == "m"

Several scripts at once: `fake.room("a")` has a base URL, replies and requests of its own.
It runs in a thread with an event loop of its own and serves hundreds of slow answers at once. Without `reply` it
answers every completion with `chat("Hello from the fake provider.")`, as a stream where one is asked for, after
`delay` seconds. `python -m tests.fake_provider --delay 1` serves until it is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

JSON = "application/json"
SSE = "text/event-stream"
MODEL = "fake-model"
_GOODBYE_S = 0.02
_TLS_HELLO = b"\x16"


@dataclass(frozen=True)
class Pause:
    """Wait that long (or until the client has gone) before the next piece."""

    seconds: float


@dataclass(frozen=True)
class Stall:
    """Say nothing more, keep the connection open until the client goes."""


@dataclass(frozen=True)
class Cut:
    """Close the connection here, whatever was promised."""


@dataclass(frozen=True)
class Repeat:
    """Send the piece again and again, `every` seconds, until the client goes."""

    piece: bytes
    every: float


Step = bytes | Pause | Stall | Cut | Repeat


@dataclass(frozen=True)
class Reply:
    """One response. `framing`: `length` promises all bytes of the steps, `chunked`, `close`, or `raw` (no head)."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    framing: str = "length"
    head_pause: float = 0.0


@dataclass
class Recorded:
    """A request as it arrived; `gone` is set when the client left before the answer was whole."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Scripted = Reply | Callable[[Recorded], Reply]


def json_reply(value: Any, *, status: int = 200, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Reply([body], status, [("Content-Type", JSON), *headers])


def text_reply(
    text: str | bytes, *, status: int = 200, content_type: str = "text/plain", headers: Iterable[tuple[str, str]] = ()
) -> Reply:
    body = text if isinstance(text, bytes) else text.encode()
    return Reply([body] if body else [], status, [("Content-Type", content_type), *headers])


def html_reply(html: str, *, status: int = 200) -> Reply:
    return text_reply(html, status=status, content_type="text/html; charset=utf-8")


def stream_reply(*pieces: Any, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    """A stream: bytes and steps as they are, everything else as one `data:` event."""
    steps = [piece if isinstance(piece, Step) else event(piece) for piece in pieces]
    return Reply(steps, 200, [("Content-Type", SSE), *headers], framing="chunked")


def event(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"data: {text}\n\n".encode()


DONE = event("[DONE]")


def answer(text: Any, *, finish: Any = "stop", usage: Any = None, **message: Any) -> dict[str, Any]:
    """A whole completion as one document."""
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
        ],
    }
    return body if usage is None else {**body, "usage": usage}


def chunk(content: Any = None, *, finish: Any = None, **delta: Any) -> dict[str, Any]:
    """One chunk of a streamed completion."""
    if content is not None:
        delta["content"] = content
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def usage_chunk(usage: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": MODEL, "choices": [], "usage": usage}


def usage(sent: int = 12, said: int = 7, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": sent, "completion_tokens": said, "total_tokens": sent + said, **more}


def streamed(document: dict[str, Any], *, pieces: int = 3) -> Reply:
    """What a well-behaved server would have streamed instead of the document."""
    choice = document["choices"][0]
    message = {name: value for name, value in choice["message"].items() if name != "role"}
    events: list[Any] = [chunk(role="assistant", content="")]
    content = message.pop("content", None)
    if message:
        events.append(chunk(**message))
    if isinstance(content, str):
        size = max(1, -(-len(content) // pieces))
        events += [chunk(content[start : start + size]) for start in range(0, len(content), size)]
    elif content is not None:
        events.append(chunk(content))
    last = chunk(finish=choice.get("finish_reason"))
    events.append(last)
    for event_ in events:
        event_["model"] = document.get("model")
    if document.get("usage") is not None:
        events.append(usage_chunk(document["usage"]))
    return stream_reply(*events, DONE)


def chat(text: str, **options: Any) -> Callable[[Recorded], Reply]:
    """An answer in the form that the request asks for."""
    document = answer(text, **({"usage": usage()} | options))

    def reply(request: Recorded) -> Reply:
        return streamed(document) if request.json.get("stream") else json_reply(document)

    return reply


class Room:
    """One script: what was asked under one base URL, and what is answered there."""

    def __init__(self) -> None:
        self.base_url = ""
        self.delay = 0.0
        self.requests: list[Recorded] = []
        self.models: Scripted = json_reply({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        self._replies: list[Scripted] = [chat("Hello from the fake provider.")]

    def reply(self, *replies: Scripted) -> None:
        """Answer with these in turn from now on, forgetting the requests before; the last one stays."""
        self.requests.clear()
        self._replies = list(replies)

    def answer_to(self, request: Recorded) -> Reply:
        self.requests.append(request)
        scripted: Scripted
        if request.method == "GET" and request.path.partition("?")[0].endswith("/models"):
            scripted = self.models
        else:
            scripted = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        return scripted if isinstance(scripted, Reply) else scripted(request)


class FakeProvider(Room):
    """See the module's text. `tls` makes it an https server."""

    def __init__(self, *, delay: float = 0.0, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        super().__init__()
        self.delay = delay
        self.port = port
        self._tls = tls
        self._rooms: dict[str, Room] = {}
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake-provider", daemon=True)

    def __enter__(self) -> FakeProvider:
        self._thread.start()
        assert self._ready.wait(5), "the fake provider did not start"
        self.base_url = f"{self.origin}/v1"
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5)

    @property
    def origin(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def room(self, name: str) -> Room:
        """A room of that name (of letters, digits and dashes), made when it is first asked for."""
        room = self._rooms.setdefault(name, Room())
        room.base_url = f"{self.origin}/room-{name}/v1"
        return room

    def _room_of(self, request: Recorded) -> Room:
        first = request.path.split("/")[1]
        return self._rooms.get(first.removeprefix("room-"), self) if first.startswith("room-") else self

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._client, "127.0.0.1", self.port, ssl=self._tls, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(_GOODBYE_S)  # closed transports need a turn of the loop to let go of their sockets

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await self._read(reader):
                if not await self._answer(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Recorded | None:
        try:
            first = await reader.readexactly(1)
            if first == _TLS_HELLO:
                return None
            head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        line, *fields = head.rstrip().split("\r\n")
        method, path, _ = line.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (part.partition(":") for part in fields)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Recorded(method, path, headers, body)

    async def _answer(self, request: Recorded, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection may serve another request."""
        room = self._room_of(request)
        reply = room.answer_to(request)
        speaker = _Speaker(request, reader, writer)
        if not await speaker.pause(room.delay + reply.head_pause):
            return False
        await speaker.say(_head(reply))
        for step in reply.steps:
            if not await speaker.take(step, reply.framing):
                return False
        if reply.framing == "chunked":
            await speaker.say(b"0\r\n\r\n")
        return reply.framing in ("length", "chunked")


class _Speaker:
    """Says the steps of one reply, and notices when nobody listens any more."""

    def __init__(self, request: Recorded, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._request = request
        self._reader = reader
        self._writer = writer

    async def take(self, step: Step, framing: str) -> bool:
        if isinstance(step, bytes):
            await self.say(_framed(step, framing))
            return True
        if isinstance(step, Pause):
            return await self.pause(step.seconds)
        if isinstance(step, Repeat):
            while await self.pause(step.every):
                await self.say(_framed(step.piece, framing))
            return False
        if isinstance(step, Stall):
            await self.pause(3_600)
        return False

    async def say(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (ConnectionError, ssl.SSLError):
            self._request.gone.set()
            raise

    async def pause(self, seconds: float) -> bool:
        """False when the client went meanwhile."""
        if seconds <= 0:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._reader.read(1)
        except TimeoutError:
            return True
        except (ConnectionError, ssl.SSLError):
            pass
        self._request.gone.set()
        return False


def _head(reply: Reply) -> bytes:
    if reply.framing == "raw":
        return b""
    reason = next((status.phrase for status in HTTPStatus if status == reply.status), "Strange")
    lines = [f"HTTP/1.1 {reply.status} {reason}", *(f"{name}: {value}" for name, value in reply.headers)]
    if reply.framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
    elif reply.framing == "close":
        lines.append("Connection: close")
    elif reply.status != HTTPStatus.NO_CONTENT and not any(name == "Content-Length" for name, _ in reply.headers):
        lines.append(f"Content-Length: {sum(len(step) for step in reply.steps if isinstance(step, bytes))}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _framed(data: bytes, framing: str) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if framing == "chunked" else data


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a fake provider until killed; prints its base URL.")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    with FakeProvider(delay=options.delay, port=options.port) as fake:
        print(fake.base_url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
