from __future__ import annotations

import math
from typing import Any

import pytest

from approvals.conditions import OPERATORS, Condition, Truth, equal, evaluate, holds_strictly, holds_surely
from core.errors import MeahError

T, F, U = Truth.TRUE, Truth.FALSE, Truth.UNKNOWN
SCHEMA = {
    "type": "object",
    "properties": {
        "x": {},
        "items": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
    },
}


def truths(op: str, wanted: Any, arguments: dict[str, Any], *, path: str = "x", schema: Any = SCHEMA) -> list[Truth]:
    return evaluate(Condition(path, op, wanted), arguments, schema)


@pytest.mark.parametrize(
    ("op", "wanted", "true", "false", "unknown"),
    [
        ("eq", "a", ["a"], ["b", "A", "a ", "\uff41", ""], [1, True, None, [], {}, ["a"]]),
        ("eq", 1, [1, 1.0], [2, 0.5, -1], ["1", True, None, [1]]),
        ("eq", 0, [0, 0.0, -0.0], [1], [False, "", None]),
        ("eq", True, [True], [False], [1, "true", None]),
        ("eq", None, [None], [0, "", False, "null"], []),
        ("eq", [1, "a"], [[1, "a"], [1.0, "a"]], [[], [True, "a"], ["a", 1]], [1, {"0": 1}]),
        ("eq", {"a": 1}, [{"a": 1}], [{"a": True}, {}, {"a": 1, "b": 2}], [[["a", 1]], "a"]),
        ("ne", "a", ["b", ""], ["a"], [1, None, True]),
        ("ne", 1, [2, 0], [1, 1.0], ["1", True, None]),
        ("ne", None, [0, "x", False], [None], []),
        ("in", ["a", "b"], ["a", "b"], ["c", ""], [1, None, ["a"]]),
        ("in", [1, 2], [1, 2.0], [3], ["1", True]),
        ("in", [1, "a"], [1, "a"], ["b", 2], [True, None]),
        ("in", ["a", None], ["a", None], ["b"], [1, False]),
        ("in", [None], [None], [1, "a"], []),
        ("not_in", ["a", "b"], ["c"], ["a"], [1, None, True]),
        ("not_in", [1, "a"], ["b", 2], [1, "a"], [True, None]),
        ("lt", 10, [9, 9.99, -1e300], [10, 11], ["9", True, None, [9]]),
        ("lte", 10, [10, 10.0, 9], [10.01, 11], ["10", False]),
        ("gt", 100, [101, 100.01, 2**53], [100, 99], ["101", True, None, {}]),
        ("gte", 100, [100, 100.0], [99.999], ["100", True]),
        ("gt", 0, [1e-9], [0, -0.0, -1], [True]),
        ("gt", 0, [], [], [math.nan, math.inf, -math.inf]),
        ("ne", 0, [], [], [math.nan, math.inf]),
        ("not_in", [0], [], [], [math.nan, math.inf]),
        ("matches", "T-[0-9]+", ["T-1", "T-1001"], ["T-", "xT-1", "T-1x", "T-1\n", "t-1", ""], [1, None, ["T-1"]]),
        ("matches", "a|b", ["a", "b"], ["ab", "ac"], []),
        ("matches", "rm .*", ["rm -r"], ["ls"], ["rm x\n", "rm x\ny"]),
        ("matches", "(?s)rm .*", ["rm x\ny"], ["ls\nrm x"], []),
        ("contains", "b", ["abc", "b"], ["ac", "", "B"], [1, None, {"b": 1}]),
        ("contains", "b", [["b"], ["a", "b"], [1, "b"]], [[], ["a"], ["ab"]], [[1], ["a", 1], [["b"]]]),
        ("contains", 1, [[1], [1.0, "x"]], [[2], []], [[True], ["1"], "1", 1]),
        ("starts_with", "/etc", ["/etc", "/etc/passwd"], ["etc", " /etc", "/ETC"], [1, None, ["/etc"]]),
    ],
)
def test_every_operator_tells_true_false_and_unknown_apart(
    op: str, wanted: Any, true: list[Any], false: list[Any], unknown: list[Any]
) -> None:
    expected = [(value, T) for value in true] + [(value, F) for value in false] + [(value, U) for value in unknown]
    assert [(value, truths(op, wanted, {"x": value})[0]) for value, _ in expected] == expected


