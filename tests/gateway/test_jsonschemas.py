"""Arguments are checked against the pinned schema; whatever goes wrong refuses."""

from __future__ import annotations

import time
from typing import Any

import pytest

from core.errors import MeahError
from gateway.jsonschemas import check_arguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "maximum": 100},
        "ticket": {"type": "string", "pattern": "^T-[0-9]+$"},
        "items": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
    },
    "required": ["amount"],
}


def errors(arguments: dict[str, Any], schema: dict[str, Any] = SCHEMA, pin: str = "p") -> list[str]:
    try:
        check_arguments(schema, pin, arguments)
    except MeahError as error:
        assert error.code == "E_INVALID_REQUEST"
        return list(error.details.get("errors", [error.message]))
    return []


@pytest.mark.parametrize(
    "arguments",
    [{"amount": 1}, {"amount": 100, "ticket": "T-1"}, {"amount": 1, "items": [{"price": 1.5}], "extra": {"Amount": 1}}],
)
def test_what_fits_passes(arguments: dict[str, Any]) -> None:
    assert errors(arguments) == []


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({}, "amount"),
        ({"amount": 101}, "amount"),
        ({"amount": "5"}, "amount"),
        ({"amount": True}, "amount"),
        ({"amount": 1.5}, "amount"),
        ({"amount": None}, "amount"),
        ({"amount": 1, "ticket": "T-1\n"}, "ticket"),
        ({"amount": 1, "ticket": "xT-1"}, "ticket"),
        ({"amount": 1, "items": [{"price": 1}, {"price": "x"}]}, "items[1].price"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(arguments: dict[str, Any], where: str) -> None:
    assert any(where in error for error in errors(arguments))


@pytest.mark.parametrize("key", ["Amount", "ａmount", "AMOUNT", "__proto__", "constructor"])
def test_a_key_that_passes_for_another_is_refused(key: str) -> None:
    assert errors({"amount": 1, key: 500})
    assert errors({"amount": 1, "items": [{"price": 1, "Price": 2}]})


def test_hidden_characters_in_an_error_are_visible() -> None:
    [error] = errors({"amount": 1, "ticket": "\u202e"})
    assert "\u202e" not in error


def test_a_pattern_takes_linear_time() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a|a)*$"}}}
    begun = time.monotonic()
    assert errors({"a": "a" * 200_000 + "b"}, schema, "slow")
    assert time.monotonic() - begun < 2


def test_a_schema_that_can_not_be_compiled_refuses_every_call() -> None:
    assert errors({}, {"$ref": "https://example.com/x"}, "remote")
    assert errors({}, {"type": "int"}, "bad")


def test_dialects_are_told_apart() -> None:
    tuple_items = {"properties": {"a": {"items": [{"type": "string"}]}}}
    draft7 = tuple_items | {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert errors({"a": [1]}, draft7, "draft7")
    assert not errors({"a": ["x", 1]}, draft7, "draft7")
    prefix = {"properties": {"a": {"prefixItems": [{"type": "string"}]}}}
    assert errors({"a": [1]}, prefix, "2020"), "without $schema it is 2020-12"
