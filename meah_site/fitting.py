"""Results of downstream servers in the shape that a client's protocol version has room for, with nothing lost.

The SDK drops or refuses what a version does not know, and takes the rest of the result with it: one odd block would
cost the agent everything else. So whatever does not fit is handed on as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from core.errors import JsonObject

QUESTION: Final = "input_required"
# What a block can do without: an image with an annotation that nobody knows is still an image.
_TRIMMINGS: Final = ("annotations", "_meta")


def fitted(result: JsonObject, version: str) -> JsonObject:
    """A tool's result for a client of this protocol version: the very same where it fits, as it nearly always does."""
    whole = {"resultType": "complete"} | result
    if whole["resultType"] == QUESTION or _fits(whole, version):
        return whole
    return {"resultType": "complete", "content": list(_blocks(result, version)), **_rest(result, version)}


def _fits(result: JsonObject, version: str) -> bool:
    if version not in MODERN_PROTOCOL_VERSIONS and not isinstance(result.get("structuredContent", {}), dict):
        return False
    try:
        # What is no result of a tool passes for another kind of answer there, with all its content dropped.
        return "content" in serialize_server_result("tools/call", version, result)
    except ValidationError:
        return False


def _blocks(result: JsonObject, version: str) -> Iterator[JsonObject]:
    content = result.get("content")
    for block in content if isinstance(content, list) else [] if content is None else [content]:
        yield _block(block, version)
    for name, value in result.items():
        if name == "toolResult" or (name in ("structuredContent", "_meta") and not _field_fits(name, value, version)):
            yield _as_text(value)


def _block(block: Any, version: str) -> JsonObject:
    if not isinstance(block, dict):
        return _as_text(block)
    trimmed = {name: value for name, value in block.items() if name not in _TRIMMINGS}
    for tried in (block, trimmed):
        if _fits({"resultType": "complete", "content": [tried]}, version):
            return tried
    return _as_text(block)


def _rest(result: JsonObject, version: str) -> JsonObject:
    names = ("structuredContent", "_meta")
    rest = {name: result[name] for name in names if name in result and _field_fits(name, result[name], version)}
    return rest | ({"isError": True} if result.get("isError") else {})


def _field_fits(name: str, value: Any, version: str) -> bool:
    return _fits({"resultType": "complete", "content": [], name: value}, version)


def _as_text(value: Any) -> JsonObject:
    return {"type": "text", "text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}
