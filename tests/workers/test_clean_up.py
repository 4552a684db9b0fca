"""Cleaning up through the gate, and keys that became known a moment ago."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.utils import timezone

from approvals.governor import decide, submit
from approvals.targets import CallRequest
from audit.dbthread import in_db
from core.errors import MeahError
from tests.rows import make_worker
from workers import services
from workers.housekeeping import workspace_root
from workers.models import Provider, Worker
from workers.routing import Config
from workers.target import SERVER
from workers.workspace import Workspace

pytestmark = pytest.mark.usefixtures("home")


def request(tool: str, **arguments: Any) -> CallRequest:
    return CallRequest("agent:test", SERVER, tool, arguments, "mcp")


def with_workspace() -> tuple[Worker, Workspace]:
    worker = make_worker(state="succeeded", finished_at=timezone.now())
    Worker.objects.update(workspace=worker.public_id)
    workspace = Workspace(workspace_root(Config()), worker.public_id)
    workspace.create()
    return worker, workspace


@pytest.mark.parametrize("gives_up", [False, True])
def test_the_database_thread_is_free_while_files_are_deleted(
    run: Any, monkeypatch: pytest.MonkeyPatch, gives_up: bool
) -> None:
    worker, workspace = with_workspace()
    remove, began, go_on = Workspace.remove, threading.Event(), threading.Event()

    def slow(self: Workspace) -> bool:
        began.set()
        assert go_on.wait(20)
        return remove(self)

    async def main() -> None:
        call = asyncio.create_task(submit(request("meah_cleanup_workspace", workerId=worker.public_id)))
        await asyncio.to_thread(began.wait, 20)
        assert (await asyncio.wait_for(in_db(services.get, worker.public_id), 10)) == worker
        if gives_up:
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        go_on.set()
        if not gives_up:
            assert (await call).result["removed"] is True
        while (await in_db(services.get, worker.public_id)).workspace:
            await asyncio.sleep(0.02)

    monkeypatch.setattr(Workspace, "remove", slow)
    run(main())
    assert not workspace.exists()


def test_a_key_whose_variable_was_named_a_moment_ago_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEAH_TEST_JUST_ADDED_KEY", "wholly-new-horse-staple")
    Provider.objects.create(name="new", base_url="https://x.example.com/v1", api_key_env="MEAH_TEST_JUST_ADDED_KEY")
    with pytest.raises(MeahError) as caught:
        decide(request("meah_run_agent", task="Use wholly-new-horse-staple."))
    assert caught.value.code == "E_PERMISSION" and "MEAH_TEST_JUST_ADDED_KEY" in caught.value.message
