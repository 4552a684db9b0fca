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

# A frame may be of any size and made to be slow to read: the id is looked for only near its two ends.
_HEAD_BYTES: Final = 128 * 1024
_TAIL_BYTES: Final = 4 * 1024

# Possessive, so that no text makes them go back.
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_INTEGER: Final = rb"-?\d{1,16}+"
# A string that does not end takes all the rest with it: looking on inside would be quadratic.
_TOKEN: Final = re.compile(_STRING + rb"?|[{}\[\],:]", re.DOTALL)
_VALUE: Final = re.compile(rb"\s*+(?:(" + _INTEGER + rb")|(" + _STRING + rb"))\s*+(?:[,}]|$)", re.DOTALL)
_LAST_MEMBERS: Final = re.compile(
    rb',\s*+"id"\s*+:(?P<value>\s*+(?:' + _INTEGER + rb'|"[^"\\]{0,256}+"))\s*+'
    rb'(?:,\s*+"[^"\\]{1,64}+"\s*+:\s*+(?:"[^"\\]{0,256}+"|' + _INTEGER + rb"|true|false|null)\s*+)*+}\s*+$"
)


def request_id(frame: bytes) -> RequestId:
    """The `id` at the top level of a frame that may be broken, too large or twice keyed; None where there is none."""
    found = _in_head(frame[:_HEAD_BYTES])
    if found is not None or len(frame) <= _HEAD_BYTES:
        return found
    last = _LAST_MEMBERS.search(frame[-_TAIL_BYTES:])
    return None if last is None else _value(last["value"], 0)


def _in_head(head: bytes) -> RequestId:
    depth, key = 0, b""
    for token in _TOKEN.finditer(head):
        text = token.group()
        if text in b"{[":
            depth += 1
        elif text in b"}]":
            depth -= 1
        elif depth == 1 and text == b":" and key == b'"id"':
            return _value(head, token.end())
        elif depth == 1:
            key = text
    return None


def _value(text: bytes, start: int) -> RequestId:
    match = _VALUE.match(text, start)
    if match is None:
        return None
    if match[1]:
        return int(match[1])
    try:
        value = json.loads(match[2])
        value.encode()
    except ValueError:
        return None
    return str(value)


def has_valid_id(message: object) -> bool:
    """False for a request whose id is of a wrong type: it would pass for a notification, and never be answered."""
    if not (isinstance(message, dict) and "method" in message and "id" in message):
        return True
    return isinstance(message["id"], str | int) and not isinstance(message["id"], bool)


def error_frame(frame_id: RequestId, code: int, message: str, *, reason: str) -> JsonObject:
    """A JSON-RPC error that answers a refused frame."""
    return {
        "jsonrpc": "2.0",
        "id": frame_id,
        "error": {"code": code, "message": message, "data": {"reason": reason}},
    }
