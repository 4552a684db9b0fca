from __future__ import annotations

import time
from typing import Any

import pytest

from approvals.argument_paths import EVERY, MISSING, declares, problem_of_path, steps_of, value_at, values_at

ITEM = {"type": "object", "properties": {"price": {"type": "number"}}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "number"},
        "open": True,
        "closed": False,
        "customer": {"$ref": "#/$defs/customer"},
        "items": {"type": "array", "items": ITEM},
        "pair": {"type": "array", "prefixItems": [ITEM, {"type": "string"}]},
        "old": {"type": "array", "items": [ITEM], "additionalItems": {"properties": {"note": {}}}},
        "mixed": {"anyOf": [{"type": "string"}, {"properties": {"deep": {"type": "string"}}}]},
        "both": {"properties": {"one": {}}, "allOf": [{"properties": {"one": {"properties": {"two": {}}}}}]},
        "remote": {"$ref": "https://example.test/schema"},
        "lost": {"$ref": "#/$defs/nowhere"},
        "anchored": {"$ref": "#there"},
        "spaced": {"$ref": "#/$defs/with%20space~1slash"},
        "listed": {"$ref": "#/allOf/0"},
        "free": {"type": "object"},
    },
    "patternProperties": {"^x_": {"type": "string"}},
    "allOf": [{"properties": {"elsewhere": {"type": "string"}}}],
    "if": {"properties": {"asked": {}}},
    "then": {"properties": {"granted": {}}},
    "dependentSchemas": {"amount": {"properties": {"currency": {}}}},
    "$defs": {
        "customer": {"properties": {"id": {"type": "string"}, "parent": {"$ref": "#/$defs/customer"}}},
        "with space/slash": {"properties": {"found": {}}},
    },
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("amount", True),
        ("open", True),
        ("closed", False),
        ("nothing", False),
        ("amount.part", False),
        ("customer.id", True),
        ("customer.parent.parent.id", True),
        ("customer.name", False),
        ("items", True),
        ("items[*].price", True),
        ("items[3].price", True),
        ("items[*].size", False),
        ("items.price", False),
        ("pair[0].price", True),
        ("pair[1].price", False),
        ("pair[*].price", True),
        ("old[0].price", True),
        ("old[5].note", True),
        ("old[*].note", True),
        ("mixed.deep", True),
        ("both.one.two", True),
        ("remote.whatever", True),
        ("lost.whatever", True),
        ("anchored.whatever", True),
        ("spaced.found", True),
        ("listed.elsewhere", True),
        ("free.anything", False),
        ("x_custom", True),
        ("elsewhere", True),
        ("asked", True),
        ("granted", True),
        ("currency", True),
    ],
)
def test_a_schema_declares_a_path_wherever_it_says_it(path: str, expected: bool) -> None:
    assert declares(SCHEMA, steps_of(path)) is expected


@pytest.mark.parametrize("schema", [None, {}, True, False, [], "text", {"properties": None}, {"allOf": {"a": 1}}])
def test_a_schema_that_says_nothing_declares_nothing(schema: Any) -> None:
    assert not declares(schema, steps_of("amount"))


def test_a_schema_that_refers_to_itself_many_times_is_looked_through_once() -> None:
    knot: dict[str, Any] = {"anyOf": [{"$ref": "#"}] * 50, "allOf": [{"$ref": "#/anyOf/0"}] * 50}
    begun = time.monotonic()
    assert not declares(knot, steps_of("a.b.c.d"))
    assert time.monotonic() - begun < 1


ARGUMENTS = {"amount": 5, "items": [{"price": 1}, {}, "x"], "a": {"b": {"c": None}}, "empty": [], "0": "zero"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("amount", [5]),
        ("a.b.c", [None]),
        ("a.b.c.d", [MISSING]),
        ("gone", [MISSING]),
        ("items[0].price", [1]),
        ("items[9].price", [MISSING]),
        ("items[*].price", [1, MISSING, MISSING]),
        ("empty[*]", []),
        ("amount[*]", [MISSING]),
        ("a[*]", [MISSING]),
        ("items.0", [MISSING]),
        ("0", ["zero"]),
    ],
)
def test_values_are_found_and_gaps_are_marked(path: str, expected: list[Any]) -> None:
    assert list(values_at(ARGUMENTS, steps_of(path))) == expected


def test_a_list_is_no_object_with_numbers_and_an_object_is_no_list() -> None:
    assert value_at({"items": {"0": "smuggled"}}, "items[0]") is MISSING
    assert value_at({"items": ["listed"]}, "items.0") is MISSING
    assert list(values_at({"items": {"*": {"price": 1}}}, steps_of("items[*].price"))) == [MISSING]


def test_a_path_is_taken_apart() -> None:
    assert steps_of("items[*].lines[12].price") == ("items", EVERY, "lines", 12, "price")


@pytest.mark.parametrize("path", ["amount", "customer.id", "a-b.c_d", "$ref", "items[*].price", "m[0][1]", "größe"])
def test_these_are_paths(path: str) -> None:
    assert problem_of_path(path) == ""


@pytest.mark.parametrize(
    "path", ["", ".", "a.", ".a", "a..b", "[0]", "a[", "a[]", "a[-1]", "a[x]", "a.*", "a[*", " a", "a" * 201, None, 5]
)
def test_these_are_none(path: Any) -> None:
    assert problem_of_path(path)
