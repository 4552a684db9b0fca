"""What the tools look like to a client: within every client's limits, and the same as last time."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from core.errors import MeahError
from tests.conftest import ROOT
from workers.schemas import CancelIn, DelegateIn, ListIn, ParallelIn, TaskIn, input_schema, parse
from workers.tools import listed

MAX_TOKENS = 3_500
NPM_CACHE = ROOT / "tests" / ".cache" / "npm"
TOKENIZER = "gpt-tokenizer@4.0.0"
COUNT = """
import { encode } from 'gpt-tokenizer/encoding/ENCODING';
import { readFileSync } from 'node:fs';
console.log(encode(readFileSync(0, 'utf8')).length);
"""


@cache
def tools() -> list[dict[str, Any]]:
    return listed()


def named(tool: dict[str, Any]) -> str:
    return str(tool["name"])


def objects(node: Any) -> Iterator[dict[str, Any]]:
    """Every schema within a schema."""
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from objects(value)
    elif isinstance(node, list):
        for value in node:
            yield from objects(value)


@pytest.mark.parametrize("tool", tools(), ids=named)
def test_a_tool_stays_within_the_limits_of_clients(tool: dict[str, Any]) -> None:
    assert len(f"mcp__plugin_meah_meah__{tool['name']}") <= 64 and re.fullmatch(r"meah_[a-z_]+", tool["name"])
    assert tool["description"].isascii() and 40 < len(tool["description"]) < 1_500
    assert set(tool["inputSchema"]) <= {"type", "properties", "required", "additionalProperties"}
    assert tool["inputSchema"]["type"] == "object" and tool["inputSchema"]["additionalProperties"] is False
    assert tool["outputSchema"]["type"] == "object"
    for schema in objects(tool["inputSchema"]):
        assert not {"$ref", "$defs", "definitions", "oneOf", "allOf"} & set(schema)
        for name in schema.get("properties", {}):
            assert re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name)


@pytest.mark.parametrize("tool", tools(), ids=named)
def test_every_field_says_what_it_is(tool: dict[str, Any]) -> None:
    for schema in objects(tool["inputSchema"]):
        for name, field in schema.get("properties", {}).items():
            assert field.get("description", "").isascii() and field["description"], name
            assert "type" in field or "anyOf" in field, name
            required = name in schema.get("required", ())
            assert required or "default" in field or "Default:" in field["description"], name
            bounded = {"maxLength", "maximum", "maxItems", "enum", "pattern"} & set(field)
            assert bounded or field["type"] == "boolean", name


def test_the_hints_say_what_a_tool_does_to_the_world() -> None:
    hints = {tool["name"].removeprefix("meah_"): tool["annotations"] for tool in tools()}
    for name in ("list_models", "get_agent", "list_agents"):
        assert hints[name] == {"readOnlyHint": True, "openWorldHint": False}
    for name in ("run_agent", "delegate_task", "parallel_agents"):
        assert hints[name]["openWorldHint"] and not hints[name]["readOnlyHint"] and not hints[name]["destructiveHint"]
    for name in ("cancel_agent", "cleanup_workspace"):
        assert hints[name]["destructiveHint"] and hints[name]["idempotentHint"] and not hints[name]["openWorldHint"]


def test_no_tool_takes_a_key_an_address_or_headers() -> None:
    forbidden = re.compile(r"key|secret|password|url|header|credential|authorization|bearer", re.IGNORECASE)
    for tool in tools():
        for schema in objects(tool["inputSchema"]):
            assert [name for name in schema.get("properties", {}) if forbidden.search(name)] == []


@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
def test_the_whole_list_costs_no_more_than_its_budget(encoding: str) -> None:
    script = _tokenizer() / "count.mjs"
    script.write_text(COUNT.replace("ENCODING", encoding))
    compact = json.dumps({"tools": tools()}, separators=(",", ":"))
    counted = subprocess.run(
        ["node", str(script)], input=compact, capture_output=True, text=True, timeout=60, check=True
    )
    assert 500 < int(counted.stdout) <= MAX_TOKENS


def _tokenizer() -> Any:
    """A tokenizer that ships its vocabulary, in a directory that git does not see."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("node and npm count the tokens; they are not installed here")
    if not (NPM_CACHE / "node_modules" / "gpt-tokenizer").is_dir():
        NPM_CACHE.mkdir(parents=True, exist_ok=True)
        (NPM_CACHE / "package.json").write_text("{}")
        command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", TOKENIZER]
        done = subprocess.run(command, cwd=NPM_CACHE, capture_output=True, text=True, timeout=120)
        if done.returncode:
            pytest.skip(f"npm can not install {TOKENIZER} here")
    return NPM_CACHE


