"""Answers of our own over ASGI: small, whole, JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Header = tuple[bytes, bytes]


async def reply(send: Any, status: int, value: Any, headers: Sequence[Header] = ()) -> None:
    """`value` as JSON; nothing where it is None."""
    body = b"" if value is None else json.dumps(value).encode()
    kind = [] if value is None else [(b"content-type", b"application/json")]
    sized = [*kind, (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": sized})
    await send({"type": "http.response.body", "body": body})


def header(scope: Any, wanted: bytes) -> str:
    """The first header of that name, which is given in lower case; empty where there is none."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name.lower() == wanted), "")
