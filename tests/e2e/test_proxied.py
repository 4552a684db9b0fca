"""Downstream tools as clients of a real `runmcp` see them: with their posture, held, denied, passed on, changed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway import services
from gateway.models import Server
from tests.approvals.requests import person
from tests.conftest import ROOT, Home
from tests.e2e.server import LEGACY, META, MODERN, eventually
from tests.e2e.server import Server as Client
from tests.gateway.support import RAW

ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])
POLICY = """
version: 1
rules:
  - {name: echo, effect: allow, server: raw, tool: echo}
  - {name: no, effect: deny, server: raw, tool: delete}
"""


def manage(home: Home, *words: str, status: int = 0, **environ: str) -> str:
    command = [sys.executable, str(ROOT / "manage.py"), *words]
    done = subprocess.run(command, env=home.environ | environ, cwd="/", capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def set_up(home: Home, directory: Path, *options: str) -> Path:
    """Our own downstream server, imported and accepted as an operator does it; the file that holds its tools."""
    tools = directory / "tools.json"
    listed = [
        {
            "name": "echo",
            "description": "Says it back.",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
            "outputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
            "annotations": {"readOnlyHint": True},
        },
        {"name": "seen", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}},
        {"name": "delete", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}},
    ]
    tools.write_text(json.dumps(listed))
    entry = {"command": sys.executable, "args": [str(RAW), "--tools", str(tools), *options]}
    config = directory / "raw.mcp.json"
    config.write_text(json.dumps({"mcpServers": {"raw": entry}}))
    policy = directory / "policy.yaml"
    policy.write_text(POLICY)
    manage(home, "servers", "import", str(config), "--yes", "--exposure", "direct")
    manage(home, "policy", "import", str(policy), "--yes")
    return tools


def direct(client: Client) -> dict[str, dict[str, Any]]:
    listed = client.request("tools/list")["tools"]
    return {tool["name"]: tool for tool in listed if tool["name"].startswith("raw__")}


def is_list_changed(message: dict[str, Any]) -> bool:
    return message.get("method") == "notifications/tools/list_changed"


@ERAS
def test_tools_are_listed_with_their_posture_and_answer_as_it_says(home: Home, tmp_path: Path, era: str) -> None:
    set_up(home, tmp_path)
    with Client(home, era=era) as client:
        client.initialize()
        listed = direct(client)
        assert listed["raw__echo"]["description"] == "[policy: allow] Says it back."
        assert listed["raw__seen"]["description"].startswith("[policy: require_approval]")
        assert listed["raw__delete"]["description"].startswith("[policy: deny]")
        # Both official clients check an answer against it; ours are of another shape.
        assert {name for name, tool in listed.items() if "outputSchema" in tool} == {"raw__echo"}

        passed = client.request("tools/call", {"name": "raw__echo", "arguments": {"text": "hi"}})
        assert passed["structuredContent"] == {"text": "hi"} and passed["_meta"]["server"] == "kept"
        held = client.request("tools/call", {"name": "raw__seen", "arguments": {}})
        assert held["structuredContent"]["data"]["status"] == "pending_approval" and not held.get("isError")
        denied = client.request("tools/call", {"name": "raw__delete", "arguments": {}})
        assert denied["structuredContent"]["error"]["code"] == "E_DENIED" and denied["isError"]
        # Where a schema was promised, an answer of ours is an error.
        bad = client.request("tools/call", {"name": "raw__echo", "arguments": {"text": 5}})
        assert bad["isError"] and "structuredContent" not in bad
        assert json.loads(bad["content"][0]["text"])["error"]["code"] == "E_INVALID_REQUEST"


@ERAS
def test_a_client_is_told_when_the_list_has_changed_and_only_then(home: Home, tmp_path: Path, era: str) -> None:
    tools = set_up(home, tmp_path)
    with Client(home, era=era) as client:
        client.initialize()
        assert len(direct(client)) == 3
        if era == MODERN:
            wanted = {"notifications": {"toolsListChanged": True}}
            client.begin("subscriptions/listen", wanted)
        # Daily work, and a rule that changes no posture, are no news.
        client.request("tools/call", {"name": "raw__echo", "arguments": {"text": "hi"}})
        policy = tmp_path / "policy.yaml"
        policy.write_text(POLICY.replace("name: no,", "name: never, "))
        manage(home, "policy", "import", str(policy), "--yes")
        listed = json.loads(tools.read_text())
        listed[0]["description"] = "Says it back, twice."
        tools.write_text(json.dumps(listed))
        client.data("meah_list_models")
        assert not [notice for notice in client.notices if is_list_changed(notice)]

        manage(home, "servers", "refresh", "raw", status=1)  # something waits for a person
        told(client, 1)
        assert "raw__echo" not in direct(client), "a tool that changed is not offered"

        boss, _ = person("boss", "gateway.accept_pin")
        server = Server.objects.get(name="raw")
        services.accept(server, services.acceptable(server), user=boss)
        told(client, 2)
        assert direct(client)["raw__echo"]["description"].endswith("twice.")


def told(client: Client, times: int) -> None:
    """Until it was told so often; each look is a request, so that what came is read."""

    def look() -> bool:
        client.data("meah_list_models")
        return sum(map(is_list_changed, client.notices)) >= times

    eventually(look, within_s=20)
    notices = [notice for notice in client.notices if is_list_changed(notice)]
    assert len(notices) == times
    if client.era == MODERN:
        assert META + "subscriptionId" in notices[-1]["params"]["_meta"]
