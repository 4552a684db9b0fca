"""A provider that answers every completion after a fixed time, and costs next to nothing: `slow_server.py DELAY_S`.

It prints its port and serves until its stdin ends.
"""

from __future__ import annotations

import asyncio
import sys

_EVENTS = (
    b'data: {"id":"1","object":"chat.completion.chunk","model":"slow","choices":[{"index":0,"delta":'
    b'{"role":"assistant","content":"Done."},"finish_reason":"stop"}]}\n\n'
    b'data: {"id":"1","object":"chat.completion.chunk","model":"slow","choices":[],'
    b'"usage":{"prompt_tokens":100,"completion_tokens":2}}\n\n'
    b"data: [DONE]\n\n"
)
ANSWER = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(_EVENTS)) + _EVENTS


async def serve(delay_s: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _request(reader):
                await asyncio.sleep(delay_s)
                writer.write(ANSWER)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


async def _request(reader: asyncio.StreamReader) -> bool:
    """Read one request to its end; False when the client has gone."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            await reader.readexactly(int(line.partition(b":")[2]))
    return True


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
