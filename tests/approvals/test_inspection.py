"""Arguments as a person looks at them: every value, typed, compared by what is there and not by what it looks like."""

from __future__ import annotations

from typing import Any

import pytest

from approvals.inspection import LONG_CHARS, differences, mixed_alphabets, result_parts, rows

VALUE = {"a": {"b": [1, True, None, "x", "", [], {}]}, "odd key": 1.5}


def test_every_value_has_its_path_and_its_type() -> None:
    found = [(row.path, row.kind, row.text) for row in rows(VALUE)]
    assert found == [
        ("a.b[0]", "number", "1"),
        ("a.b[1]", "boolean", "true"),
        ("a.b[2]", "null", "null"),
        ("a.b[3]", "text", "x"),
        ("a.b[4]", "text", ""),
        ("a.b[5]", "empty list", "[]"),
        ("a.b[6]", "empty object", "{}"),
        ('["odd key"]', "number", "1.5"),
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, True),
        (1, "1"),
        ("", None),
        ("a\u200bb", "a⟨U+200B⟩b"),
        ("paypal", "p\u0430ypal"),
        ([], {}),
    ],
)
def test_what_only_looks_the_same_differs(before: Any, after: Any) -> None:
    [found] = differences({"x": before, "same": 1}, {"x": after, "same": 1})
    assert found.path == "x"


def test_what_is_equal_as_json_does_not_differ() -> None:
    assert differences({"n": 1, "o": {"b": 1, "a": 2}}, {"o": {"a": 2, "b": 1}, "n": 1.0}) == []


def test_what_was_added_or_left_out_differs() -> None:
    found = {item.path: (item.before is None, item.after is None) for item in differences({"a": 1}, {"b": 1})}
    assert found == {"a": (False, True), "b": (True, False)}


def test_a_long_value_says_so() -> None:
    short, long = rows({"a": "x" * LONG_CHARS, "b": "x" * (LONG_CHARS + 1)})
    assert (short.is_long, long.is_long) == (False, True)


@pytest.mark.parametrize("text", ["Grüße", "naïve café", "привет", "日本語 text", "α-Strahlung", "x ≤ y"])
def test_honest_text_in_other_languages_is_not_warned_of(text: str) -> None:
    assert mixed_alphabets(text) == ""


def test_a_result_names_what_is_no_text() -> None:
    resource = {"type": "resource", "resource": {"uri": "file:///x", "mimeType": "text/plain", "text": "body"}}
    parts = result_parts({"content": [{"type": "audio", "mimeType": "audio/wav", "data": "A" * 8}, resource]})
    assert [part.label for part in parts] == ["audio audio/wav 6 bytes", "resource file:///x text/plain"]
    assert [part.text for part in parts] == ["", "body"]
    assert [part.label for part in result_parts([1])] == ["result"]
