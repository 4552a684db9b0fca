"""A worker that brings a command: held by the shipped rule, approved, run in the sandbox, its output in the prompt."""

from __future__ import annotations

import json

import pytest

from approvals import services
from audit.models import Entry
from audit.services import verify
from tests.approvals.requests import person
from tests.conftest import Home
from tests.e2e.providers import environ
from tests.e2e.server import Server
from tests.fake_provider import FakeProvider
from workers.models import Worker, WorkerSettings
from workers.terminal import sandbox

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason=f"no sandbox here: {sandbox.missing()}")


def test_a_command_is_held_approved_run_and_shown_to_the_model(home: Home) -> None:
    boss, _ = person("boss", "approvals.decide_approval")
    WorkerSettings.objects.create(pk=1, terminal_enabled=True, terminal_allowlist=["/bin/cat", "/bin/ls"])
    asked = {
        "task": "What do the notes say?",
        "context": [{"name": "notes.md", "content": "the harbour is frozen"}],
        "permissionProfile": "workspace-exec",
        "commands": ["cat context/notes.md", ["ls", "/nowhere"]],
    }
    with FakeProvider() as fake, Server(home, environ=environ(fake)) as agent:
        agent.initialize()
        held = agent.data("meah_run_agent", **asked)
        assert held["status"] == "pending_approval" and held["rule"] == "meah-exec-run"
        assert not fake.requests and not Worker.objects.exists()
        services.approve(services.get(held["approvalId"]), user=boss, note="fine", door="admin")
        while (found := agent.data("approval_status", approvalId=held["approvalId"], waitMs=20_000))[
            "status"
        ] != "done":
            assert found["status"] in ("pending_approval", "approved", "executing"), found
        [worker_id] = found["result"]["started"]
        assert agent.ended(worker_id)["state"] == "succeeded"
        prompt = json.dumps(fake.requests[0].json["messages"])
    assert "the harbour is frozen" in prompt and "$ /bin/cat context/notes.md" in prompt
    assert "exit status 2" in prompt and "BEGIN UNTRUSTED" in prompt
    worker = Worker.objects.get()
    assert [(ran["status"], ran["sandboxed"]) for ran in worker.command_results] == [(0, True), (2, True)]
    kinds = list(Entry.objects.values_list("kind", flat=True))
    assert {"sandbox.tested", "worker.commands_ran"} <= set(kinds)
    assert verify().whole
