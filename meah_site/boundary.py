"""The outermost layer of everything that is served: whose host, whose origin, and no header that could be read twice.

A page of another site can make a browser send requests here; after a rebinding of its name even with our address. So
Host and Origin are compared exactly, for HTTP and websockets alike, before any application sees them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

# Read once by whoever reads them: two of one kind are two meanings.
SINGLE: Final = frozenset({b"host", b"origin", b"content-length", b"content-type", b"authorization", b"cookie"})
MAX_HEADERS: Final = 100
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
Header = tuple[bytes, bytes]


class Boundary:
    """Wraps an ASGI application. `hosts` are names without a port; `origins` are allowed besides our own."""

    def __init__(self, app: Any, *, hosts: Sequence[str], origins: Sequence[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        # A name with an underscore becomes that of another header in whatever maps both to one variable.
        headers = [(name, value) for name, value in scope["headers"] if b"_" not in name]
        status, why = self._refusal(scope, headers)
        if not status:
            await self._app({**scope, "headers": headers}, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4403, "reason": why})
        else:
            await _answer(send, status, why)

    def _refusal(self, scope: Any, headers: Sequence[Header]) -> tuple[int, str]:
        """Status and reason; 0 where nothing stands against it."""
        if len(headers) > MAX_HEADERS or any(_count(headers, name) > 1 for name in SINGLE):
            return 400, "The request has headers twice, or too many of them."
        host = _value(headers, b"host").lower()
        if not self._is_ours(host, scope):
            return 421, "This address is not one of MEAH's: MEAH_ALLOWED_HOSTS names further ones."
        origin = _value(headers, b"origin")
        if not origin:
            # A browser always says where a websocket comes from.
            return (403, "A websocket needs an Origin.") if scope["type"] == "websocket" else (0, "")
        if origin.lower() in (f"http://{host}", f"https://{host}") or origin in self._origins:
            return 0, ""
        return 403, "Requests from pages of other sites are refused."

    def _is_ours(self, host: str, scope: Any) -> bool:
        """The host by name; on loopback also by the very port, since other programs have others."""
        try:
            parts = urlsplit(f"//{host}")
            port = parts.port
        except ValueError:
            return False
        name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        if name is None or name not in self._hosts or host not in (name, f"{name}:{port}"):
            return False
        served = (scope.get("server") or (None, None))[1]
        return name not in LOOPBACK or served is None or port == served


def _count(headers: Iterable[Header], wanted: bytes) -> int:
    return sum(name.lower() == wanted for name, _ in headers)


def _value(headers: Iterable[Header], wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in headers if name.lower() == wanted), "")


async def _answer(send: Any, status: int, why: str) -> None:
    body = json.dumps({"ok": False, "error": {"code": "E_PERMISSION", "message": why}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
