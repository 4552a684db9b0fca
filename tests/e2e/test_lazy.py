"""Long-tail servers behind the three tools, over a real `runmcp` and a real server that we did not write."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from approvals import services
from tests.approvals.requests import DECIDE, person
from tests.conftest import Home
from tests.e2e.server import LEGACY, MODERN, Server
from tests.e2e.test_proxied import manage
from tests.gateway.real_servers import npm
from tests.gateway.support import RAW

ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])


def ask(client: Server, name: str, /, **arguments: Any) -> dict[str, Any]:
    return client.request("tools/call", {"name": name, "arguments": arguments})


def data(result: dict[str, Any]) -> Any:
    envelope = result["structuredContent"]
    assert envelope["ok"], envelope
    return envelope["data"]


def imported(home: Home, directory: Path, name: str, command: str, args: list[str]) -> None:
    config = directory / f"{name}.mcp.json"
    config.write_text(json.dumps({"mcpServers": {name: {"command": command, "args": args}}}))
    manage(home, "servers", "import", str(config), "--yes", "--exposure", "lazy")


@ERAS
def test_a_real_server_is_found_called_held_approved_and_read(home: Home, tmp_path: Path, era: str) -> None:
    place = tmp_path / "files"
    place.mkdir()
    (place / "a.txt").write_text("what it says")
    real = npm("server-filesystem", str(place))
    imported(home, tmp_path, "files", real.command, list(real.args))
    approver, _ = person("ann", DECIDE)
    with Server(home, era=era) as client:
        client.initialize()
        names = {tool["name"] for tool in client.request("tools/list")["tools"]}
        assert {"mcp_discover", "mcp_call"} <= names and not any(name.startswith("files__") for name in names)

        found = data(ask(client, "mcp_discover", query="read the text of a file"))["tools"]
        assert "read_text_file" in [tool["tool"] for tool in found[:3]]
        assert "inputSchema" not in found[0] and found[0]["posture"] == "allow"
        [server] = data(ask(client, "mcp_discover", kind="server"))["servers"]
        assert (server["state"], server["schemaSource"]) == ("idle", "cache")

        read = ask(client, "mcp_call", server="files", tool="read_text_file", args={"path": str(place / "a.txt")})
        assert read["content"] == [{"type": "text", "text": "what it says"}] and not read.get("isError")
        [server] = data(ask(client, "mcp_discover", kind="server"))["servers"]
        assert server["schemaSource"] == "live"

        written = place / "b.txt"
        held = data(
            ask(client, "mcp_call", server="files", tool="write_file", args={"path": str(written), "content": "new"})
        )
        assert held["status"] == "pending_approval" and not written.exists()
        services.approve(services.get(held["approvalId"]), user=approver, note="fine", door="admin")
        status = data(ask(client, "approval_status", approvalId=held["approvalId"], waitMs=20_000))
        if status["status"] != "done":
            status = data(ask(client, "approval_status", approvalId=held["approvalId"], waitMs=20_000))
        assert status["status"] == "done" and not status["result"].get("isError")
        assert written.read_text() == "new"


def test_what_goes_wrong_is_told_in_the_envelope(home: Home, tmp_path: Path) -> None:
    imported(home, tmp_path, "raw", sys.executable, [str(RAW)])
    with Server(home) as client:
        client.initialize()

        def error(**arguments: Any) -> dict[str, Any]:
            answer = ask(client, "mcp_call", **arguments)
            assert answer["isError"] and not answer["structuredContent"]["ok"]
            return dict(answer["structuredContent"]["error"])

        assert error(server="nowhere", tool="echo")["code"] == "E_NOT_FOUND"
        assert error(server="raw", tool="nothing")["code"] == "E_NOT_FOUND"
        assert error(server="MEAH", tool="meah_run_agent", args={"task": "x"})["code"] == "E_NOT_FOUND"
        assert error(server="raw", tool="echo", args={"text": 5})["code"] == "E_INVALID_REQUEST"
        assert error(server="raw", tool="echo", args="no object")["code"] == "E_INVALID_REQUEST"
        assert error(server="raw", tool="echo", timeoutMs=0)["code"] == "E_INVALID_REQUEST"
        assert error(server="raw", tool="echo", extra=1)["code"] == "E_INVALID_REQUEST"
        assert error(server="raw")["code"] == "E_INVALID_REQUEST"
