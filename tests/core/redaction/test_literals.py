from __future__ import annotations

import base64
import html
import json
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from core.redaction import StreamRedactor, holds_secret_value, redact, redact_counted
from tests.core.redaction.conftest import Configure

VALUES = [
    "plainvalue",
    'quo"te\\slash/né%漢 end',
    "new\nline\tand\rmore",
    "a+b=c&d/e?f#g~h-i_j.k",
    "<tag>&'amp'",
    "😀 emoji value",
    "12345678",
]


def _base64_within(before: int) -> Callable[[str], str]:
    return lambda value: base64.b64encode(b"\xfb" * before + value.encode() + b"tail").decode()


FORMS: dict[str, Callable[[str], str]] = {
    "raw": str,
    "JSON": lambda value: json.dumps(value)[1:-1],
    "JSON, not ASCII": lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    "JSON, slashes escaped": lambda value: json.dumps(value)[1:-1].replace("/", "\\/"),
    "JSON in JSON": lambda value: json.dumps(json.dumps(value)[1:-1])[1:-1],
    "repr": lambda value: repr(value)[1:-1],
    "HTML": html.escape,
    "URL": lambda value: quote(value, safe=""),
    "URL path": quote,
    "URL form": quote_plus,
    "encodeURIComponent": lambda value: quote(value, safe="!'()*"),
    "URL, lower": lambda value: quote(value, safe="").replace("%C3%A9", "%c3%a9").replace("%2F", "%2f"),
    "hex": lambda value: value.encode().hex(),
    "HEX": lambda value: value.encode().hex().upper(),
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64, one byte before": _base64_within(1),
    "base64, two bytes before": _base64_within(2),
    "base64, three bytes before": _base64_within(3),
    "base64url": lambda value: base64.urlsafe_b64encode(b"?>" + value.encode()).decode(),
}


@pytest.mark.parametrize("form", [form for form in FORMS if form != "URL, lower"])
@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_found_in_every_form(value: str, form: str, configured: Configure) -> None:
    configured(MEAH_A_KEY=value, MEAH_OTHER_KEY="something else entirely")
    written = FORMS[form](value)
    clean, count = redact_counted(f"before {written} after")
    assert count == 1
    assert clean.startswith("before ")
    assert clean.endswith(" after")
    assert "[redacted:MEAH_A_KEY]" in clean
    left = clean.replace("[redacted:MEAH_A_KEY]", "").removeprefix("before ").removesuffix(" after")
    # Of base64 the characters that the neighbours share may stay.
    assert len(left) <= (14 if form.startswith("base64") else 0)
    assert redact(clean) == clean
    assert holds_secret_value({"x": [written]}) == "MEAH_A_KEY"


def test_lower_case_percent_escapes_are_found(configured: Configure) -> None:
    configured(MEAH_A_KEY="slash/né value")
    assert redact("x=slash%2fn%c3%a9%20value") == "x=[redacted:MEAH_A_KEY]"


def test_the_variable_names_the_replacement_even_inside_an_assignment(configured: Configure) -> None:
    configured(MEAH_A_KEY="abc123def456ghi")
    assert redact('MEAH_A_KEY="abc123def456ghi"') == 'MEAH_A_KEY="[redacted:MEAH_A_KEY]"'
    assert redact("Authorization: Bearer abc123def456ghi") == "Authorization: Bearer [redacted:MEAH_A_KEY]"


def test_the_longest_of_nested_values_wins(configured: Configure) -> None:
    configured(MEAH_SHORT="abcdefgh", MEAH_LONG="abcdefghijkl")
    assert redact("abcdefgh, abcdefghijkl") == "[redacted:MEAH_SHORT], [redacted:MEAH_LONG]"


def test_a_value_of_fewer_than_eight_characters_is_not_looked_for(configured: Configure) -> None:
    configured(MEAH_PIN="1234567")
    assert redact("pin 1234567") == "pin 1234567"
    assert holds_secret_value("1234567") is None


def test_a_value_that_stands_in_the_replacement_texts_is_not_looked_for(configured: Configure) -> None:
    configured(MEAH_WEAK="password", MEAH_OWN="MEAH_OTHER", MEAH_OTHER="abcdefghij")
    text = 'password = "hunter2hunter" abcdefghij MEAH_OTHER'
    clean = redact(text)
    assert clean == 'password = "[redacted:password]" [redacted:MEAH_OTHER] MEAH_OTHER'
    assert redact(clean) == clean


def test_the_password_of_a_url_is_looked_for_by_itself(configured: Configure) -> None:
    configured(DATABASE_URL="postgres://meah:s3cret%2Fpass@db:5432/meah")
    assert redact("auth failed for s3cret%2Fpass") == "auth failed for [redacted:DATABASE_URL]"


def test_a_changed_value_is_known_at_once(configured: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(MEAH_A_KEY="first-value")
    assert redact("first-value second-value") == "[redacted:MEAH_A_KEY] second-value"
    monkeypatch.setenv("MEAH_A_KEY", "second-value")
    assert redact("first-value second-value") == "first-value [redacted:MEAH_A_KEY]"
    monkeypatch.delenv("MEAH_A_KEY")
    assert redact("first-value second-value") == "first-value second-value"


def test_a_secret_is_found_wherever_it_hides_in_a_value(configured: Configure) -> None:
    configured(MEAH_A_KEY="hidden/value", MEAH_NUMBER="1234567890")
    assert holds_secret_value({"a": [{"b": ("x", "my hidden/value")}]}) == "MEAH_A_KEY"
    assert holds_secret_value({"a": {"hidden%2Fvalue": 1}}) == "MEAH_A_KEY"
    assert holds_secret_value([1234567890]) == "MEAH_NUMBER"
    assert holds_secret_value({"a": ["hidden", "/value", None, True, 1.5]}) is None


def test_nothing_configured_finds_nothing(configured: Configure) -> None:
    configured()
    assert redact("any text at all") == "any text at all"
    assert holds_secret_value(["any"]) is None


@pytest.mark.parametrize("value", ["aaaaaaaab", "abababababab", "aaaaaaaaaaaa"])
def test_values_that_overlap_themselves_are_found_in_a_stream(value: str, configured: Configure) -> None:
    configured(MEAH_A_KEY=value)
    for text in (value[:3] + value, value + value, value[:-1] + value, value[:-1] + " " + value + value[:4]):
        for size in range(1, 8):
            stream = StreamRedactor()
            pieces = [stream.feed(text[start : start + size]) for start in range(0, len(text), size)]
            assert "".join([*pieces, stream.flush()]) == redact(text)


def test_values_of_many_kilobytes_are_quick(configured: Configure) -> None:
    long = "\n".join("k" * 40 + str(number) for number in range(100))
    configured(**{f"MEAH_{number}": f"{long}{number}" for number in range(5)})
    redact("warm up")
    started = time.monotonic()
    assert redact(f"a {long}3 b") == "a [redacted:MEAH_3] b"
    stream = StreamRedactor()
    text = f"a {long}3 b"
    pieces = [stream.feed(text[start : start + 20]) for start in range(0, len(text), 20)]
    assert "".join([*pieces, stream.flush()]) == "a [redacted:MEAH_3] b"
    assert time.monotonic() - started < 5
