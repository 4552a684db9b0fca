"""Conditions on arguments, in three values. Pure.

A condition is true, false or unknown. Unknown means that the tool's schema (or the call) has the path, but what stands
there can not be compared: it is absent, or of another type. Strict rules match on unknown, `allow` rules do not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import re2

from core.canonical import StrictDecodeError, canonical_text, check_value
from core.errors import JsonObject, MeahError
from core.text import one_line

from .argument_paths import MISSING, declares, problem_of_path, steps_of, values_at


class Truth(Enum):
    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


PRESENCE: Final = frozenset({"exists", "absent"})
ORDERED: Final = frozenset({"lt", "lte", "gt", "gte"})
_LISTS: Final = frozenset({"in", "not_in"})
_TEXTS: Final = frozenset({"matches", "starts_with"})
_SIGNS: Final = {"eq": "=", "ne": "≠", "lt": "<", "lte": "≤", "gt": ">", "gte": "≥"}
_SHOWN_CHARS: Final = 80


@dataclass(frozen=True)
class Condition:
    """One comparison: the arguments' value at `path` against `value`. Raises MeahError E_CONFIG when it is none."""

    path: str
    op: str
    value: Any = None

    def __post_init__(self) -> None:
        if problem := _problem(self):
            raise MeahError("E_CONFIG", f"The condition on {self.path!r} {problem}.", reason="bad_condition")

    @classmethod
    def from_dict(cls, data: Any) -> Condition:
        """From a row or a file: an object with path, op and (but for exists and absent) value."""
        if not isinstance(data, Mapping) or not {"path", "op"} <= data.keys() <= {"path", "op", "value"}:
            raise _bad("A condition is an object with path, op and value, and nothing else.")
        if "value" not in data and data["op"] not in tuple(PRESENCE):
            raise _bad(f"The condition on {data['path']!r} has no value to compare with.")
        return cls(data["path"], data["op"], data.get("value"))

    def as_text(self) -> str:
        """For people and postures, such as `amount > 100`."""
        if self.op in PRESENCE:
            return f"{self.path} {self.op}"
        value = one_line(json.dumps(self.value, ensure_ascii=False), _SHOWN_CHARS)
        return f"{self.path} {_SIGNS.get(self.op, self.op)} {value}"

    def as_dict(self) -> JsonObject:
        return {"path": self.path, "op": self.op} | ({} if self.op in PRESENCE else {"value": self.value})


def _bad(message: str) -> MeahError:
    return MeahError("E_CONFIG", message, reason="bad_condition")


def _problem(condition: Condition) -> str:
    op, value = condition.op, condition.value
    if problem := problem_of_path(condition.path):
        return f"has a path that can not be read: {problem}"
    if op not in OPERATORS:
        return f"has the unknown operator {op!r} (there are {', '.join(OPERATORS)})"
    if op in PRESENCE:
        return f"asks whether it {op}; that takes no value" if value is not None else ""
    if op in ORDERED and not _is_number(value):
        return f"compares with {op}, which takes a number"
    if op in _LISTS and not (isinstance(value, list) and value):
        return f"compares with {op}, which takes a list that is not empty"
    if op in _TEXTS and not isinstance(value, str):
        return f"compares with {op}, which takes text"
    if op == "matches" and _pattern(value) is None:
        return f"has a pattern that RE2 can not compile: {value!r}"
    return _problem_of_value(value)


def _problem_of_value(value: Any) -> str:
    try:
        check_value(value)
    except StrictDecodeError as error:
        return f"compares with what no argument can be: {error}"
    return ""


def evaluate(condition: Condition, arguments: Mapping[str, Any], schema: Mapping[str, Any] | None) -> list[Truth]:
    """One truth for each value that the path leads to; a path with `[*]` can lead to none or to many."""
    steps = steps_of(condition.path)
    found = list(values_at(arguments, steps))
    if condition.op in PRESENCE:
        return _presences(found, wants_absent=condition.op == "absent")
    compare = _COMPARISONS[condition.op]
    truths = [compare(value, condition.value) for value in found if value is not MISSING]
    if len(truths) < len(found):
        truths.append(Truth.UNKNOWN if truths or declares(schema, steps) else Truth.FALSE)
    return truths


def holds_strictly(truths: list[Truth]) -> bool:
    """For `deny` and `require_approval`: any element that does, or that can not be told."""
    return any(truth is not Truth.FALSE for truth in truths)


