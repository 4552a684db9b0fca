"""Paths into arguments, such as `items[*].price`: what stands there, and whether a schema declares it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import re2


class _Special(Enum):
    MISSING = "missing"
    EVERY = "every"
    ANYTHING = "anything"


# Stands for each place where a path breaks off.
MISSING: Final = _Special.MISSING
# The step `[*]`: every element of a list.
EVERY: Final = _Special.EVERY
# A schema behind a reference that can not be followed here: it may declare anything.
_ANYTHING: Final = _Special.ANYTHING

Step = str | int | _Special
Steps = tuple[Step, ...]

_MAX_PATH_CHARS: Final = 200
_STEP: Final = re.compile(r"([^.\[\]*]+)|\[(\*|[0-9]{1,6})\]")
_PATH: Final = re.compile(r"[^.\[\]*]+(?:\.[^.\[\]*]+|\[(?:\*|[0-9]{1,6})\])*")
_FORKS: Final = ("allOf", "anyOf", "oneOf")
_BRANCHES: Final = ("if", "then", "else")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def problem_of_path(path: Any) -> str:
    """Why this is no path, or an empty string."""
    if not isinstance(path, str) or len(path) > _MAX_PATH_CHARS or not _PATH.fullmatch(path) or path != path.strip():
        return "write amount, customer.id, items[0].price or items[*].price"
    return ""


@lru_cache(maxsize=1024)
def steps_of(path: str) -> Steps:
    """`items[*].price` as ("items", EVERY, "price"); `[0]` is the number 0."""
    return tuple(name or (EVERY if index == "*" else int(index)) for name, index in _STEP.findall(path))


def values_at(node: Any, steps: Steps) -> Iterator[Any]:
    """Every value at the path, and MISSING for each place where it breaks off."""
    if not steps:
        yield node
        return
    head, rest = steps[0], steps[1:]
    parts = node if head is EVERY and isinstance(node, list) else [_part(node, head)]
    for part in parts:
        if part is MISSING:
            yield MISSING
        else:
            yield from values_at(part, rest)


def _part(node: Any, step: Step) -> Any:
    if isinstance(step, str) and isinstance(node, Mapping):
        return node.get(step, MISSING)
    if isinstance(step, int) and isinstance(node, list) and step < len(node):
        return node[step]
    return MISSING


def value_at(node: Any, path: str) -> Any:
    """The first value at the path, or MISSING."""
    return next(values_at(node, steps_of(path)), MISSING)


def declares(schema: Any, steps: Steps) -> bool:
    """Whether the schema says anything of a value at this path; what can not be told counts as said."""
    todo: list[tuple[Any, int]] = [(schema, 0)]
    seen: set[tuple[int, int]] = set()
    while todo:
        node, depth = todo.pop()
        if (id(node), depth) in seen:
            continue
        seen.add((id(node), depth))
        if node is _ANYTHING or (depth == len(steps) and (node is True or isinstance(node, Mapping))):
            return True
        if isinstance(node, Mapping):
            todo += [(branch, depth) for branch in _branches(schema, node)]
            todo += [(child, depth + 1) for child in _children(node, steps[depth])]
    return False


def _branches(root: Any, node: Mapping[str, Any]) -> Iterator[Any]:
    """Other schemas of the same value."""
    for key in _FORKS:
        yield from _listed(node.get(key))
    for key in _BRANCHES:
        yield node.get(key)
    yield from _mapped(node.get("dependentSchemas")).values()
    yield from _mapped(node.get("dependencies")).values()
    for key in _REFERENCES:
        if isinstance(reference := node.get(key), str):
            yield _referred(root, reference)


def _children(node: Mapping[str, Any], step: Step) -> Iterator[Any]:
    """The schemas of a part of the value."""
    if isinstance(step, str):
        if step in _mapped(node.get("properties")):
            yield node["properties"][step]
        for pattern, schema in _mapped(node.get("patternProperties")).items():
            if _pattern_finds(pattern, step):
                yield schema
        return
    # Before 2020-12 a list of schemas stood under `items`, and the rest under `additionalItems`.
    firsts = [*_listed(node.get("prefixItems")), *_listed(node.get("items"))]
    if isinstance(step, int) and step < len(firsts):
        yield firsts[step]
        return
    yield from firsts if step is EVERY else ()
    yield node.get("items")
    yield node.get("additionalItems")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapped(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _pattern_finds(pattern: str, name: str) -> bool:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options).search(name) is not None
    except re2.error:
        return True


def _referred(root: Any, reference: str) -> Any:
    """The schema that a pointer into the same document leads to; nothing is ever fetched."""
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return _ANYTHING
    node = root
    for part in reference[2:].split("/"):
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and re.fullmatch("[0-9]{1,6}", key) and int(key) < len(node):
            node = node[int(key)]
        else:
            return _ANYTHING
    return node