VALUES = {"eq": 1, "ne": 1, "in": [1], "not_in": [1], "lt": 1, "lte": 1, "gt": 1, "gte": 1}
COMPARING = {**VALUES, "matches": "a", "contains": "a", "starts_with": "a"}


def test_the_tables_here_know_every_operator() -> None:
    assert {*COMPARING, "exists", "absent"} == set(OPERATORS)


@pytest.mark.parametrize(("op", "wanted"), COMPARING.items())
def test_an_absent_value_is_unknown_where_the_schema_declares_it_and_false_elsewhere(op: str, wanted: Any) -> None:
    assert truths(op, wanted, {}) == [U]
    assert truths(op, wanted, {}, schema={"properties": {}}) == [F]
    assert truths(op, wanted, {}, schema=None) == [F]


@pytest.mark.parametrize(("op", "wanted"), COMPARING.items())
def test_a_value_of_the_wrong_type_is_unknown_whether_declared_or_not(op: str, wanted: Any) -> None:
    assert truths(op, wanted, {"x": {"not": "this"}}) == [U]
    assert truths(op, wanted, {"x": {"not": "this"}}, schema=None) == [U]


@pytest.mark.parametrize("schema", [SCHEMA, {"properties": {}}, None])
def test_presence_asks_only_the_arguments_and_is_never_unknown(schema: Any) -> None:
    assert truths("exists", None, {}, schema=schema) == [F]
    assert truths("absent", None, {}, schema=schema) == [T]
    for value in (None, 0, "", [], "text"):
        assert truths("exists", None, {"x": value}, schema=schema) == [T]
        assert truths("absent", None, {"x": value}, schema=schema) == [F]


@pytest.mark.parametrize(
    ("items", "op", "wanted", "strictly", "surely"),
    [
        ([{"price": 5}, {"price": 50}], "gt", 10, True, False),
        ([{"price": 50}, {"price": 60}], "gt", 10, True, True),
        ([{"price": 1}, {"price": 2}], "gt", 10, False, False),
        ([], "gt", 10, False, False),
        ([{"price": 50}, {}], "gt", 10, True, False),
        ([{"price": 1}, {}], "gt", 10, True, False),
        ([{"price": "50"}], "gt", 10, True, False),
        ("no list", "gt", 10, True, False),
        ([{"price": 1}, {"price": 2}], "exists", None, True, True),
        ([{"price": 1}, {}], "exists", None, True, False),
        ([{}, {}], "exists", None, False, False),
        ([], "exists", None, False, False),
        ([{"price": 1}, {}], "absent", None, True, False),
        ([{}, {}], "absent", None, True, True),
        ([{"price": 1}], "absent", None, False, False),
        ([], "absent", None, True, False),
    ],
)
def test_strict_rules_ask_any_element_and_allow_asks_all_and_one(
    items: Any, op: str, wanted: Any, strictly: bool, surely: bool
) -> None:
    found = truths(op, wanted, {"items": items}, path="items[*].price")
    assert (holds_strictly(found), holds_surely(found)) == (strictly, surely)


def test_an_element_without_the_value_is_unknown_as_soon_as_another_has_it() -> None:
    bare: dict[str, Any] = {"properties": {}}
    path = "things[*].size"
    assert truths("gt", 1, {"things": [{}, {}]}, path=path, schema=bare) == [F]
    assert truths("gt", 1, {"things": [{}, {"size": 0}]}, path=path, schema=bare) == [F, U]


