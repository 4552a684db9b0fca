"""How long a server asks to wait, in all the forms that servers use, and how long we wait unasked."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

FLOOR_S: Final = 0.05
CAP_S: Final = 120.0
_NUMBER: Final = re.compile(r"\d{1,15}(\.\d{1,9})?\Z", re.ASCII)
_DURATION: Final = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|[dhms]))+\Z", re.ASCII)
_DURATION_PART: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|[dhms])")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_IN_TEXT: Final = re.compile(
    r"(?:try again|retry|retry[ _-]?after|wait|available|reset)\D{0,20}?"
    r"(\d{1,9}(?:\.\d{1,9})?)\s*(milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h)(?![a-z])"
    r"((?:\d{1,9}(?:\.\d{1,9})?(?:ms|[hms]))*)",
    re.IGNORECASE | re.ASCII,
)
_EPOCH_S: Final = 1_000_000_000
_EPOCH_MS: Final = 1_000_000_000_000
_RESET_PAIRS: Final = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
)


def header_delay_s(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """The wait that the headers ask for, in seconds, or None when they ask for nothing that makes sense.

    `headers` has lower-case names (httpx.Headers looks names up in any case).
    """
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        if (milliseconds := _positive(headers.get(name, ""))) is not None:
            return milliseconds / 1000
    now = now or _date(headers.get("date", "")) or datetime.now(UTC)
    asked = _retry_after_s(headers.get("retry-after", "").strip(), now)
    return asked if asked is not None else _reset_delay_s(headers, now)


def text_delay_s(text: str) -> float | None:
    """The wait in a sentence such as `Please try again in 1m2.5s` or `retry after 37 seconds`."""
    found = _IN_TEXT.search(text)
    if not found:
        return None
    unit = "ms" if found[2].lower() in ("ms", "millisecond", "milliseconds") else found[2].lower()[0]
    return float(found[1]) * _UNIT_S[unit] + (duration_s(found[3]) or 0.0)


def duration_s(text: str) -> float | None:
    """`58s`, `120ms`, `1m2.5s`, `6m0s` in seconds; None for anything else."""
    text = text.strip().lower()
    if not _DURATION.match(text):
        return None
    return sum(float(amount) * _UNIT_S[unit] for amount, unit in _DURATION_PART.findall(text))


def longest(*delays: float | None) -> float | None:
    return max((delay for delay in delays if delay is not None), default=None)


def backoff_s(*, attempt: int, base_ms: int, cool_down: int, room_s: float) -> float:
    """The wait before retry number `attempt` (from 1): full jitter, within `room_s` where that is possible.

    Where a short wait is known not to help (`cool_down` over 1), the base times it is the least.
    """
    step = base_ms / 1000 * cool_down
    least = max(FLOOR_S, step) if cool_down > 1 else FLOOR_S
    most = min(least + step * 2 ** (attempt - 1), CAP_S, room_s)
    return random.uniform(least, max(least, most))  # noqa: S311 - jitter is no secret


def _retry_after_s(text: str, now: datetime) -> float | None:
    asked = _positive(text)
    if asked is None:
        asked = duration_s(text)
    if asked is None and (moment := _date(text)):
        return max(0.0, (moment - now).total_seconds())
    return asked


def _reset_delay_s(headers: Mapping[str, str], now: datetime) -> float | None:
    spent = (reset for left, reset in _RESET_PAIRS if headers.get(left, "").strip() == "0")
    return longest(*(reset_s(headers.get(name, ""), now) for name in spent))


def reset_s(text: str, now: datetime) -> float | None:
    """A rate limit's reset: a duration, seconds, or a moment as seconds or milliseconds since 1970."""
    number = _positive(text)
    if number is None:
        return duration_s(text)
    if number >= _EPOCH_S:
        moment = number / 1000 if number >= _EPOCH_MS else number
        return max(0.0, moment - now.timestamp())
    return number


def _positive(text: str) -> float | None:
    """A plain number over 0. Signs, nan, inf and exponents are refused: float() would sleep for ever on some."""
    text = text.strip()
    return float(text) or None if _NUMBER.match(text) else None


def _date(text: str) -> datetime | None:
    """An HTTP date; ISO dates and prose are none."""
    if not re.match(r"[A-Za-z]{3},? ", text):
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
