"""JSON Schemas of strangers: compiled with a linear-time pattern engine, never fetched from anywhere. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs

from core.errors import JsonObject, MeahError
from core.text import one_line

MAX_ERRORS: Final = 5
MAX_CACHED: Final = 1_000
_DIALECTS: Final[dict[str, Any]] = {
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "https://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
}
_NEVER_KEYS: Final = frozenset({"__proto__", "prototype", "constructor"})

_compiled: dict[str, Any] = {}


class SchemaError(ValueError):
    """Why a schema can not be used, in words for the operator."""


def compile_schema(schema: Any) -> Any:
    """A validator. Raises SchemaError."""
    if not isinstance(schema, dict):
        raise SchemaError("the schema is no object")
    dialect = schema.get("$schema")
    kind: Any = jsonschema_rs.Draft202012Validator
    if dialect is not None and (kind := _DIALECTS.get(str(dialect).rstrip("#"))) is None:
        raise SchemaError(f"its dialect {one_line(str(dialect), 100)} is none of draft-07, 2019-09 and 2020-12")
    try:
        return kind(schema, pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse, validate_formats=False)
    except Exception as error:
        raise SchemaError(f"it does not compile: {one_line(str(error), 300)}") from error


def check_input_schema(schema: Any) -> None:
    """Whether arguments can be checked with it. Raises SchemaError."""
    compile_schema(schema)
    kind = schema.get("type")
    if kind is not None and kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise SchemaError("it does not describe an object, and arguments are always one")


def check_arguments(schema: JsonObject, pin: str, arguments: JsonObject) -> None:
    """Raises MeahError E_INVALID_REQUEST with the path of what does not fit; whatever else goes wrong refuses too."""
    try:
        validator = _compiled_for(pin, schema)
        errors = [_shown(error) for error, _ in zip(validator.iter_errors(arguments), range(MAX_ERRORS), strict=False)]
        errors += list(_lookalikes(schema, arguments, ""))[:MAX_ERRORS]
    except Exception as error:
        raise MeahError(
            "E_INVALID_REQUEST",
            f"The arguments could not be checked: {one_line(str(error), 200)}",
            reason="schema_failed",
        ) from error
    if errors:
        raise MeahError(
            "E_INVALID_REQUEST",
            "The arguments do not fit the tool's input schema: " + "; ".join(errors[:MAX_ERRORS]),
            hint="Correct the arguments; the tool's inputSchema in tools/list says what it takes.",
            reason="arguments",
            details={"errors": errors[:MAX_ERRORS]},
        )


def violations(schema: JsonObject, value: Any, *, noun: str) -> list[str]:
    """What of a value does not fit, with its path; `noun` names the value as a whole. Raises SchemaError."""
    errors = zip(compile_schema(schema).iter_errors(value), range(MAX_ERRORS), strict=False)
    return [_shown(error, noun) for error, _ in errors]


def _compiled_for(pin: str, schema: JsonObject) -> Any:
    """The validator of a pinned schema; a pin stands for one schema for good."""
    found = _compiled.get(pin)
    if found is None:
        if len(_compiled) >= MAX_CACHED:
            _compiled.clear()
        found = _compiled[pin] = compile_schema(schema)
    return found


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is outside of the schema, and nothing is fetched")


def _shown(error: jsonschema_rs.ValidationError, noun: str = "arguments") -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path).lstrip(".")
    return one_line(f"{where or noun}: {error.message}", 300)


def _lookalikes(schema: Any, value: Any, path: str) -> Iterator[str]:
    """Keys that the schema does not declare, but that a careless server may take for one that it does."""
    if isinstance(value, list) and isinstance(schema, dict):
        for index, item in enumerate(value):
            yield from _lookalikes(schema.get("items"), item, f"{path}[{index}]")
    if not isinstance(value, dict) or not isinstance(schema, dict):
        return
    declared = schema.get("properties")
    declared = declared if isinstance(declared, dict) else {}
    folded = {_folded(name): name for name in declared}
    for key, item in value.items():
        here = f"{path}.{key}".lstrip(".")
        if key in declared:
            yield from _lookalikes(declared[key], item, here)
        elif key in _NEVER_KEYS:
            yield f"{here}: no key of that name is passed on"
        elif (meant := folded.get(_folded(key))) is not None:
            yield one_line(f"{here}: not a key of this tool; {meant!r} is", 300)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
