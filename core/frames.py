"""JSON-RPC frames that can not be decoded: whose request it was, and the answer it gets."""

from __future__ import annotations

import json
import re
from typing import Final

from core.errors import JsonObject

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
MAX_FRAME_BYTES: Final = 16 * 2**20

RequestId = int | str | None

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]', re.DOTALL)
_INTEGER: Final = re.compile(rb"\s*(-?\d{1,16})\s*(?:[,}]|$)")


def request_id(frame: bytes) -> RequestId:
    """The `id` at the top level of a frame that may be broken, too large or twice keyed; None where there is none."""
    depth, key = 0, b""
    for token in _TOKEN.finditer(frame):
        text = token.group()
        if text in b"{[":
            depth += 1
        elif text in b"}]":
            depth -= 1
        elif depth == 1 and text == b":" and key == b'"id"':
            return _value(frame, token.end())
        elif depth == 1:
            key = text
    return None


def _value(frame: bytes, start: int) -> RequestId:
    if number := _INTEGER.match(frame, start):
        return int(number.group(1))
    text = _TOKEN.search(frame, start)
    if text is None or not text.group().startswith(b'"') or frame[start : text.start()].strip():
        return None
    try:
        value = json.loads(text.group())
        value.encode()
    except ValueError:
        return None
    return str(value)


def error_frame(frame_id: RequestId, code: int, message: str, *, reason: str) -> JsonObject:
    """A JSON-RPC error that answers a refused frame."""
    return {
        "jsonrpc": "2.0",
        "id": frame_id,
        "error": {"code": code, "message": message, "data": {"reason": reason}},
    }