def holds_surely(truths: list[Truth]) -> bool:
    """For `allow`: every element does, and there is one."""
    return bool(truths) and all(truth is Truth.TRUE for truth in truths)


def _presences(found: list[Any], *, wants_absent: bool) -> list[Truth]:
    if not found and wants_absent:
        # An empty list has no such value (a strict rule matches), and no element that lacks it (`allow` does not).
        return [Truth.UNKNOWN]
    return [_truth((value is MISSING) == wants_absent) for value in found]


# -- comparing one value --------------------------------------------------------------------------------------------


def equal(value: Any, other: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are, 1 and true or "1" are not, at any depth."""
    if _kind(value) != _kind(other):
        return False
    if isinstance(value, list | dict):
        return canonical_text(value) == canonical_text(other)
    return bool(value == other)


def _eq(value: Any, wanted: Any) -> Truth:
    # Whether something is null can be told of everything; else only like can be compared with like.
    if wanted is not None and _kind(value) != _kind(wanted):
        return Truth.UNKNOWN
    return _truth(equal(value, wanted))


def _in(value: Any, wanted: list[Any]) -> Truth:
    """A list of several types says that each of them is welcome."""
    if any(equal(value, item) for item in wanted):
        return Truth.TRUE
    kinds = {_kind(item) for item in wanted}
    return Truth.FALSE if _kind(value) in kinds or kinds == {"null"} else Truth.UNKNOWN


def _matches(value: Any, wanted: str) -> Truth:
    if not isinstance(value, str):
        return Truth.UNKNOWN
    if _pattern(wanted).fullmatch(value):
        return Truth.TRUE
    # A line break must not lead past `rm .*`, and must not come in by an allowed `ls .*`.
    if "\n" in value and _pattern(wanted, dot_takes_line_breaks=True).fullmatch(value):
        return Truth.UNKNOWN
    return Truth.FALSE


def _contains(value: Any, wanted: Any) -> Truth:
    if isinstance(value, list):
        truths = {_eq(item, wanted) for item in value}
        return next((truth for truth in (Truth.TRUE, Truth.UNKNOWN) if truth in truths), Truth.FALSE)
    return _text(value, wanted, lambda text, part: part in text)


def _starts_with(value: Any, wanted: Any) -> Truth:
    return _text(value, wanted, str.startswith)


def _text(value: Any, wanted: Any, holds: Callable[[str, str], bool]) -> Truth:
    if not isinstance(value, str) or not isinstance(wanted, str):
        return Truth.UNKNOWN
    return _truth(holds(value, wanted))


def _ordered(holds: Callable[[float, float], bool]) -> Callable[[Any, Any], Truth]:
    return lambda value, wanted: _truth(holds(value, wanted)) if _is_number(value) else Truth.UNKNOWN


def _not(compare: Callable[[Any, Any], Truth]) -> Callable[[Any, Any], Truth]:
    opposite = {Truth.TRUE: Truth.FALSE, Truth.FALSE: Truth.TRUE, Truth.UNKNOWN: Truth.UNKNOWN}
    return lambda value, wanted: opposite[compare(value, wanted)]


_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Truth]]] = {
    "eq": _eq,
    "ne": _not(_eq),
    "in": _in,
    "not_in": _not(_in),
    "lt": _ordered(lambda value, wanted: value < wanted),
    "lte": _ordered(lambda value, wanted: value <= wanted),
    "gt": _ordered(lambda value, wanted: value > wanted),
    "gte": _ordered(lambda value, wanted: value >= wanted),
    "matches": _matches,
    "contains": _contains,
    "starts_with": _starts_with,
}
OPERATORS: Final = (*_COMPARISONS, *sorted(PRESENCE, reverse=True))


def _kind(value: Any) -> str:
    """JSON's types: a boolean is no number, and neither is what is not finite."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float) and not math.isfinite(value):
        return "not finite"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _is_number(value: Any) -> bool:
    return _kind(value) == "number"


def _truth(is_true: bool) -> Truth:
    return Truth.TRUE if is_true else Truth.FALSE


@lru_cache(maxsize=1024)
def _pattern(text: str, *, dot_takes_line_breaks: bool = False) -> Any:
    """A compiled RE2 pattern (linear time), or None."""
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = dot_takes_line_breaks
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeEncodeError):
        return None
