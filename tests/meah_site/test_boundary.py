"""Whose host, whose origin: for every kind of request, before any application sees it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from meah_site.boundary import Boundary

HOSTS = ["127.0.0.1", "localhost", "[::1]", "meah.example.com"]
OURS = (b"host", b"127.0.0.1:7817")


def asked(kind: str, *headers: tuple[bytes, bytes], origins: tuple[str, ...] = ()) -> tuple[Any, list[Any]]:
    """What the application behind the boundary saw (None where nothing), and what was answered instead."""
    seen: list[Any] = []
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "headers": list(headers), "server": ("127.0.0.1", 7817)}
    asyncio.run(Boundary(app, hosts=HOSTS, origins=origins)(scope, receive, send))
    return (seen or [None])[0], sent


@pytest.mark.parametrize(
    "headers",
    [
        [OURS],
        [OURS, (b"origin", b"http://127.0.0.1:7817")],
        [(b"host", b"localhost:7817"), (b"origin", b"http://localhost:7817")],
        [(b"host", b"[::1]:7817")],
        [(b"host", b"meah.example.com"), (b"origin", b"https://meah.example.com")],
        [(b"Host", b"MEAH.example.com")],
    ],
)
def test_what_is_ours_passes(headers: list[tuple[bytes, bytes]]) -> None:
    assert asked("http", *headers)[0] is not None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 421),
        ([(b"host", b"evil.example")], 421),
        ([(b"host", b"127.0.0.1.evil.example:7817")], 421),
        ([(b"host", b"127.0.0.1:80")], 421),
        ([(b"host", b"127.0.0.1")], 421),
        ([(b"host", b"127.0.0.1:7817@evil.example")], 421),
        ([(b"host", b"user@127.0.0.1:7817")], 421),
        ([(b"host", b"127.0.0.1:7817/?x=")], 421),
        ([(b"host", b"127.0.0.1:07817")], 421),
        ([(b"host", b"127.0.0.1:x")], 421),
        ([(b"host", b"")], 421),
        ([OURS, OURS], 400),
        ([OURS, (b"content-length", b"1"), (b"Content-Length", b"2")], 400),
        ([OURS, (b"authorization", b"a"), (b"authorization", b"b")], 400),
        ([OURS, *[(b"x-%d" % number, b"") for number in range(200)]], 400),
        ([OURS, (b"origin", b"null")], 403),
        ([OURS, (b"origin", b"http://127.0.0.1:3000")], 403),
        ([OURS, (b"origin", b"http://localhost:7817")], 403),
        ([OURS, (b"origin", b"http://127.0.0.1:7817.evil.example")], 403),
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_what_is_not_ours_is_refused(kind: str, headers: list[tuple[bytes, bytes]], status: int) -> None:
    seen, sent = asked(kind, *headers)
    assert seen is None
    assert sent[0].get("status", 4403) in (status, 4403)
    assert (sent[0]["type"] == "websocket.close") == (kind == "websocket")


def test_a_websocket_has_to_say_where_it_comes_from() -> None:
    assert asked("websocket", OURS)[0] is None
    assert asked("websocket", OURS, (b"origin", b"http://127.0.0.1:7817"))[0] is not None


def test_an_origin_can_be_allowed_and_a_spoofed_header_is_dropped() -> None:
    other = (b"origin", b"https://ops.example.com")
    assert asked("http", OURS, other, origins=("https://ops.example.com",))[0] is not None
    seen, _ = asked("http", OURS, (b"x_forwarded_for", b"1"), (b"accept", b"*/*"))
    assert [name for name, _ in seen["headers"]] == [b"host", b"accept"]
