"""The arguments of the three tools of the lazy gateway. Short: every client pays for them on every turn."""

from __future__ import annotations

from typing import Any, Final

from approvals import schemas
from core.canonical import StrictDecodeError, strict_loads
from core.errors import JsonObject, MeahError
from core.text import one_line

MAX_TIMEOUT_MS: Final = 600_000
DEFAULT_LIMIT: Final = 10
MAX_LIMIT: Final = 100

_SERVER: JsonObject = {"type": "string", "maxLength": 128}
_TOOL: JsonObject = {"type": "string", "maxLength": 256}

DISCOVER: JsonObject = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": 1000, "description": "Words, or a tool's name."},
        "kind": {"type": "string", "enum": ["all", "server", "tool", "method"], "default": "all"},
        "server": _SERVER | {"description": "Only this one; alone it lists its tools."},
        "refresh": {"type": "boolean", "default": False, "description": "Start that server and list it anew."},
        "detail": {"type": "string", "enum": ["names", "full"], "default": "names", "description": "full: schemas."},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
        "cursor": {"type": "string", "maxLength": 100, "description": "nextCursor."},
    },
    "additionalProperties": False,
}
CALL: JsonObject = {
    "type": "object",
    "properties": {
        "server": _SERVER,
        "tool": _TOOL,
        "args": {"type": "object", "description": "As its inputSchema says.", "default": {}},
        "timeoutMs": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS, "description": "For all of it."},
    },
    "required": ["server", "tool"],
    "additionalProperties": False,
}
RUN: JsonObject = {
    "type": "object",
    "properties": {
        "method": {"type": "string", "maxLength": 128},
        "version": {"type": "string", "maxLength": 32, "description": "Default: the highest."},
        "input": {"type": "object", "description": "As its inputSchema says."},
        "runId": {"type": "string", "pattern": "^mr_[0-9a-f]{20}$", "description": "Only this: read that run."},
    },
    "additionalProperties": False,
}


def parse(schema: JsonObject, arguments: JsonObject) -> JsonObject:
    """The arguments with defaults filled in; null is what a client fills in for what nobody gave.

    Raises MeahError E_INVALID_REQUEST naming what is wrong.
    """
    given = {name: value for name, value in arguments.items() if value is not None or name not in schema["properties"]}
    # PostgreSQL can not even be asked for a text with it.
    if nul := [name for name, value in given.items() if isinstance(value, str) and "\0" in value]:
        raise MeahError(
            "E_INVALID_REQUEST",
            f"Invalid arguments: {one_line(nul[0], 100)}: holds the character NUL (U+0000).",
            hint="Send text without NUL.",
            reason="arguments",
        )
    return schemas.parse(schema, given)


def parse_call(arguments: JsonObject) -> JsonObject:
    """Of `mcp_call`: `args` may be an object's JSON text, as some clients send it; nothing inside is ever repaired."""
    args: Any = arguments.get("args")
    if isinstance(args, str):
        arguments = arguments | {"args": _object_in(args)}
    return parse(CALL, arguments)


def _object_in(text: str) -> JsonObject:
    try:
        found = strict_loads(text)
    except StrictDecodeError as error:
        raise _no_object(f"it is text that holds no JSON: {error}") from error
    if not isinstance(found, dict):
        raise _no_object("its text holds no object")
    return found


def _no_object(why: str) -> MeahError:
    return MeahError(
        "E_INVALID_REQUEST",
        f"Invalid arguments: args: an object is needed; {why}.",
        hint='Send args as an object, such as {"path": "a.txt"}.',
        reason="arguments",
    )
