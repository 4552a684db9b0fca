"""Whose host, whose origin: for every kind of request, before any application sees it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from meah_site.boundary import Boundary

HOSTS = ["127.0.0.1", "localhost", "[::1]", "meah.example.com", "door.example.com:8443"]
OURS = (b"host", b"127.0.0.1:7817")
KINDS = pytest.mark.parametrize("kind", ["http", "websocket"])


def asked(
    kind: str,
    *headers: tuple[bytes, bytes],
    origins: tuple[str, ...] = (),
    path: str = "/admin/",
    body: tuple[bytes, ...] = (),
) -> tuple[Any, list[Any]]:
    """What the application behind the boundary saw (None where nothing), and what was answered instead."""
    seen: list[Any] = []
    sent: list[Any] = []
    left = list(body)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while left:
            await receive()
        seen.append(scope)

    async def receive() -> Any:
        if kind == "websocket":
            return {"type": "websocket.connect"}
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "path": path, "headers": list(headers), "server": ("127.0.0.1", 7817), "root_path": "/x"}
    asyncio.run(Boundary(app, hosts=HOSTS, origins=origins, max_body=1_000)(scope, receive, send))
    return (seen or [None])[0], sent


@pytest.mark.parametrize(
    "headers",
    [
        [OURS],
        [OURS, (b"origin", b"http://127.0.0.1:7817")],
        [(b"host", b"localhost:7817"), (b"origin", b"http://localhost:7817")],
        [(b"host", b"[::1]:7817")],
        [(b"host", b"meah.example.com"), (b"origin", b"https://meah.example.com")],
        [(b"host", b"meah.example.com:7817")],
        [(b"host", b"door.example.com:8443"), (b"origin", b"https://door.example.com:8443")],
        [(b"Host", b"MEAH.example.com")],
        [OURS, (b"content-length", b"1000")],
    ],
)
def test_what_is_ours_passes(headers: list[tuple[bytes, bytes]]) -> None:
    assert asked("http", *headers)[0] is not None


@KINDS
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 421),
        ([(b"host", b"evil.example")], 421),
        ([(b"host", b"127.0.0.1.evil.example:7817")], 421),
        ([(b"host", b"127.0.0.1:80")], 421),
        ([(b"host", b"127.0.0.1")], 421),
        ([(b"host", b"meah.example.com:9999")], 421),
        ([(b"host", b"door.example.com")], 421),
        ([(b"host", b"door.example.com:7817")], 421),
        ([(b"host", b"127.0.0.1:7817@evil.example")], 421),
        ([(b"host", b"user@127.0.0.1:7817")], 421),
        ([(b"host", b"127.0.0.1:7817/?x=")], 421),
        ([(b"host", b"127.0.0.1:07817")], 421),
        ([(b"host", b"127.0.0.1:7817,evil.example")], 421),
        ([(b"host", b"127.0.0.1:x")], 421),
        ([(b"host", b"")], 421),
        ([(b"h_ost", b"127.0.0.1:7817")], 421),
        ([OURS, OURS], 400),
        ([OURS, (b"origin", b"a"), (b"origin", b"b")], 400),
        ([OURS, (b"content-length", b"1"), (b"Content-Length", b"2")], 400),
        ([OURS, (b"authorization", b"a"), (b"authorization", b"b")], 400),
        ([OURS, *[(b"x-%d" % number, b"") for number in range(200)]], 400),
        ([OURS, (b"origin", b"null")], 403),
        ([OURS, (b"origin", b"http://127.0.0.1:3000")], 403),
        ([OURS, (b"origin", b"http://localhost:7817")], 403),
        ([OURS, (b"origin", b"http://127.0.0.1:7817.evil.example")], 403),
    ],
)
def test_what_is_not_ours_is_refused(kind: str, headers: list[tuple[bytes, bytes]], status: int) -> None:
    seen, sent = asked(kind, *headers)
    assert seen is None
    if kind == "websocket":
        assert (sent[0]["type"], sent[0]["code"]) == ("websocket.close", 4403)
    else:
        assert sent[0]["status"] == status and json.loads(sent[1]["body"])["error"]["message"]


def test_a_target_that_is_no_path_is_refused() -> None:
    seen, sent = asked("http", OURS, path="http://evil.example/admin/")
    assert seen is None and sent[0]["status"] == 400


@pytest.mark.parametrize("length", [b"1001", b"9" * 5_000, b"-1", b"0x10", b"\xb2"])
def test_a_body_that_says_it_is_too_large_is_not_read(length: bytes) -> None:
    seen, sent = asked("http", OURS, (b"content-length", length), body=(b"x",))
    assert seen is None and sent[0]["status"] in (400, 413)


def test_a_body_that_does_not_say_so_is_read_as_far_as_the_limit() -> None:
    seen, sent = asked("http", OURS, body=(b"x" * 600, b"x" * 600, b"x" * 600))
    assert seen is None and sent[0]["status"] == 413
    assert asked("http", OURS, body=(b"x" * 500, b"x" * 500))[0] is not None


def test_a_websocket_has_to_come_from_our_own_pages() -> None:
    allowed = ("http://127.0.0.1:3000",)
    assert asked("websocket", OURS)[0] is None
    assert asked("websocket", OURS, (b"origin", b"http://127.0.0.1:3000"), origins=allowed)[0] is None
    assert asked("websocket", OURS, (b"origin", b"http://127.0.0.1:7817"))[0] is not None


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_at_mcp_even_our_own_origin_has_to_be_named(path: str) -> None:
    own = (b"origin", b"http://127.0.0.1:7817")
    assert asked("http", OURS, own, path=path)[1][0]["status"] == 403
    assert asked("http", OURS, own, path=path, origins=("http://127.0.0.1:7817",))[0] is not None
    assert asked("http", OURS, own, path="/mcpx")[0] is not None


def test_an_origin_can_be_allowed_and_spoofed_headers_are_dropped() -> None:
    other = (b"origin", b"https://ops.example.com")
    assert asked("http", OURS, other, origins=("https://ops.example.com",))[0] is not None
    assert asked("http", OURS, other, origins=("https://ops.example.com:444",))[0] is None
    seen, _ = asked("http", OURS, (b"x_forwarded_for", b"1"), (b"accept", b"*/*"))
    assert [name for name, _ in seen["headers"]] == [b"host", b"accept"] and seen["root_path"] == ""