def test_lists_within_lists() -> None:
    arguments = {"orders": [{"items": [{"price": 1}]}, {"items": []}, {"items": [{"price": 99}]}]}
    found = truths("lt", 50, arguments, path="orders[*].items[*].price", schema=None)
    assert found == [T, F]


@pytest.mark.parametrize(
    ("path", "op", "value", "says"),
    [
        ("", "eq", 1, "path"),
        ("a..b", "eq", 1, "path"),
        ("a", "equals", 1, "unknown operator"),
        ("a", "EQ", 1, "unknown operator"),
        ("a", "gt", "100", "a number"),
        ("a", "gt", True, "a number"),
        ("a", "lt", float("nan"), "a number"),
        ("a", "lt", float("inf"), "a number"),
        ("a", "in", [], "not empty"),
        ("a", "in", "ab", "not empty"),
        ("a", "not_in", {}, "not empty"),
        ("a", "matches", 5, "text"),
        ("a", "matches", "(", "RE2"),
        ("a", "matches", "(?=a)", "RE2"),
        ("a", "matches", r"(a)\1", "RE2"),
        ("a", "starts_with", None, "text"),
        ("a", "exists", False, "no value"),
        ("a", "eq", 2**53, "no argument can be"),
        ("a", "gt", 10**400, "no argument can be"),
        ("a", "eq", [float("nan")], "no argument can be"),
        ("a", "contains", "\ud800", "no argument can be"),
    ],
)
def test_a_condition_that_could_not_be_obeyed_is_refused(path: str, op: str, value: Any, says: str) -> None:
    with pytest.raises(MeahError) as caught:
        Condition(path, op, value)
    assert caught.value.code == "E_CONFIG"
    assert says in caught.value.message


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "amount > 100",
        {},
        {"path": "a"},
        {"path": "a", "op": "eq"},
        {"path": "a", "op": "eq", "value": 1, "extra": 1},
        {"path": "a", "op": ["eq"], "value": 1},
        {"path": ["a"], "op": "eq", "value": 1},
        {"path": "a", "op": "exists", "value": False},
    ],
)
def test_what_is_no_condition_is_refused(data: Any) -> None:
    with pytest.raises(MeahError):
        Condition.from_dict(data)


@pytest.mark.parametrize(
    "data",
    [
        {"path": "a", "op": "eq", "value": None},
        {"path": "items[*].price", "op": "in", "value": [1, "a", None]},
        {"path": "a", "op": "exists"},
    ],
)
def test_a_condition_survives_being_written_down(data: dict[str, Any]) -> None:
    assert Condition.from_dict(data).as_dict() == data


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (Condition("amount", "gt", 100), "amount > 100"),
        (Condition("amount", "ne", 1.5), "amount ≠ 1.5"),
        (Condition("status", "eq", "closed"), 'status = "closed"'),
        (Condition("status", "in", ["a", True, None]), 'status in ["a", true, null]'),
        (Condition("customer.id", "absent"), "customer.id absent"),
        (Condition("x", "eq", "a\u202eb"), 'x = "a⟨U+202E⟩b"'),
    ],
)
def test_a_condition_reads_well(condition: Condition, text: str) -> None:
    assert condition.as_text() == text


def test_a_long_value_is_shown_short() -> None:
    assert len(Condition("x", "eq", "y" * 5000).as_text()) < 100


@pytest.mark.parametrize(
    ("value", "other", "expected"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        (None, False, False),
        ([1], [1.0], True),
        ([1], [True], False),
        ({"a": [0]}, {"a": [False]}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
    ],
)
def test_equal_means_equal_as_json(value: Any, other: Any, expected: bool) -> None:
    assert equal(value, other) is expected
    assert equal(other, value) is expected


def test_a_pattern_is_linear_in_the_text() -> None:
    hostile = "a" * 50_000 + "b"
    assert truths("matches", "(a+)+", {"x": hostile}) == [F]
