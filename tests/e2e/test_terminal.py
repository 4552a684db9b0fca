"""A worker that brings a command: held by the shipped rule, approved, run in the sandbox, its output in the prompt."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals import services
from audit.models import Entry
from audit.services import verify
from tests.approvals.requests import person
from tests.conftest import Home
from tests.e2e.providers import environ
from tests.e2e.server import Server, eventually
from tests.fake_provider import FakeProvider
from workers.models import Worker, WorkerSettings
from workers.terminal import sandbox

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason=f"no sandbox here: {sandbox.missing()}")
EXEC = {"permissionProfile": "workspace-exec"}
# Ignores what can be ignored, and leaves its session, its group and its parent.
STUBBORN = "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; sleep {n} & sleep {n}' &); sleep {n}"
RESPONSIVE_S = 2.5


@pytest.fixture
def boss(home: Home) -> User:
    user, _ = person("boss", "approvals.decide_approval")
    WorkerSettings.objects.create(pk=1, terminal_enabled=True, terminal_allowlist=["/bin/cat", "/bin/ls", "/bin/sh"])
    return user


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


def held(agent: Server, **asked: Any) -> dict[str, Any]:
    found = agent.data("meah_run_agent", **EXEC, **asked)
    assert found["status"] == "pending_approval" and found["rule"] == "meah-exec-run"
    return found


def approved(agent: Server, boss: User, approval_id: str) -> str:
    """The worker that it starts."""
    services.approve(services.get(approval_id), user=boss, note="fine", door="admin")
    while (found := agent.data("approval_status", approvalId=approval_id, waitMs=20_000))["status"] != "done":
        assert found["status"] in ("pending_approval", "approved", "executing"), found
    [worker_id] = found["result"]["started"]
    return str(worker_id)


def started(agent: Server, boss: User, script: str) -> str:
    return approved(agent, boss, held(agent, task="Look.", commands=[["sh", "-c", script]])["approvalId"])


def sleeping(number: int) -> list[str]:
    """Processes that carry this number on their command line."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"sleep {number}" in line:
            lines.append(line)
    return lines


def test_a_command_is_held_approved_run_and_shown_to_the_model(home: Home, boss: User, fake: FakeProvider) -> None:
    with Server(home, environ=environ(fake)) as agent:
        agent.initialize()
        request = held(
            agent,
            task="What do the notes say?",
            context=[{"name": "notes.md", "content": "the harbour is frozen"}],
            commands=["cat context/notes.md", ["ls", "/nowhere"]],
        )
        assert not fake.requests and not Worker.objects.exists()
        worker_id = approved(agent, boss, request["approvalId"])
        assert agent.ended(worker_id)["state"] == "succeeded"
        prompt = json.dumps(fake.requests[0].json["messages"])
    assert "the harbour is frozen" in prompt and "$ /bin/cat context/notes.md" in prompt
    assert "exit status 2" in prompt and "BEGIN UNTRUSTED" in prompt
    worker = Worker.objects.get()
    assert [(ran["status"], ran["sandboxed"]) for ran in worker.command_results] == [(0, True), (2, True)]
    entries = list(Entry.objects.filter(subject=worker_id).order_by("seq").values_list("kind", flat=True))
    assert entries.index("worker.commands_started") < entries.index("worker.commands_ran")
    assert Entry.objects.filter(kind="sandbox.tested").count() == 1
    assert verify().whole
    page = _page(worker_id)
    assert "/bin/cat context/notes.md" in page and "exit status 2" in page and "without a sandbox" not in page


def _page(worker_id: str) -> str:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client.get(reverse("admin:workers_worker_change", args=[worker_id])).content.decode()


def test_a_cancel_ends_what_a_command_has_started(home: Home, boss: User, fake: FakeProvider) -> None:
    with Server(home, environ=environ(fake)) as agent:
        agent.initialize()
        worker_id = started(agent, boss, STUBBORN.format(n=41_501))
        eventually(lambda: len(sleeping(41_501)) >= 3, within_s=20)
        begun = time.monotonic()
        assert agent.data("meah_cancel_agent", workerId=worker_id)["workerId"] == worker_id
        eventually(lambda: not sleeping(41_501), within_s=3)
        assert time.monotonic() - begun < 3
        assert agent.ended(worker_id)["state"] == "cancelled"
        assert not fake.requests


def test_a_server_that_is_killed_leaves_no_command_behind(home: Home, boss: User, fake: FakeProvider) -> None:
    with Server(home, environ=environ(fake)) as agent:
        agent.initialize()
        started(agent, boss, STUBBORN.format(n=41_502))
        eventually(lambda: len(sleeping(41_502)) >= 3, within_s=20)
        agent.end(signal.SIGKILL)
        agent.gone(within_s=5)
        eventually(lambda: not sleeping(41_502), within_s=3)


@pytest.mark.parametrize(
    ("greedy", "told"),
    [("cat /dev/zero", "wrote more than"), ("while :; do :; done", "took more than"), ("b() { b | b & }; b", "")],
    ids=["output", "spin", "fork bomb"],
)
def test_the_server_answers_while_a_command_takes_all_it_can(
    home: Home, boss: User, fake: FakeProvider, greedy: str, told: str
) -> None:
    with Server(home, environ=environ(fake, MEAH_TERMINAL_TIMEOUT_MS="2000")) as agent:
        agent.initialize()
        worker_id = started(agent, boss, greedy)
        longest = 0.0
        while (worker := agent.worker(worker_id))["state"] in ("queued", "running"):
            begun = time.monotonic()
            agent.data("meah_list_agents")
            longest = max(longest, time.monotonic() - begun)
        assert worker["state"] == "succeeded" and longest < RESPONSIVE_S
    assert told in json.dumps(fake.requests[0].json["messages"])


def test_a_call_that_asks_for_what_is_not_allowed_is_refused_and_nobody_is_asked(
    home: Home, boss: User, fake: FakeProvider
) -> None:
    with Server(home, environ=environ(fake)) as agent:
        agent.initialize()
        for command in ("id", "cat a; ls", "/bin/../bin/ls", ["python3", "-c", "1"]):
            error = agent.error("meah_run_agent", task="Look.", commands=[command], **EXEC)
            assert error["code"] == "E_PERMISSION" and "terminal.allowlist" in error["hint"]
        error = agent.error("meah_run_agent", task="Look.", commands=["ls"])
        assert error["code"] == "E_PERMISSION" and "workspace-exec" in error["hint"]
    assert not Worker.objects.exists() and not fake.requests
