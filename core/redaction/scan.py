"""Scanning for layer 2: the heads of all rules are one RE2 pattern, so that clean text is read once, in linear time.

Rules have to be written so that redacting twice changes nothing, and so that a stream gives the same as the whole:

* a head starts at most `LEAD_BYTES` before its `start`, and is decided by at most `reach` bytes from there;
* what follows a match cannot begin one, unless it could behind a replacement text too: tails take in at least
  letters, digits and underscores;
* nothing is asserted about what follows a match, and checks refuse values that hold a replacement text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import re2

from core.redaction.context import CONTEXT_RULES
from core.redaction.rules import PREFIX_RULES, Rule

LEAD_BYTES: Final = 8
_LONGEST_START_BYTES: Final = 64
_MAX_MEMORY_BYTES: Final = 64 * 1024 * 1024


class Found(NamedTuple):
    """One match: where it starts and ends, and the spans in it to be replaced."""

    start: int
    end: int
    rule: str
    spans: tuple[tuple[int, int], ...]


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.max_mem = _MAX_MEMORY_BYTES
    return re2.compile(pattern.encode(), options)


class _Part(NamedTuple):
    rule: Rule
    outer: int
    inner: range
    tail: Any


def _parts() -> Iterator[_Part]:
    outer = 1
    for rule in RULES:
        groups = _compiled(rule.head).groups
        yield _Part(
            rule, outer, range(outer + 1, outer + 1 + groups), _compiled(rule.tail) if rule.tail else None
        )
        outer += 1 + groups


RULES: Final = (*PREFIX_RULES, *CONTEXT_RULES)
_PARTS: Final = tuple(_parts())
_HEADS: Final = _compiled("|".join(f"({rule.head})" for rule in RULES))
_STARTS: Final = tuple(
    (reach, _compiled("|".join(f"(?:{rule.start})" for rule in RULES if rule.reach == reach)))
    for reach in sorted({rule.reach for rule in RULES})
)
_LAST_RUN: Final = _compiled(r"[\w:/.%\\-]*\z")
MAX_REACH_BYTES: Final = max(rule.reach for rule in RULES)


def search(data: bytes, start: int) -> Found | None:
    """The next credential from there."""
    while (match := _HEADS.search(data, start)) is not None:
        part = _part_of(match)
        first, end = match.span()
        if not part.rule.name:
            start = end
            continue
        groups = [group for group in part.inner if match.start(group) >= 0]
        if part.rule.check is not None and not part.rule.check(match[groups[0]]):
            start = match.start(groups[0])
            continue
        return _whole(data, part, match, groups)
    return None


def _part_of(match: Any) -> _Part:
    return next(part for part in _PARTS if match.start(part.outer) >= 0)


def _whole(data: bytes, part: _Part, match: Any, groups: list[int]) -> Found:
    first, head_end = match.span()
    end = part.tail.match(data, head_end).end() if part.tail is not None else head_end
    spans = [match.span(group) for group in groups] or [(first, head_end)]
    last_start, last_end = spans[-1]
    if last_end == head_end:
        spans[-1] = (last_start, end)
    return Found(first, end, part.rule.name, tuple(spans))


def open_from(data: bytes, start: int) -> int:
    """From where on the end of the data may hold a credential that is not all there yet."""
    hold = max(
        start, _LAST_RUN.search(data, max(start, len(data) - _LONGEST_START_BYTES)).start() - LEAD_BYTES
    )
    for reach, pattern in _STARTS:
        match = pattern.search(data, max(start, len(data) - reach - LEAD_BYTES))
        if match is not None:
            hold = min(hold, max(start, match.start() - LEAD_BYTES))
    return hold
