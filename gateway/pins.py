"""What a tool's definition is, whether it may be offered, and what pins it. Pure."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import mcp_types
from pydantic import ValidationError

from core.canonical import StrictDecodeError, canonical_text, digest
from core.errors import JsonObject
from core.text import has_hidden, one_line, visible

from .jsonschemas import SchemaError, check_input_schema, compile_schema

TAG: Final = "meah/toolpin/v1"
CONTRACT_TAG: Final = "meah/toolcontract/v1"
NAME_FITS: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
MAX_NAME_CHARS: Final = 256
MAX_DEFINITION_CHARS: Final = 500_000
# Keys of a JSON Schema whose value is prose; as names of properties they are none.
_PROSE: Final = frozenset({"title", "description", "$comment", "examples"})
_NAMED_SCHEMAS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
# How emoji are written: one selector after a symbol. Elsewhere, or in a row, selectors can carry text of their own.
_EMOJI_STYLE: Final = re.compile("([\u203c-\u3299\U0001f000-\U0001faff#*0-9])[\ufe0e\ufe0f](?![\ufe00-\ufe0f])")

READ: Final = "read"
WRITE: Final = "write"
DESTRUCTIVE: Final = "destructive"
STRICTNESS: Final = (READ, WRITE, DESTRUCTIVE)


@dataclass(frozen=True)
class Listed:
    """A tool as a server listed it: `text` is its canonical definition, `problem` why it can not be offered."""

    name: str
    text: str
    problem: str = ""

    @property
    def definition(self) -> JsonObject:
        found: JsonObject = json.loads(self.text) if self.text else {}
        return found


def read_listing(listing: Iterable[Any]) -> list[Listed]:
    """Each tool by itself: what is wrong with one touches no other, except where two can not be told apart."""
    found = [_read(index, item) for index, item in enumerate(listing)]
    counts = Counter(tool.name.casefold() for tool in found)
    return [_unless_alone(tool, counts) for tool in found]


def pin_of(text: str, identity: JsonObject) -> str:
    """The pin of a whole definition, bound to the server's command line or URL."""
    return digest(TAG, _joined(text, identity))


def contract_of(text: str, identity: JsonObject) -> str:
    """The pin of what a caller relies on: names, schemas without their prose, annotations."""
    definition = json.loads(text)
    contract = {
        "name": definition.get("name"),
        "inputSchema": _without_prose(definition.get("inputSchema")),
        "outputSchema": _without_prose(definition.get("outputSchema")),
        "annotations": {
            key: value for key, value in (definition.get("annotations") or {}).items() if key not in _PROSE
        },
    }
    return digest(CONTRACT_TAG, _joined(_canonical(contract), identity))


def proposed_class(definition: JsonObject) -> str:
    """What the server's hints suggest; without hints a write."""
    hints = definition.get("annotations") or {}
    if hints.get("destructiveHint") is True:
        return DESTRUCTIVE
    return READ if hints.get("readOnlyHint") is True else WRITE


def stricter(one: str, other: str) -> str:
    return max(one, other, key=STRICTNESS.index)


def difference(before: str, after: str) -> list[str]:
    """Two definitions as lines of a diff, hidden characters visible; an empty text stands for none."""
    old, new = (list(_lines(json.loads(text))) if text else [] for text in (before, after))
    lines = difflib.unified_diff(old, new, lineterm="", n=2)
    return [line for line in lines if not line.startswith(("---", "+++"))]


def _read(index: int, item: Any) -> Listed:
    name = item.get("name") if isinstance(item, dict) else None
    if not isinstance(name, str) or not name:
        return Listed(f"(no name) {index + 1}", "", "it has no name")
    shown = name if len(name) <= MAX_NAME_CHARS else f"{name[:200]}…{digest(TAG, name.encode('utf-8', 'replace'))[:16]}"
    shown = shown.encode("utf-8", "replace").decode().replace("\0", "�")
    try:
        parsed = mcp_types.Tool.model_validate(item, by_name=False)
        text = _canonical(parsed.model_dump(by_alias=True, mode="json", exclude_none=True))
    except ValidationError as error:
        return Listed(shown, "", one_line(f"it is no tool of the protocol: {_first(error)}", 400))
    except (StrictDecodeError, ValueError, RecursionError) as error:
        return Listed(shown, "", one_line(f"its definition is no strict JSON: {error}", 400))
    return Listed(shown, text, _problem(name, text))


def _problem(name: str, text: str) -> str:
    if not NAME_FITS.match(name):
        return "its name does not fit: 1 to 64 letters, digits, _ - and ."
    if len(text) > MAX_DEFINITION_CHARS:
        return f"its definition has {len(text):,} characters; at most {MAX_DEFINITION_CHARS:,} are taken"
    definition = json.loads(text)
    if hidden := _hidden_in(definition):
        return f"its definition hides characters: {one_line(hidden, 200)}"
    try:
        check_input_schema(definition.get("inputSchema"))
    except SchemaError as error:
        return one_line(f"its input schema can not be used: {error}", 400)
    try:
        if (output := definition.get("outputSchema")) is not None:
            compile_schema(output)
    except SchemaError as error:
        return one_line(f"its output schema can not be used: {error}", 400)
    return ""


def _unless_alone(tool: Listed, counts: Mapping[str, int]) -> Listed:
    if counts[tool.name.casefold()] == 1 or tool.problem:
        return tool
    return Listed(tool.name, tool.text, "another tool of this server has the same name, but for upper and lower case")


def _hidden_in(value: Any) -> str:
    """The first text in it that holds something that can not be seen, keys included."""
    if isinstance(value, str):
        return value if has_hidden(_EMOJI_STYLE.sub(r"\1", value.replace("\r", ""))) else ""
    if isinstance(value, dict):
        return next((found for pair in value.items() for part in pair if (found := _hidden_in(part))), "")
    if isinstance(value, list):
        return next((found for item in value if (found := _hidden_in(item))), "")
    return ""


def _joined(text: str, identity: JsonObject) -> bytes:
    return _canonical({"server": identity}).encode() + b"\0" + text.encode()


def _canonical(value: Any) -> str:
    """RFC 8785, but for integers beyond 2^53: schemas of 64-bit numbers have those, and they need no other reader."""
    try:
        return canonical_text(value)
    except StrictDecodeError as error:
        if error.reason != "big_integer":
            raise
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _without_prose(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_prose(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _each_without_prose(value) if key in _NAMED_SCHEMAS else _without_prose(value)
        for key, value in schema.items()
        if key not in _PROSE
    }


def _each_without_prose(schemas: Any) -> Any:
    if not isinstance(schemas, dict):
        return schemas
    return {name: _without_prose(schema) for name, schema in schemas.items()}


def _lines(value: Any, path: str = "") -> Iterator[str]:
    """A definition as one line per leaf, in a fixed order: what differs between two of them is easy to see."""
    if isinstance(value, dict) and value:
        for key in sorted(value):
            yield from _lines(value[key], f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _lines(item, f"{path}[{index}]")
    elif isinstance(value, str):
        for number, line in enumerate(value.split("\n")):
            yield visible(f"{path}{' ' if number else ': '}{'| ' if number else ''}{line}")
    else:
        yield visible(f"{path}: {json.dumps(value)}")


def _first(error: ValidationError) -> str:
    found = error.errors()[0]
    return f"{'.'.join(str(part) for part in found['loc'])}: {found['msg']}"
