"""The three lazy tools as clients see them: within every client's limits, and cheap."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from core.errors import MeahError
from gateway import schemas
from gateway.runner import Runner
from gateway.tools import tools
from tests.workers.test_schemas import COUNT, _tokenizer, objects

MAX_TOKENS = 900
LISTED = [tool.as_listed() for tool in tools(Runner(""))]


@pytest.mark.parametrize("tool", LISTED, ids=lambda tool: tool["name"])
def test_a_lazy_tool_stays_within_the_limits_of_clients(tool: dict[str, Any]) -> None:
    assert re.fullmatch(r"mcp_[a-z]+", tool["name"]) and tool["title"]
    assert tool["description"].isascii() and 40 < len(tool["description"]) < 1_500
    assert set(tool["inputSchema"]) <= {"type", "properties", "required", "additionalProperties"}
    assert tool["inputSchema"]["additionalProperties"] is False
    for schema in objects(tool["inputSchema"]):
        assert not {"$ref", "$defs", "definitions", "oneOf", "anyOf", "allOf"} & set(schema)


def test_only_the_call_promises_no_shape() -> None:
    promised = {tool["name"]: tool.get("outputSchema", {}).get("required") for tool in LISTED}
    assert promised == {"mcp_discover": ["ok"], "mcp_call": None, "mcp_run": ["ok"]}
    hints = {tool["name"]: tool["annotations"] for tool in LISTED}
    assert hints["mcp_discover"]["readOnlyHint"]
    for name in ("mcp_call", "mcp_run"):
        assert hints[name] == {
            "readOnlyHint": False,
            "openWorldHint": True,
            "destructiveHint": True,
            "idempotentHint": False,
        }


@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
def test_all_three_cost_at_most_nine_hundred_tokens(encoding: str) -> None:
    home = _tokenizer()
    script = home / f"count-lazy-{encoding}.mjs"
    script.write_text(COUNT.replace("ENCODING", encoding))
    text = json.dumps({"tools": LISTED}, separators=(",", ":"))
    done = subprocess.run(["node", str(script)], input=text, capture_output=True, text=True, timeout=60, check=True)
    assert 200 < int(done.stdout) <= MAX_TOKENS


def test_arguments_are_strict_but_for_what_clients_are_known_to_do() -> None:
    assert schemas.parse_call({"server": "a", "tool": "b", "args": '{"x": "{}"}', "timeoutMs": None})["args"] == {
        "x": "{}"
    }
    for wrong in (
        {"args": "[1]"},
        {"args": "{"},
        {"args": '{"a":1,"a":2}'},
        {"args": [1]},
        {"server": "a\0"},
        {"timeoutMs": 600_001},
        {"timeoutMs": "5"},
        {"more": 1},
    ):
        with pytest.raises(MeahError) as refused:
            schemas.parse_call({"server": "a", "tool": "b", **wrong})
        assert refused.value.code == "E_INVALID_REQUEST", wrong
