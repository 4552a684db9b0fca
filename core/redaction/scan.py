"""Scanning for layer 2, in linear time: one small RE2 pattern finds where credentials may start, heads decide there.

Redacting twice must change nothing, and a stream must give the same as the whole text. So, of every rule:

* its head sees at most `reach_bytes` from where it starts, and looks behind by at most `CONTEXT_BYTES`;
* nothing is asserted about what follows a match, and a tail takes in letters, digits and underscores at least: so
  nothing can start right behind a match that could not start behind a replacement text;
* its head matches no replacement text, or its check refuses what holds one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NamedTuple

from core.redaction.context import CONTEXT_RULES
from core.redaction.linear import linear
from core.redaction.rules import PREFIX_RULES, Rule

CONTEXT_BYTES: Final = 8
RULES: Final = (*PREFIX_RULES, *CONTEXT_RULES)
_LONGEST_START_BYTES: Final = 64


class Found(NamedTuple):
    """One match: where it starts and ends, the spans in it to be replaced, and its rule."""

    start: int
    end: int
    spans: tuple[tuple[int, int], ...]
    rule: Rule


def _any_of(patterns: Iterable[str]) -> Any:
    return linear("|".join(f"(?:{pattern})" for pattern in dict.fromkeys(patterns)))


class _Slot(NamedTuple):
    """A rule's place in the pattern of its tier: the numbers of its own groups."""

    rule: Rule
    groups: range

    def spans(self, match: re.Match[bytes]) -> list[tuple[int, int]]:
        return [match.span(group) for group in self.groups if match.start(group) >= 0]

    def holds(self, match: re.Match[bytes]) -> bool:
        if self.rule.check is None:
            return True
        start, end = self.spans(match)[0]
        return self.rule.check(match.string[start:end])


class _Heads:
    """The heads of the rules that begin with one byte, put together."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)
        self._pattern = re.compile("|".join(f"(?P<r{i}>{rule.head})" for i, rule in enumerate(self._rules)).encode())
        outer = [*self._pattern.groupindex.values(), self._pattern.groups + 1]
        self._slots = {
            first: _Slot(rule, range(first + 1, following))
            for rule, first, following in zip(self._rules, outer, outer[1:], strict=False)
        }

    def match(self, data: bytes, start: int, end: int) -> tuple[re.Match[bytes], _Slot] | None:
        match = self._pattern.match(data, start, end)
        if match is None or match.lastindex is None:
            return None
        # The group that was closed last is the one around the head.
        slot = self._slots[match.lastindex]
        return (match, slot) if slot.holds(match) else None


class _Tier:
    """The rules of one reach."""

    def __init__(self, reach_bytes: int) -> None:
        self.reach_bytes = reach_bytes
        self._rules = [rule for rule in RULES if rule.reach_bytes == reach_bytes]
        self._heads: dict[int, _Heads | None] = {}
        self.open = _any_of(rule.open for rule in self._rules)

    def match(self, data: bytes, start: int) -> tuple[re.Match[bytes], _Slot] | None:
        """What begins right there, if anything does."""
        first = data[start]
        if first not in self._heads:
            # Made when first needed: compiling all of them takes longer than most processes ever need them for.
            rules = [rule for rule in self._rules if chr(first).lower() in rule.first]
            self._heads[first] = _Heads(rules) if rules else None
        heads = self._heads[first]
        return heads.match(data, start, start + self.reach_bytes) if heads is not None else None


_STARTS: Final = _any_of(rule.start for rule in RULES)
_LAST_RUN: Final = linear(r"[\w:/.%\\+-]*\z")
_TIERS: Final = tuple(_Tier(reach) for reach in sorted({rule.reach_bytes for rule in RULES}))


def search(data: bytes, start: int, limit: int | None = None) -> Found | None:
    """The next match from there on that starts before the limit; one without spans is to be passed over."""
    limit = len(data) if limit is None else limit
    while (hit := _STARTS.search(data, start)) is not None:
        first: int = hit.start()
        if first >= limit:
            break
        found = _head_at(data, first)
        if found is not None:
            return _to_its_end(data, *found)
        start = first + 1
    return None


def open_from(data: bytes, start: int) -> int:
    """From where on the end of the data may hold a credential that is not all there yet."""
    hold = int(_LAST_RUN.search(data, max(start, len(data) - _LONGEST_START_BYTES)).start())
    for tier in _TIERS:
        hit = tier.open.search(data, max(start, len(data) - tier.reach_bytes))
        if hit is not None:
            hold = min(hold, hit.start())
    return hold


@cache
def tail_of(rule: Rule) -> Any:
    """The pattern of what goes on behind a rule's head."""
    return linear(rule.tail)


def _head_at(data: bytes, start: int) -> tuple[re.Match[bytes], _Slot] | None:
    for tier in _TIERS:
        found = tier.match(data, start)
        if found is not None:
            return found
    return None


def _to_its_end(data: bytes, match: re.Match[bytes], slot: _Slot) -> Found:
    if not slot.rule.name:
        return Found(match.start(), match.end(), (), slot.rule)
    spans = slot.spans(match) or [match.span()]
    if len(spans) > 1 and _STARTS.search(data, spans[0][1], spans[1][0]) is not None:
        # Something else begins between the two: it gets its turn.
        spans = spans[:1]
        return Found(match.start(), spans[0][1], tuple(spans), slot.rule)
    end = int(tail_of(slot.rule).match(data, match.end()).end())
    last_start, last_end = spans[-1]
    if last_end == match.end():
        spans[-1] = (last_start, end)
    return Found(match.start(), end, tuple(spans), slot.rule)
