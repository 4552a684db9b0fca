"""Token counts as providers write them; what is missing or absurd stays unknown."""

from __future__ import annotations

from typing import Any, Final

from workers.providers.base import Usage

_INPUT: Final = ("prompt_tokens", "input_tokens")
_OUTPUT: Final = ("completion_tokens", "output_tokens")
_DETAILS: Final = (
    "completion_tokens_details", "output_tokens_details", "prompt_tokens_details", "input_tokens_details",
)  # fmt: skip
_CACHED: Final = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
_MAX_TOKENS: Final = 1_000_000_000


def usage_of(value: Any, *, has_text: bool) -> Usage | None:
    """The usage, or None where nothing of it is known. Zeros that cannot be true are unknown."""
    if not isinstance(value, dict):
        return None
    places = [value, *(value[name] for name in _DETAILS if isinstance(value.get(name), dict))]
    sent = _count(places[:1], _INPUT) or None
    said = _count(places[:1], _OUTPUT)
    if sent is None and not said:
        return None
    return Usage(
        input_tokens=sent,
        output_tokens=None if has_text and not said else said,
        reasoning_tokens=_count(places, ("reasoning_tokens",)),
        cached_input_tokens=_count(places, _CACHED),
        cost=_cost(value.get("cost")),
    )


def _count(places: list[dict[str, Any]], names: tuple[str, ...]) -> int | None:
    """The first whole number under one of the names; strings, floats and negatives are not trusted."""
    found = (place.get(name) for place in places for name in names)
    return next((number for number in found if type(number) is int and 0 <= number <= _MAX_TOKENS), None)


def _cost(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return format(value, ".10g") if 0 <= value < _MAX_TOKENS else None
