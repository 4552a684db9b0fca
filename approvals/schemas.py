"""The arguments of the approval tools."""

from __future__ import annotations

from typing import Any

from core.errors import JsonObject, MeahError

APPROVAL_ID: JsonObject = {
    "type": "string",
    "pattern": "^apr_[0-9a-f]{20}$",
    "description": "From a pending_approval answer or list_pending.",
}
NOTE: JsonObject = {"type": "string", "minLength": 1, "maxLength": 2000, "description": "Reaches the agent."}
MAX_WAIT_MS = 50_000

STATUS = {
    "type": "object",
    "properties": {
        "approvalId": APPROVAL_ID,
        "waitMs": {
            "type": "integer",
            "minimum": 0,
            "maximum": MAX_WAIT_MS,
            "default": 0,
            "description": "Return at the first change, at the latest then.",
        },
        "offset": {"type": "integer", "minimum": 0, "default": 0},
        "limit": {"type": "integer", "minimum": 1, "maximum": 40_000, "default": 40_000},
    },
    "required": ["approvalId"],
    "additionalProperties": False,
}
LIST = {
    "type": "object",
    "properties": {
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        "cursor": {"type": "string", "maxLength": 100, "description": "nextCursor of the page before."},
    },
    "additionalProperties": False,
}
DECIDE = {
    "type": "object",
    "properties": {"approvalId": APPROVAL_ID, "note": NOTE},
    "required": ["approvalId", "note"],
    "additionalProperties": False,
}


def parse(schema: JsonObject, arguments: JsonObject) -> JsonObject:
    """The arguments with defaults filled in. Raises MeahError E_INVALID_REQUEST naming what is wrong."""
    import jsonschema_rs  # late: not needed to list the tools

    problems = [_problem(error) for error in jsonschema_rs.validator_for(schema).iter_errors(arguments)]
    if problems:
        raise MeahError(
            "E_INVALID_REQUEST",
            f"Invalid arguments: {'; '.join(problems[:5])}.",
            hint="Correct the named fields; the tool's inputSchema says what each accepts.",
            reason="arguments",
        )
    defaults = {name: field["default"] for name, field in schema["properties"].items() if "default" in field}
    return defaults | arguments


def _problem(error: Any) -> str:
    path = ".".join(str(part) for part in error.instance_path)
    return f"{path or 'arguments'}: {error.message}"[:300]
