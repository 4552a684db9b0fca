"""Conditions on arguments, in three values. Pure.

A condition is true, false or unknown. Unknown means that the tool's schema (or the call) has the path, but what stands
there can not be compared: it is absent, or of another type. Strict rules match on unknown, `allow` rules do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import re2

from core.errors import JsonObject, MeahError


class Truth(Enum):
    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


PRESENCE: Final = frozenset({"exists", "absent"})
ORDERED: Final = frozenset({"lt", "lte", "gt", "gte"})
OPERATORS: Final = frozenset({"eq", "ne", "in", "not_in", "matches", "contains", "starts_with"} | PRESENCE | ORDERED)
_SIGNS: Final = {"eq": "=", "ne": "≠", "lt": "<", "lte": "≤", "gt": ">", "gte": "≥"}
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\*|\d+)\]")
_PATH: Final = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[(?:\*|\d+)\])*")
_MISSING: Final = object()
_MAX_SCHEMA_DEPTH: Final = 32


@dataclass(frozen=True)
class Condition:
    """One comparison: the arguments' value at `path` against `value`."""

    path: str
    op: str
    value: Any = None

    def __post_init__(self) -> None:
        if problem := _problem(self):
            raise MeahError("E_CONFIG", f"The condition on {self.path!r} {problem}.", reason="bad_condition")

    def as_text(self) -> str:
        """For people and postures, such as `amount > 100`."""
        if self.op in PRESENCE:
            return f"{self.path} {self.op}"
        value = f'"{self.value}"' if isinstance(self.value, str) else self.value
        return f"{self.path} {_SIGNS.get(self.op, self.op)} {value}"

    def as_dict(self) -> JsonObject:
        return {"path": self.path, "op": self.op} | ({} if self.op in PRESENCE else {"value": self.value})


def _problem(condition: Condition) -> str:
    op, value = condition.op, condition.value
    if not isinstance(condition.path, str) or not _PATH.fullmatch(condition.path):
        return "has a path that can not be read (write amount, customer.id or items[*].price)"
    if op not in OPERATORS:
        return f"has the unknown operator {op!r} (there are {', '.join(sorted(OPERATORS))})"
    if op in ORDERED and not _is_number(value):
        return f"compares with {op}, which takes a number"
    if op in {"in", "not_in"} and not (isinstance(value, list | tuple) and value):
        return f"compares with {op}, which takes a list that is not empty"
    if op in {"matches", "starts_with"} and not isinstance(value, str):
        return f"compares with {op}, which takes text"
    if op == "matches" and _pattern(value) is None:
        return f"has a pattern that RE2 can not compile: {value!r}"
    return ""


def evaluate(condition: Condition, arguments: Mapping[str, Any], schema: Mapping[str, Any] | None) -> list[Truth]:
    """One truth for each value that the path leads to; a path with `[*]` can lead to none or to many."""
    steps = steps_of(condition.path)
    found = list(_values(arguments, steps))
    if condition.op in PRESENCE:
        present = any(value is not _MISSING for value in found)
        return [_truth(present == (condition.op == "exists"))]
    truths = [_compare(condition, value) for value in found if value is not _MISSING]
    if any(value is _MISSING for value in found):
        truths.append(Truth.UNKNOWN if declares(schema, steps) or truths else Truth.FALSE)
    return truths


def holds_strictly(truths: list[Truth]) -> bool:
    """For `deny` and `require_approval`: any element that does, or that can not be told."""
    return any(truth is not Truth.FALSE for truth in truths)


def holds_surely(truths: list[Truth]) -> bool:
    """For `allow`: every element does, and there is one."""
    return bool(truths) and all(truth is Truth.TRUE for truth in truths)


def steps_of(path: str) -> list[str]:
    """`items[*].price` as ["items", "*", "price"]; indexes are digits."""
    return [name or index for name, index in _STEP.findall(path)]


def declares(schema: Mapping[str, Any] | None, steps: list[str]) -> bool:
    """Whether the schema says anything about a value at this path."""
    return schema is not None and _declares(schema, schema, steps, 0)


