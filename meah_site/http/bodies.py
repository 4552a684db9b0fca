"""Bodies of MCP requests, decoded as strictly as frames over stdio before the SDK sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.canonical import StrictDecodeError, strict_loads
from core.errors import JsonObject
from core.frames import INVALID_REQUEST, MAX_FRAME_BYTES, PARSE_ERROR, error_frame, has_valid_id, request_id

NOT_JSON = frozenset({"syntax", "encoding", "size"})


class ClientGoneError(Exception):
    """The client closed the connection before its body was whole."""


@dataclass(frozen=True)
class RefusedBodyError(Exception):
    """A body that is answered with this status and JSON-RPC error."""

    status: int
    frame: JsonObject


async def whole_body(receive: Any) -> bytes:
    """Raises ClientGoneError. The outermost layer has bounded it already."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


def message_of(body: bytes) -> Any:
    """The value of a body. Raises RefusedBodyError."""
    try:
        message = strict_loads(body, max_bytes=MAX_FRAME_BYTES)
    except StrictDecodeError as error:
        code = PARSE_ERROR if error.reason in NOT_JSON else INVALID_REQUEST
        status = 413 if error.reason == "size" else 400
        found = error_frame(request_id(body), code, f"The body was refused: {error}", reason=error.reason)
        raise RefusedBodyError(status, found) from None
    if not has_valid_id(message):
        frame = error_frame(None, INVALID_REQUEST, "The id is neither a string nor an integer.", reason="not_json_rpc")
        raise RefusedBodyError(400, frame)
    return message


def replayed(body: bytes, receive: Any) -> Any:
    """A `receive` that gives the body once more, and then whatever else comes."""
    given = False

    async def again() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
