"""Methods over a real `runmcp` and the example CRM: imported, reviewed, found, run, parked, and gone on with."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User

from approvals import services, tokens
from approvals.models import Call
from tests.approvals.requests import DECIDE, person
from tests.conftest import ROOT, Home
from tests.e2e.server import LEGACY, MODERN, Server, eventually
from tests.e2e.test_lazy import ask, data
from tests.e2e.test_proxied import manage
from tests.gateway.support import alive

EXAMPLES = ROOT / "examples" / "methods"


def set_up(home: Home, directory: Path) -> Path:
    """The CRM, lazy; both example Methods, reviewed by rita with her token."""
    kept = directory / "crm.json"
    config = directory / "crm.mcp.json"
    command = str(ROOT / "examples" / "crm" / "run")
    config.write_text(json.dumps({"mcpServers": {"crm": {"command": command, "args": ["--data", str(kept)]}}}))
    manage(home, "servers", "import", str(config), "--yes", "--exposure", "lazy")
    rita, _ = person("rita", "gateway.review_method")
    _, secret = tokens.create(name="rita", user=rita, scopes=["operate"], expires_at=None, principal="system")
    files = [str(path) for path in sorted(EXAMPLES.glob("*.json"))]
    shown = manage(home, "methods", "import", *files, "--yes", "--reviewed", MEAH_TOKEN=secret)
    assert "warning" not in shown and shown.count("reviewed.") == 2
    return kept


def test_a_reviewed_method_is_found_and_run(home: Home, tmp_path: Path) -> None:
    set_up(home, tmp_path)
    with Server(home, era=MODERN) as client:
        client.initialize()
        found = data(ask(client, "mcp_discover", kind="method", query="brief me on a ticket"))["methods"]
        assert (found[0]["method"], found[0]["version"], found[0]["steps"]) == ("ticket.brief", "1", 3)
        answer = data(ask(client, "mcp_run", method="ticket.brief", input={"ticketId": "T-1001"}))
        assert (answer["status"], answer["gaps"]) == ("completed", [])
        assert answer["output"]["headline"] == "T-1001: Invoice shows the wrong address"
        assert answer["output"]["customer"]["name"] == "Acme Tools"
        assert data(ask(client, "mcp_run", runId=answer["runId"])) == answer

        failed = ask(client, "mcp_run", method="ticket.brief", input={"ticketId": "T-9"})["structuredContent"]
        assert not failed["ok"] and failed["error"]["details"]["status"] == "failed"
        assert failed["error"]["details"]["trace"][0]["attempts"] == 2

        def code(**arguments: Any) -> tuple[str, str]:
            error = ask(client, "mcp_run", **arguments)["structuredContent"]["error"]
            return error["code"], error.get("details", {}).get("reason", "")

        assert code() == ("E_INVALID_REQUEST", "arguments")
        assert code(method="ticket.brief", runId=answer["runId"]) == ("E_INVALID_REQUEST", "arguments")
        assert code(runId="mr_" + "0" * 20)[0] == "E_NOT_FOUND"
        assert code(method="ticket.brief", version="2")[0] == "E_NOT_FOUND"
        assert code(method="ticket.brief", input={"ticketId": "x"}) == ("E_INVALID_REQUEST", "input")
        assert code(method="ticket.answer", input={"ticketId": "T-1001", "comment": "c"}) == (
            "E_DENIED",
            "writes_not_allowed",
        )


def test_a_parked_run_goes_on_after_meah_was_killed(home: Home, tmp_path: Path) -> None:
    kept = set_up(home, tmp_path)
    approver, _ = person("ann", DECIDE)
    wanted = {"ticketId": "T-1002", "comment": "On its way."}
    with Server(home, era=LEGACY, options=["--allow-writes"]) as client:
        client.initialize()
        parked = data(ask(client, "mcp_run", method="ticket.answer", input=wanted))
        assert parked["status"] == "pending_approval" and parked["trace"][0]["status"] == "pending_approval"
        os.kill(client.process.pid, signal.SIGKILL)
        client.process.wait(10)
    services.approve(services.get(parked["approvalId"]), user=approver, note="yes", door="admin")

    with Server(home, era=LEGACY, options=["--allow-writes"]) as client:
        client.initialize()

        def second() -> dict[str, Any] | None:
            run = data(ask(client, "mcp_run", runId=parked["runId"]))
            return run if run["approvalId"] not in (None, parked["approvalId"]) else None

        run = eventually(second, within_s=30)
        assert run and [line["status"] for line in run["trace"]] == ["done", "pending_approval"]
        services.approve(services.get(run["approvalId"]), user=approver, note="yes", door="admin")

        def over() -> dict[str, Any] | None:
            found = data(ask(client, "mcp_run", runId=parked["runId"]))
            return found if found["status"] == "completed" else None

        run = eventually(over, within_s=30)
        assert run and run["output"]["status"] == "in_progress"
    bodies = [comment["body"] for comment in json.loads(kept.read_text())["tickets"]["T-1002"]["comments"]]
    assert bodies.count("On its way.") == 1
    steps = list(Call.objects.filter(run=parked["runId"]).exclude(step="").order_by("id").values_list("step", "state"))
    assert steps == [("comment#1", "done"), ("status#1", "done")]
    assert User.objects.filter(username="ann").exists() and not alive(client.process.pid)
