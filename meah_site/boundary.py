"""The outermost layer of everything that is served: whose host, whose origin, and no header that could be read twice.

A page of another site can make a browser send requests here; after a rebinding of its name even with our address. So
Host and Origin are compared exactly, for HTTP and websockets alike, before any application sees them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from core.frames import MAX_FRAME_BYTES

# Read once by whoever reads them: two of one kind are two meanings.
SINGLE: Final = frozenset({b"host", b"origin", b"content-length", b"content-type", b"authorization", b"cookie"})
MAX_HEADERS: Final = 100
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
# Nothing that a browser runs at our own address speaks MCP: there an origin has to be named to pass.
MCP_PATH: Final = "/mcp"
CODES: Final = {400: "E_INVALID_REQUEST", 403: "E_PERMISSION", 413: "E_INVALID_REQUEST", 421: "E_PERMISSION"}
Header = tuple[bytes, bytes]


class _TooLargeError(Exception):
    """A body went on beyond what is read."""


class Boundary:
    """Wraps an ASGI application.

    `hosts`: names, or names with a port. A name alone stands for itself without a port and with the one that is
    served; on loopback only for the latter, since other programs have other ports. `origins`: whole ones, such as
    https://app.example.com, that pages of other sites may come from; for HTTP only.
    """

    def __init__(
        self, app: Any, *, hosts: Sequence[str], origins: Sequence[str] = (), max_body: int = MAX_FRAME_BYTES
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins)
        self._max_body = max_body

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        # A name with an underscore becomes that of another header in whatever maps both to one variable.
        headers = [(name, value) for name, value in scope["headers"] if b"_" not in name]
        status, why = self._refusal(scope, headers)
        if not status:
            # daphne takes the root path from a header that any client can send.
            await self._pass_on({**scope, "headers": headers, "root_path": ""}, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4403, "reason": why})
        else:
            await _answer(send, status, why)

    async def _pass_on(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        started, size = False, 0

        async def counted() -> Any:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._max_body:
                raise _TooLargeError
            return message

        async def watched(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, counted, watched)
        except _TooLargeError:
            if not started:
                await _answer(send, 413, self._too_large())

    def _refusal(self, scope: Any, headers: Sequence[Header]) -> tuple[int, str]:
        """Status and reason; 0 where nothing stands against it."""
        if len(headers) > MAX_HEADERS or any(_count(headers, name) > 1 for name in SINGLE):
            return 400, "The request has headers twice, or too many of them."
        if not scope["path"].startswith("/"):
            return 400, "The request's target is no path."
        host = _value(headers, b"host").lower()
        if not self._is_ours(host, scope):
            return 421, "This address is not one of MEAH's: MEAH_ALLOWED_HOSTS (or --allow-host) names further ones."
        if not self._may_come_from(_value(headers, b"origin"), host, scope):
            return 403, "Pages of other sites are refused: MEAH_ALLOWED_ORIGINS (or --allow-origin) names exceptions."
        length = _value(headers, b"content-length") or "0"
        if not (length.isascii() and length.isdigit()):
            return 400, "The Content-Length is no number."
        return (413, self._too_large()) if len(length) > 18 or int(length) > self._max_body else (0, "")

    def _too_large(self) -> str:
        return f"The request's body is larger than {self._max_body} bytes."

    def _is_ours(self, host: str, scope: Any) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            port = parts.port
        except ValueError:
            return False
        name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        if name is None or host not in (name, f"{name}:{port}"):
            return False
        if f"{name}:{port}" in self._hosts:
            return True
        served = (scope.get("server") or (None, None))[1]
        return name in self._hosts and (port == served or served is None or (port is None and name not in LOOPBACK))

    def _may_come_from(self, origin: str, host: str, scope: Any) -> bool:
        if scope["type"] == "websocket":
            # A browser always says where a websocket comes from, and sends our cookies to it from any local port.
            return origin.lower() in _own(host)
        return not origin or origin in self._origins or (not _is_mcp(scope["path"]) and origin.lower() in _own(host))


def _own(host: str) -> tuple[str, str]:
    return f"http://{host}", f"https://{host}"


def _is_mcp(path: str) -> bool:
    return path == MCP_PATH or path.startswith(f"{MCP_PATH}/")


def _count(headers: Iterable[Header], wanted: bytes) -> int:
    return sum(name.lower() == wanted for name, _ in headers)


def _value(headers: Iterable[Header], wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in headers if name.lower() == wanted), "")


async def _answer(send: Any, status: int, why: str) -> None:
    body = json.dumps({"ok": False, "error": {"code": CODES[status], "message": why}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
