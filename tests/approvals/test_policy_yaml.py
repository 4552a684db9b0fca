from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from approvals.policy_yaml import MAX_DEPTH, Document, YamlTextError, dumps

TRICKY = [
    *("a", "1e3", "no", "yes", "on", "NO", "010", "1:30", "2026-01-01", "0x1f", "0o7", "true", "", "~", "null", " x"),
    *("a: b", "- a", "#c", "a #b", "x\ny", "tab\tx", "café", "😀", "%a", "@a", "`a", "'q'", '"dq"', "1.", "+1", ".5"),
    *(
        "1_000",
        "=",
        "<<",
        "!a",
        "&a",
        "*a",
        "C:\\x\\u0041",
        "a\u202eb",
        "\u200b",
        "\ufeffx",
        "\x07",
        "\x85",
        "a\u2028b",
    ),
    *("long " * 60, "  - name: x", "{a}", "[a]", "?", "-", ":", "1e-7", ".inf", ".nan", "\U000e0041"),
]


def test_what_is_written_is_read_back_as_it_was() -> None:
    value = {
        "texts": TRICKY,
        "numbers": [0, 1, -1, 2**53 - 1, 1.5, 1e-7, 1e300, -0.5],
        "words": [True, False, None],
        "empty": [[], {}],
        "nested": {"a": [{"b": [[1]]}]},
        "1": "a key like a number",
    }
    assert repr(Document(dumps(value)).value) == repr(value)


def test_other_readers_of_yaml_read_it_alike() -> None:
    assert yaml.safe_load(dumps(TRICKY)) == TRICKY


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
@settings(max_examples=300, deadline=None, database=None)
def test_any_value_survives(value: Any) -> None:
    assert repr(Document(dumps({"value": value})).value) == repr({"value": value})


def test_hidden_characters_are_written_as_escapes() -> None:
    text = dumps({"reason": "safe\u202eetirw\u2069", "tag": "x\U000e0041"})
    assert text.isascii()
    assert "\\u202e" in text
    assert "\\U000E0041" in text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", 1),
        ("a: -12", -12),
        ("a: 1.5", 1.5),
        ("a: 1e3", 1000.0),
        ("a: true", True),
        ("a: yes", "yes"),
        ("a: no", "no"),
        ("a: on", "on"),
        ("a: 010", "010"),
        ("a: 0x10", "0x10"),
        ("a: 1:30", "1:30"),
        ("a: 1_000", "1_000"),
        ("a: 2026-01-01", "2026-01-01"),
        ("a: .inf", ".inf"),
        ("a: ~", None),
        ("a:", None),
        ("a: 'true'", "true"),
        ('a: "1"', "1"),
        ("a: |\n  x\n  y\n", "x\ny\n"),
        ("a: >-\n  x\n  y\n", "x y"),
        ("a: [1, {b: c}]", [1, {"b": "c"}]),
    ],
)
def test_words_and_numbers_are_read_by_the_rules_of_1_2(text: str, value: Any) -> None:
    found = Document(text).value["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: 2\na: 3", 3, "twice"),
        ("x:\n  - a: 1\n    a: 1", 3, "twice"),
        ("{a: 1, 'a': 2}", 1, "twice"),
        ("a: &x 1", 1, "anchors"),
        ("a: &x [1]\nb: 2", 1, "anchors"),
        ("a: *x", 1, "anchors"),
        ("a: !!str 1", 1, "tags"),
        ("a: !!python/object:os.system x", 1, "tags"),
        ("!x {a: 1}", 1, "tags"),
        ("a: ! x", 1, "tags"),
        ("%YAML 1.1\n---\na: 1", 1, "directives"),
        ("%TAG ! tag:x,2000:\n---\na: 1", 1, "directives"),
        ("a: 1\n---\nb: 1", 2, "one document"),
        ("? [a]\n: 1", 1, "plain text"),
        ("? {a: 1}\n: 1", 1, "plain text"),
        ("&x a: 1", 1, "plain text"),
        ("*x : 1", 1, "plain text"),
        ("a: 1\nb: [1\n", 3, "no YAML"),
        ("a: 1\n\tb: 1", 2, "no YAML"),
        ("a: 9007199254740993", 1, "integer beyond"),
        ("a: " + "9" * 5000, 1, "digits"),
        ("a: 1e999", 1, "not finite"),
        ('a: "\\ud800"', 1, "surrogate"),
        ('"\\ud800": 1', 1, "surrogate"),
        ("a: \x00", 0, "no YAML"),
        ("a: " + "[" * (MAX_DEPTH + 1), 1, "no YAML"),
        ("a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), 1, "deeper"),
    ],
)
def test_what_could_mislead_is_refused_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(YamlTextError) as caught:
        Document(text)
    assert says in caught.value.problem
    assert caught.value.line == line


def test_a_merge_key_is_a_key_like_any_other() -> None:
    assert Document("a: {b: 1}\nc:\n  <<: {d: 2}").value["c"] == {"<<": {"d": 2}}


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_text_is_nothing(text: str) -> None:
    assert Document(text).value is None


def test_every_part_knows_its_line() -> None:
    document = Document("version: 1\nrules:\n  - name: a\n    conditions:\n      - path: x\n        op: eq\n")
    assert document.line_of(("rules", 0, "conditions", 0, "op")) == 6
    assert document.line_of(("rules", 0, "conditions", 0, "value")) == 5
    assert document.line_of(("rules", 7)) == 2
    assert document.line_of(("nowhere",)) == 1