def _declares(root: Mapping[str, Any], node: Any, steps: list[str], depth: int) -> bool:
    if not isinstance(node, Mapping) or depth > _MAX_SCHEMA_DEPTH:
        return False
    if not steps:
        return True
    branches = [branch for key in ("anyOf", "oneOf", "allOf") for branch in _listed(node.get(key))]
    if isinstance(reference := node.get("$ref"), str):
        branches.append(_referred(root, reference))
    head, rest = steps[0], steps[1:]
    properties = node.get("properties")
    if isinstance(properties, Mapping) and head in properties:
        return _declares(root, properties[head], rest, depth + 1) or not rest
    if (head == "*" or head.isdigit()) and "items" in node:
        return _declares(root, node["items"], rest, depth + 1) or not rest
    return any(_declares(root, branch, steps, depth + 1) for branch in branches)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _referred(root: Mapping[str, Any], reference: str) -> Any:
    """A local reference's schema; nothing is ever fetched."""
    node: Any = root
    if not reference.startswith("#"):
        return None
    for part in reference[1:].strip("/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _values(node: Any, steps: list[str]) -> Iterator[Any]:
    """Every value at the path; `_MISSING` stands for each place where it breaks off."""
    if not steps:
        yield node
        return
    head, rest = steps[0], steps[1:]
    if head == "*" and isinstance(node, list):
        for item in node:
            yield from _values(item, rest)
    elif isinstance(node, Mapping) and head in node:
        yield from _values(node[head], rest)
    elif isinstance(node, list) and head.isdigit() and int(head) < len(node):
        yield from _values(node[int(head)], rest)
    else:
        yield _MISSING


def _compare(condition: Condition, value: Any) -> Truth:
    op, wanted = condition.op, condition.value
    if op in ORDERED:
        return _truth(_ordered(op, value, wanted)) if _is_number(value) else Truth.UNKNOWN
    if op in {"eq", "ne"}:
        return _negated(_same(value, wanted), op == "ne")
    if op in {"in", "not_in"}:
        return _negated(_among(value, wanted), op == "not_in")
    if op == "contains" and isinstance(value, list):
        return _truth(any(_same(item, wanted) is Truth.TRUE for item in value))
    if not isinstance(value, str) or not isinstance(wanted, str):
        return Truth.UNKNOWN
    if op == "matches":
        pattern = _pattern(wanted)
        return _truth(pattern is not None and pattern.fullmatch(value) is not None)
    return _truth(value.startswith(wanted) if op == "starts_with" else wanted in value)


def _ordered(op: str, value: Any, wanted: Any) -> bool:
    if op in {"lt", "lte"}:
        return bool(value < wanted or (op == "lte" and value == wanted))
    return bool(value > wanted or (op == "gte" and value == wanted))


def _same(value: Any, wanted: Any) -> Truth:
    if _kind(value) != _kind(wanted):
        return Truth.UNKNOWN
    return _truth(bool(value == wanted))


def _among(value: Any, wanted: list[Any] | tuple[Any, ...]) -> Truth:
    truths = [_same(value, item) for item in wanted]
    if Truth.TRUE in truths:
        return Truth.TRUE
    return Truth.FALSE if Truth.FALSE in truths else Truth.UNKNOWN


def _kind(value: Any) -> str:
    """JSON's types: a boolean is no number, and 1 and 1.0 are the same number."""
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _is_number(value: Any) -> bool:
    return _kind(value) == "number" and value == value and abs(value) != float("inf")


def _truth(is_true: bool) -> Truth:
    return Truth.TRUE if is_true else Truth.FALSE


def _negated(truth: Truth, negate: bool) -> Truth:
    if truth is Truth.UNKNOWN or not negate:
        return truth
    return Truth.FALSE if truth is Truth.TRUE else Truth.TRUE


@lru_cache(maxsize=512)
def _pattern(text: str) -> Any:
    """A compiled RE2 pattern (linear time), or None."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error:
        return None
