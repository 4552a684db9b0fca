"""Waits in every form that servers use, and those nobody asked for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.providers.delays import (
    CAP_S,
    FLOOR_S,
    backoff_s,
    duration_s,
    header_delay_s,
    longest,
    reset_s,
    text_delay_s,
)

NOW = datetime(2026, 10, 21, 7, 28, tzinfo=UTC)
EPOCH = int(NOW.timestamp())


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"retry-after-ms": "850"}, 0.85),
        ({"x-ms-retry-after-ms": "850"}, 0.85),
        ({"retry-after-ms": "850", "retry-after": "20"}, 0.85),
        ({"retry-after-ms": "soon", "retry-after": "20"}, 20.0),
        ({"retry-after": "0.493"}, 0.493),
        ({"retry-after": " 20 "}, 20.0),
        ({"retry-after": "20s"}, 20.0),
        ({"retry-after": "1m30s"}, 90.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:29:30 GMT"}, 90.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:29:30 GMT", "date": "Wed, 21 Oct 2026 07:29:00 GMT"}, 90.0),
        ({"retry-after": "Wed, 21 Oct 2020 07:29:30 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:29:30"}, 90.0),
        *(({"retry-after": text}, None) for text in ("-5", "nan", "inf", "1e400", "", "soon", "0", "-1", "+5", "1_0")),
        *(({"retry-after": text}, None) for text in ("2026-10-21T07:29:30Z", "Wed, 99 Foo 2026", "٣", "9" * 5_000)),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "120ms"}, 0.12),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "7.66s"}, 7.66),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "7.66s"}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str((EPOCH + 9) * 1000)}, 9.0),
        ({}, None),
    ],
)
def test_a_header_says_how_long(headers: dict[str, str], wanted: float | None) -> None:
    got = header_delay_s(headers, now=NOW)
    assert got == (None if wanted is None else pytest.approx(wanted))


def test_a_date_counts_from_the_servers_own_clock() -> None:
    headers = {"retry-after": "Wed, 21 Oct 2015 07:29:30 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}
    assert header_delay_s(headers) == pytest.approx(90.0)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("120ms", 0.12),
        ("6m0s", 360.0),
        ("2m59.56s", 179.56),
        ("7.66s", 7.66),
        ("1d2h", 93_600.0),
        ("soon", None),
        ("", None),
    ],
)
def test_a_duration_is_read(text: str, wanted: float | None) -> None:
    assert duration_s(text) == (None if wanted is None else pytest.approx(wanted))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("5", 5.0),
        (str(EPOCH + 60), 60.0),
        (str((EPOCH + 60) * 1000), 60.0),
        (str(EPOCH - 60), 0.0),
        ("0", None),
        ("-1", None),
    ],
)
def test_a_reset_is_a_wait_or_a_moment(text: str, wanted: float | None) -> None:
    assert reset_s(text, NOW) == (None if wanted is None else pytest.approx(wanted))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Please try again in 5.289s. Visit https://x", 5.289),
        ("Please try again in 1m2.5s.", 62.5),
        ("Please try again in 480ms", 0.48),
        ("Please retry after 37 seconds.", 37.0),
        ("Please retry in 58.1s", 58.1),
        ("Please wait 2 minutes and call again", 120.0),
        ("You have 3 seconds of fame", None),
        ("Your limit will reset at 2026-12-01 03:04:05", None),
        ("Limit 100000 tokens, used 99000, try again later", None),
    ],
)
def test_a_sentence_says_how_long(text: str, wanted: float | None) -> None:
    assert text_delay_s(text) == (None if wanted is None else pytest.approx(wanted))


def test_the_longest_known_wait_counts() -> None:
    assert longest(None, 3.0, 5.0) == 5.0
    assert longest(None, None) is None


@given(attempt=st.integers(1, 20), base_ms=st.integers(0, 60_000), room_s=st.floats(0.05, 600))
def test_backoff_stays_between_its_floor_and_the_room(attempt: int, base_ms: int, room_s: float) -> None:
    pause = backoff_s(attempt=attempt, base_ms=base_ms, cool_down=1, room_s=room_s)
    assert FLOOR_S <= pause <= max(FLOOR_S, min(CAP_S, room_s))


def test_backoff_grows_and_is_jittered() -> None:
    first = [backoff_s(attempt=1, base_ms=500, cool_down=1, room_s=600) for _ in range(200)]
    third = [backoff_s(attempt=3, base_ms=500, cool_down=1, room_s=600) for _ in range(200)]
    assert len(set(first)) > 100
    assert max(first) <= 0.55
    assert 0.6 < max(third) <= 2.05
    assert min(third) < 0.6


def test_a_cool_down_waits_at_least_its_multiple() -> None:
    pauses = [backoff_s(attempt=1, base_ms=500, cool_down=60, room_s=600) for _ in range(50)]
    assert min(pauses) >= 30
    assert max(pauses) <= 60


@given(st.text(max_size=60))
def test_no_text_breaks_the_readers(text: str) -> None:
    for value in (duration_s(text), text_delay_s(text), reset_s(text, NOW), header_delay_s({"retry-after": text})):
        assert value is None or 0 <= value < 1e18
