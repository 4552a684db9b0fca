"""What is pinned, what is quarantined, what two definitions differ in."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest

from gateway.pins import contract_of, difference, pin_of, proposed_class, read_listing, stricter

IDENTITY = {"command": "server", "args": ["--safe"]}
TOOL: dict[str, Any] = {
    "name": "refund",
    "title": "Refund",
    "description": "Pays money back.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "amount": {"type": "number", "description": "In euros.", "default": 1, "maximum": 100},
            "title": {"type": "string", "enum": ["a", "b"]},
        },
        "required": ["amount"],
    },
    "outputSchema": {"type": "object", "properties": {"done": {"type": "boolean"}}},
    "annotations": {"readOnlyHint": False, "title": "x"},
    "icons": [{"src": "https://example.com/a.png"}],
    "_meta": {"owner": "finance"},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    tool = copy.deepcopy(TOOL)
    *parents, last = path.split("/")
    node = tool
    for part in parents:
        node = node[part]
    node[last] = value
    return tool


def one(tool: Any) -> Any:
    [listed] = read_listing([tool])
    return listed


def pin(tool: Any, identity: dict[str, Any] = IDENTITY) -> str:
    return pin_of(one(tool).text, identity)


CHANGES = [
    changed("name", "refund2"),
    changed("title", "Refund now"),
    changed("description", "Pays money back. Then reads ~/.ssh."),
    changed("inputSchema/properties/amount/description", "In dollars."),
    changed("inputSchema/properties/amount/default", 2),
    changed("inputSchema/properties/title/enum", ["a", "b", "c"]),
    changed("outputSchema/properties/done", {"type": "string"}),
    changed("annotations/readOnlyHint", True),
    changed("icons", [{"src": "https://example.com/b.png"}]),
    changed("_meta/owner", "someone"),
]


@pytest.mark.parametrize("tool", CHANGES, ids=range(len(CHANGES)))
def test_any_change_of_a_definition_changes_its_pin(tool: Any) -> None:
    assert pin(tool) != pin(TOOL)
    assert difference(one(TOOL).text, one(tool).text)


def test_the_order_of_keys_and_an_absent_null_do_not_change_a_pin() -> None:
    turned = json.loads(json.dumps(TOOL, sort_keys=True))
    assert pin(dict(reversed(turned.items()))) == pin(TOOL)
    assert pin({"name": "a", "inputSchema": {"type": "object"}, "title": None}) == pin(
        {"name": "a", "inputSchema": {"type": "object"}}
    )


def test_a_pin_is_bound_to_the_server() -> None:
    assert pin(TOOL, {"command": "server", "args": []}) != pin(TOOL)
    assert pin(TOOL, {"url": "https://example.com"}) != pin(TOOL)


@pytest.mark.parametrize(("index", "same"), [(1, True), (2, True), (3, True), (4, False), (5, False), (7, False)])
def test_a_contract_is_all_but_the_prose(index: int, same: bool) -> None:
    is_same = contract_of(one(CHANGES[index]).text, IDENTITY) == contract_of(one(TOOL).text, IDENTITY)
    assert is_same is same


def test_a_property_named_like_prose_belongs_to_the_contract() -> None:
    without = copy.deepcopy(TOOL)
    del without["inputSchema"]["properties"]["title"]
    assert contract_of(one(without).text, IDENTITY) != contract_of(one(TOOL).text, IDENTITY)


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        (None, "write"),
        ({}, "write"),
        ({"readOnlyHint": True}, "read"),
        ({"readOnlyHint": False}, "write"),
        ({"destructiveHint": True}, "destructive"),
        ({"readOnlyHint": True, "destructiveHint": True}, "destructive"),
        ({"readOnlyHint": "yes"}, "write"),
    ],
)
def test_hints_only_propose_a_class(hints: Any, expected: str) -> None:
    definition = {"name": "x"} if hints is None else {"name": "x", "annotations": hints}
    assert proposed_class(definition) == expected


def test_the_stricter_class_wins() -> None:
    assert [stricter("read", "write"), stricter("destructive", "read"), stricter("write", "write")] == [
        "write",
        "destructive",
        "write",
    ]


OBJECT = {"type": "object"}
ODD = {
    "no name": {"inputSchema": OBJECT},
    "name is a number": {"name": 5, "inputSchema": OBJECT},
    "no schema": {"name": "x"},
    "schema is a list": {"name": "x", "inputSchema": []},
    "type int": {"name": "x", "inputSchema": {"type": "object", "properties": {"a": {"type": "int"}}}},
    "required null": {"name": "x", "inputSchema": {"type": "object", "required": None}},
    "not an object": {"name": "x", "inputSchema": {"type": "string"}},
    "remote reference": {"name": "x", "inputSchema": {"$ref": "https://example.com/schema.json"}},
    "local file": {"name": "x", "inputSchema": {"$ref": "file:///etc/passwd"}},
    "dynamic reference": {"name": "x", "inputSchema": {"$dynamicRef": "https://example.com/x"}},
    "lookahead": {"name": "x", "inputSchema": {"type": "object", "properties": {"a": {"pattern": "(?=a)b"}}}},
    "unknown dialect": {"name": "x", "inputSchema": {"$schema": "https://example.com/dialect", "type": "object"}},
    "draft 4": {"name": "x", "inputSchema": {"$schema": "http://json-schema.org/draft-04/schema#"}},
    "deep": {"name": "x", "inputSchema": json.loads('{"properties":{"a":' * 80 + "{}" + "}}" * 80)},
    "output": {"name": "x", "inputSchema": OBJECT, "outputSchema": {"type": "int"}},
    "long name": {"name": "x" * 65, "inputSchema": OBJECT},
    "far too long a name": {"name": "x" * 5000, "inputSchema": OBJECT},
    "foreign name": {"name": "報告", "inputSchema": OBJECT},
    "name with a space": {"name": "a b", "inputSchema": OBJECT},
    "name with a line break": {"name": "a\n", "inputSchema": OBJECT},
    "bidi": {"name": "x", "description": "safe \u202e evil", "inputSchema": OBJECT},
    "zero width": {"name": "x", "description": "a\u200bb", "inputSchema": OBJECT},
    "escape": {"name": "x", "description": "\x1b[31mred", "inputSchema": OBJECT},
    "tag characters": {"name": "x", "description": "hi\U000e0041", "inputSchema": OBJECT},
    "hidden in a key": {"name": "x", "inputSchema": {"type": "object", "properties": {"a\u200b": {}}}},
    "hidden in meta": {"name": "x", "inputSchema": OBJECT, "_meta": {"k": "\u2066"}},
    "selectors in a row": {"name": "x", "description": "a\ufe0f\ufe0f\ufe0e", "inputSchema": OBJECT},
    "lone surrogate": {"name": "x", "description": "\ud800", "inputSchema": OBJECT},
    "a text": "not a tool",
    "nothing": None,
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_tool_is_quarantined_with_a_reason_and_hides_no_other(kind: str) -> None:
    begun = time.monotonic()
    first, odd, last = read_listing([TOOL, ODD[kind], {"name": "other", "inputSchema": OBJECT}])
    assert (first.problem, last.problem) == ("", "")
    assert odd.problem, odd
    assert len(odd.name) <= 256
    assert len(odd.problem) < 500
    odd.name.encode()
    assert time.monotonic() - begun < 0.5


FINE = {
    "empty schema": {"name": "x", "inputSchema": {}},
    "root anyOf": {"name": "x", "inputSchema": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}},
    "root allOf and if": {"name": "x", "inputSchema": {"type": "object", "allOf": [{"if": {}, "then": {}}]}},
    "boolean schemas": {"name": "x", "inputSchema": {"type": "object", "properties": {"a": True, "b": False}}},
    "draft 7": {"name": "x", "inputSchema": {"$schema": "http://json-schema.org/draft-07/schema#", **OBJECT}},
    "2019": {"name": "x", "inputSchema": {"$schema": "https://json-schema.org/draft/2019-09/schema", **OBJECT}},
    "2020": {"name": "x", "inputSchema": {"$schema": "https://json-schema.org/draft/2020-12/schema", **OBJECT}},
    "64-bit numbers": {"name": "x", "inputSchema": {"properties": {"a": {"maximum": 18446744073709551615}}}},
    "inner reference": {
        "name": "x",
        "inputSchema": {"$defs": {"n": OBJECT}, "properties": {"a": {"$ref": "#/$defs/n"}}},
    },
    "line breaks and tabs": {"name": "x", "description": "a\r\n\tb", "inputSchema": OBJECT},
    "emoji": {"name": "x", "description": "⚠️ careful", "inputSchema": OBJECT},
    "dots": {"name": "a.b-c_d", "inputSchema": OBJECT},
    "unknown fields": {"name": "x", "inputSchema": OBJECT, "futureField": 1, "execution": {"taskSupport": "optional"}},
}


@pytest.mark.parametrize("kind", FINE)
def test_unusual_but_valid_tools_pass_with_their_schema_unchanged(kind: str) -> None:
    listed = one(FINE[kind])
    assert listed.problem == ""
    assert listed.definition["inputSchema"] == FINE[kind]["inputSchema"]
    assert pin(FINE[kind]) == pin(json.loads(json.dumps(FINE[kind])))


def test_names_that_differ_in_case_only_are_both_quarantined() -> None:
    first, second, third = read_listing([{"name": name, "inputSchema": OBJECT} for name in ("Search", "search", "x")])
    assert first.problem and second.problem and not third.problem


def test_the_same_name_twice_is_quarantined() -> None:
    assert all(tool.problem for tool in read_listing([{"name": "a", "inputSchema": OBJECT}] * 2))


def test_a_difference_names_the_place_and_shows_what_hides() -> None:
    lines = difference(one(TOOL).text, one(changed("description", "Pays.\nThen \u202eevil")).text)
    assert "-description: Pays money back." in lines
    assert "+description: Pays." in lines
    assert any("⟨U+202E⟩" in line for line in lines)
    assert difference("", one(TOOL).text)[1].startswith("+")
