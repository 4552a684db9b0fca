"""`${input.a.b}` and `${steps.ID.structuredContent.x}` in the values of a Method's manifest. Pure.

A string that is one reference keeps the JSON type of what it refers to; inside longer text it becomes text. Keys are
never templated, and nothing but plain look-ups happens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from core.text import one_line

INPUT: Final = "input"
STEPS: Final = "steps"
RESULT_KEYS: Final = frozenset({"structuredContent", "content", "isError"})
NEVER: Final = frozenset({"__proto__", "prototype", "constructor"})

_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_OPENING: Final = "${"
_MISSING: Final = object()


class ReferenceSyntaxError(ValueError):
    """Why something that begins like a reference is none, in words for the author."""


class UnresolvedReferenceError(ValueError):
    """What is referred to is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(f"${{{path}}} refers to nothing")
        self.path = path


@dataclass(frozen=True)
class Reference:
    """Its parts, the first of which is `input` or `steps`."""

    parts: tuple[str, ...]

    @property
    def path(self) -> str:
        return ".".join(self.parts)

    @property
    def step(self) -> str:
        """The id of the step that it needs; empty for the input."""
        return self.parts[1] if self.parts[0] == STEPS else ""


def parse(path: str) -> Reference:
    """Raises ReferenceSyntaxError."""
    reference = Reference(parse_path(path))
    if reference.parts[0] == STEPS:
        if len(reference.parts) < 3 or reference.parts[2] not in RESULT_KEYS:
            raise ReferenceSyntaxError(
                f"${{{one_line(path, 80)}}}: a step is referred to as ${{steps.ID.structuredContent…}}, "
                "${steps.ID.content…} or ${steps.ID.isError}"
            )
    elif reference.parts[0] != INPUT:
        raise ReferenceSyntaxError(f"${{{one_line(path, 80)}}}: a reference begins with input or steps")
    return reference


def parse_path(path: str) -> tuple[str, ...]:
    """The parts of a dotted path. Raises ReferenceSyntaxError."""
    parts = tuple(path.split("."))
    for part in parts:
        if not part or part != part.strip():
            raise ReferenceSyntaxError(f"{one_line(path, 80)!r} has an empty part")
        if part in NEVER:
            raise ReferenceSyntaxError(f"{one_line(path, 80)!r}: {part} is never looked up")
    return parts


def references(value: Any) -> Iterator[Reference]:
    """Every reference within a JSON value. Raises ReferenceSyntaxError."""
    if isinstance(value, str):
        yield from (parse(match[1]) for match in _REFERENCE.finditer(value))
        rest = _REFERENCE.sub("", value)
        if _OPENING in rest:
            raise ReferenceSyntaxError(f"{one_line(rest, 60)!r} has a ${{ that begins no reference")
    elif isinstance(value, list):
        for item in value:
            yield from references(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from references(item)


def resolve(value: Any, scope: dict[str, Any], *, absent_steps: frozenset[str] = frozenset()) -> Any:
    """The value with every reference replaced by what `scope` has: `input`, and `steps` by id.

    What refers to one of `absent_steps` becomes None. Raises UnresolvedReferenceError for all else that is missing.
    """
    if isinstance(value, list):
        return [resolve(item, scope, absent_steps=absent_steps) for item in value]
    if isinstance(value, dict):
        return {key: resolve(item, scope, absent_steps=absent_steps) for key, item in value.items()}
    if not isinstance(value, str) or _OPENING not in value:
        return value
    if whole := _REFERENCE.fullmatch(value):
        return _looked_up(whole[1], scope, absent_steps)
    return _REFERENCE.sub(lambda match: _as_text(_looked_up(match[1], scope, absent_steps)), value)


def look_up(value: Any, parts: tuple[str, ...]) -> Any:
    """What a path leads to. Raises UnresolvedReferenceError."""
    found = value
    for part in parts:
        found = _member(found, part)
        if found is _MISSING:
            raise UnresolvedReferenceError(".".join(parts))
    return found


def _looked_up(path: str, scope: dict[str, Any], absent_steps: frozenset[str]) -> Any:
    reference = parse(path)
    if reference.step in absent_steps:
        return None
    return look_up(scope, reference.parts)


def _member(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return value.get(part, _MISSING)
    if isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(value):
        return value[int(part)]
    return _MISSING


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
