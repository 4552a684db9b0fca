"""`manage.py workers`: what the host's operator can see and do without a browser."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from approvals.models import Call
from audit.models import Entry
from audit.services import verify
from tests.conftest import Home
from workers.models import Worker, WorkerSettings
from workers.workspace import Workspace

pytestmark = pytest.mark.usefixtures("home")


def workers(*arguments: str) -> str:
    out = io.StringIO()
    call_command("workers", *arguments, stdout=out)
    return out.getvalue()


def make_worker(*, days_ago: float | None = None, **fields: Any) -> Worker:
    call = Call.objects.create(state="done", principal="agent:t", server="meah", tool="meah_run_agent", door="mcp")
    values: dict[str, Any] = {
        "call": call,
        "principal": "agent:t",
        "owner": "p_" + "0" * 20,
        "role": "coder",
        "provider": "mock",
        "model": "mock-1",
        "timeout_ms": 1000,
        "max_output_tokens": 100,
        "task": "Mend it.",
    }
    if days_ago is not None:
        values |= {"state": "succeeded", "finished_at": timezone.now() - timedelta(days=days_ago), "result": "Mended."}
    return Worker.objects.create(**(values | fields))


def with_workspace(home: Home, worker: Worker) -> Workspace:
    workspace = Workspace(home.path / "workspaces", worker.public_id)
    workspace.create()
    workspace.write("result.md", "x" * 2_000)
    return workspace


def test_the_list_shows_newest_first_and_one_state_when_asked() -> None:
    first, second = make_worker(days_ago=1, label="the first"), make_worker(label="the second")
    lines = workers("list").splitlines()
    assert [line.split()[0] for line in lines] == ["id", second.public_id, first.public_id]
    assert "the first" in lines[2]
    assert second.public_id not in workers("list", "--state", "succeeded")
    assert [item["workerId"] for item in json.loads(workers("list", "--json", "--limit", "1"))["workers"]] == [
        second.public_id
    ]


def test_an_empty_list_says_so() -> None:
    assert workers("list") == "There are no workers yet.\n"
    assert json.loads(workers("list", "--json")) == {"workers": []}


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--state", "lost"],
        ["list", "--limit", "0"],
        ["list", "--limit", "-1"],
        ["cleanup", "--older-than", "-1"],
        ["purge", "--older-than", "nan"],
        ["purge", "--older-than", "1e300"],
        ["show", "w_ffffffffffffffffffff"],
        ["cancel", "x"],
    ],
)
def test_bad_arguments_are_one_error_that_says_what_to_do(arguments: list[str]) -> None:
    with pytest.raises(CommandError) as error:
        workers(*arguments)
    assert str(error.value)


def test_show_has_the_whole_worker_with_hidden_characters_made_visible() -> None:
    worker = make_worker(days_ago=1, result="R" * 50_000 + "\u202e", task="Mend\x1b[31m it.", input_tokens=7)
    shown = workers("show", worker.public_id)
    assert "R" * 50_000 + "⟨U+202E⟩" in shown
    assert "\x1b" not in shown
    assert "inputTokens        7" in shown
    data = json.loads(workers("show", worker.public_id, "--json"))
    assert data["workerId"] == worker.public_id
    assert data["result"]["nextOffset"] is None


def test_show_has_the_error_with_its_hint() -> None:
    error = {"code": "E_AUTH", "message": "The provider refused the key.", "retryable": False, "hint": "Check it."}
    shown = workers("show", make_worker(days_ago=0, state="failed", error=error, result="").public_id)
    assert "E_AUTH: The provider refused the key." in shown
    assert "Check it." in shown


def test_a_queued_worker_is_cancelled_through_the_gate() -> None:
    worker = make_worker()
    assert workers("cancel", worker.public_id, "--reason", "not needed") == f"{worker.public_id} is cancelled.\n"
    call = Call.objects.latest("pk")
    assert (call.principal, call.door, call.tool) == ("system", "command", "meah_cancel_agent")
    entry = Entry.objects.get(kind="worker.cancel_requested", subject=worker.public_id)
    assert (entry.principal, json.loads(bytes(entry.payload))["data"]["reason"]) == ("system", "not needed")
    assert verify().whole


def test_a_running_worker_is_ordered_to_stop_and_a_finished_one_left_alone() -> None:
    running, finished = make_worker(state="running", started_at=timezone.now()), make_worker(days_ago=1)
    assert "is told to stop" in workers("cancel", running.public_id)
    running.refresh_from_db()
    assert running.state == "running"
    assert running.cancel_requested_at is not None
    assert "ended already: succeeded" in workers("cancel", finished.public_id)


def test_a_clean_up_only_says_what_it_would_do_until_it_is_told_yes(home: Home) -> None:
    old, new, running = make_worker(days_ago=10), make_worker(days_ago=1), make_worker(state="running")
    kept = [with_workspace(home, worker) for worker in (new, running)]
    gone = with_workspace(home, old)
    said = workers("cleanup", "--older-than", "5")
    assert "Would delete 1 workspace, 2.0 kB." in said
    assert old.public_id in said
    assert gone.exists()
    assert workers("cleanup", "--older-than", "5", "--yes").startswith("Deleted 1 workspace of 1")
    assert not gone.exists()
    assert all(workspace.exists() for workspace in kept)
    assert Call.objects.get(tool="meah_cleanup_workspace").state == "done"


def test_a_clean_up_finds_the_workspace_of_a_worker_whose_process_died(home: Home) -> None:
    """Its row never learned that there is a directory."""
    worker = make_worker(days_ago=1, state="failed", workspace="")
    workspace = with_workspace(home, worker)
    workers("cleanup", "--yes")
    assert not workspace.exists()
    assert "Nothing to delete" in workers("cleanup", "--yes")


def test_one_workspace_that_refuses_does_not_keep_the_others(home: Home, tmp_path: Any) -> None:
    astray, plain = make_worker(days_ago=2), make_worker(days_ago=1)
    for worker in (astray, plain):
        with_workspace(home, worker)

    from workers import housekeeping

    found = housekeeping.finished_workspaces(older_than_days=0)
    with_workspace(home, astray).remove()
    (home.path / "workspaces" / astray.public_id).symlink_to(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        # The link came between the look and the deletion.
        patch.setattr(housekeeping, "finished_workspaces", lambda **_: found)
        with pytest.raises(CommandError, match=f"{astray.public_id}: E_PATH_ESCAPE"):
            workers("cleanup", "--yes")
    assert not Workspace(home.path / "workspaces", plain.public_id).exists()
    assert tmp_path.exists()


def test_a_purge_deletes_texts_past_the_retention_and_says_so_first() -> None:
    WorkerSettings.objects.create(pk=1, retention_days=7)
    old, new = make_worker(days_ago=8), make_worker(days_ago=6)
    assert "Would delete the texts of 1 worker that ended more than 7 days ago." in workers("purge")
    old.refresh_from_db()
    assert old.result == "Mended."
    assert workers("purge", "--yes").startswith("Deleted the texts of 1 worker;")
    old.refresh_from_db()
    new.refresh_from_db()
    assert (old.task, old.result, old.state) == ("", "", "succeeded")
    assert new.result == "Mended."
    assert "Nothing to purge" in workers("purge", "--yes")
    assert Entry.objects.filter(kind="worker.purged").count() == 1


def test_a_purge_of_everything_leaves_what_still_runs() -> None:
    running = make_worker(state="running")
    make_worker(days_ago=0.001)
    workers("purge", "--older-than", "0", "--yes")
    running.refresh_from_db()
    assert running.task == "Mend it."
    assert Worker.objects.filter(purged_at=None).count() == 1