def test_null_is_left_out_and_an_unknown_field_is_not() -> None:
    assert parse(DelegateIn, {"task": "x", "waitMs": None, "label": None}) == parse(DelegateIn, {"task": "x"})
    with pytest.raises(MeahError, match="nothing: is not a field"):
        parse(DelegateIn, {"task": "x", "nothing": None})
    with pytest.raises(MeahError, match="task"):
        parse(TaskIn, {"task": None})


def test_names_of_our_own_code_are_not_names_on_the_wire() -> None:
    with pytest.raises(MeahError, match="timeout_ms"):
        parse(TaskIn, {"task": "x", "timeout_ms": 1_000})


def test_an_error_names_every_wrong_field_but_not_without_end() -> None:
    with pytest.raises(MeahError) as caught:
        parse(TaskIn, {"role": "king", **{f"field{number}": 1 for number in range(30)}})
    message = caught.value.message
    assert "task: is required" in message and "role: Input should be 'researcher'" in message
    assert "more" in message and len(message) < 1_000


def test_a_long_name_and_hidden_characters_do_not_come_back_as_they_are() -> None:
    with pytest.raises(MeahError) as caught:
        parse(TaskIn, {"task": "x", "a\u202e" + "b" * 5_000: 1})
    assert "\u202e" not in caught.value.message and len(caught.value.message) < 500


def test_a_reason_is_shown_without_hidden_characters() -> None:
    assert parse(CancelIn, {"workerId": "w_" + "0" * 20, "reason": "a\u202eb"}).reason == "a⟨U+202E⟩b"


def test_a_parallel_call_takes_sixteen() -> None:
    assert len(parse(ParallelIn, {"workers": [{"task": "x"}] * 16}).workers) == 16
    assert input_schema(ParallelIn)["properties"]["workers"]["maxItems"] == 16


NUL_PLACES: dict[str, dict[str, Any]] = {
    "task": {"task": "a\0b"},
    "context.0": {"task": "t", "context": ["\0"]},
    "context.1.name": {"task": "t", "context": ["a", {"name": "\0", "content": "c"}]},
    "context.0.content": {"task": "t", "context": [{"name": "n", "content": "c\0"}]},
    "constraints.0": {"task": "t", "constraints": ["\0"]},
    "expectedOutput": {"task": "t", "expectedOutput": "\0"},
    "commands.0": {"task": "t", "commands": ["ls\0"]},
    "commands.0.1": {"task": "t", "commands": [["ls", "\0"]]},
    "label": {"task": "t", "label": "\0"},
    "provider": {"task": "t", "provider": "\0"},
    "model": {"task": "t", "model": "\0"},
    "workers.0.task": {"workers": [{"task": "\0"}]},
    "reason": {"workerId": "w_" + "0" * 20, "reason": "\0"},
    "workerId": {"workerId": "\0"},
    "cursor": {"cursor": "\0"},
}


@pytest.mark.parametrize("field", NUL_PLACES)
def test_nul_is_refused_in_every_text_and_the_field_is_named(field: str) -> None:
    arguments = NUL_PLACES[field]
    schema = next((kind for name, kind in NUL_SCHEMAS.items() if name in arguments), TaskIn)
    with pytest.raises(MeahError) as caught:
        parse(schema, arguments)
    assert caught.value.code == "E_INVALID_REQUEST"
    assert f": {field}: " in caught.value.message and "NUL" in caught.value.message


NUL_SCHEMAS = {"workers": ParallelIn, "workerId": CancelIn, "cursor": ListIn}
