"""What is thrown away stays nowhere, and what is kept stays whole."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from audit.models import Entry
from core.errors import MeahError
from tests.conftest import Home
from tests.rows import make_worker
from workers import housekeeping
from workers.config import effective
from workers.models import Worker
from workers.routing import Config, Limits
from workers.workspace import Workspace

pytestmark = pytest.mark.usefixtures("home")

LONG_AGO = timedelta(days=40)


def with_workspace(**values: object) -> tuple[Worker, Path]:
    worker = make_worker(**({"state": "succeeded", "finished_at": timezone.now()} | values))
    workspace = Workspace(housekeeping.workspace_root(effective()), worker.public_id)
    workspace.create()
    workspace.write("context/a.txt", "text")
    Worker.objects.filter(pk=worker.pk).update(workspace=worker.public_id)
    return worker, workspace.path


def test_workspaces_stand_in_the_home_unless_they_are_told_otherwise(home: Home, tmp_path: Path) -> None:
    assert housekeeping.workspace_root(Config()) == home.path / "workspaces"
    elsewhere = Config(limits=Limits(workspace_root=str(tmp_path / "elsewhere")))
    assert housekeeping.workspace_root(elsewhere) == tmp_path / "elsewhere"


def test_a_finished_workers_directory_goes_and_its_record_stays() -> None:
    worker, path = with_workspace(result="Done.")
    assert housekeeping.remove_workspace(worker) is True
    assert not path.exists()
    assert housekeeping.remove_workspace(worker) is False
    worker.refresh_from_db()
    assert (worker.workspace, worker.result) == ("", "Done.")


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_directory_in_use_stays(state: str) -> None:
    worker, path = with_workspace(state=state, finished_at=None)
    with pytest.raises(MeahError) as caught:
        housekeeping.remove_workspace(worker)
    assert caught.value.code == "E_INVALID_REQUEST" and "meah_cancel_agent" in caught.value.hint
    assert path.exists()


def test_the_state_of_now_counts_not_the_one_that_was_read() -> None:
    worker, path = with_workspace()
    Worker.objects.filter(pk=worker.pk).update(state="running")
    with pytest.raises(MeahError):
        housekeeping.remove_workspace(worker)
    assert path.exists()


def test_old_directories_are_found_on_the_disk_whatever_the_rows_say() -> None:
    old, _ = with_workspace(finished_at=timezone.now() - LONG_AGO)
    Worker.objects.update(workspace="")
    with_workspace()
    with_workspace(state="running", finished_at=None)
    found = housekeeping.finished_workspaces(older_than_days=30)
    assert [info.worker_id for info in found] == [old.public_id] and found[0].files == 1
    assert len(housekeeping.finished_workspaces(older_than_days=0)) == 2


def test_texts_past_their_time_are_emptied_in_batches_and_everything_else_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(housekeeping, "PURGE_BATCH", 2)
    texts = {
        "task": "t",
        "context": [{"name": "a", "content": "c"}],
        "constraints": ["c"],
        "expected_output": "e",
        "result": "r",
        "transcript": {"answer": "a"},
    }
    for _ in range(3):
        make_worker(state="failed", finished_at=timezone.now() - LONG_AGO, label="kept", **texts)
    young = make_worker(state="failed", finished_at=timezone.now(), **texts)
    active = make_worker(state="running", **texts)
    assert housekeeping.past_retention(older_than_days=30).count() == 3
    assert housekeeping.purge_texts(older_than_days=30, principal="system") == 3
    assert housekeeping.purge_texts(older_than_days=30, principal="system") == 0
    for worker in Worker.objects.all():
        if worker.pk in (young.pk, active.pk):
            assert worker.task == "t" and worker.purged_at is None
        else:
            assert {name: getattr(worker, name) for name in housekeeping.EMPTY_TEXTS} == housekeeping.EMPTY_TEXTS
            assert worker.purged_at is not None and worker.label == "kept" and worker.state == "failed"
    assert list(Entry.objects.values_list("kind", flat=True)) == ["worker.purged"] * 2


@pytest.mark.parametrize("days", [float("inf"), float("nan"), 1e300])
def test_a_number_of_days_that_no_calendar_has_is_refused(days: float) -> None:
    with pytest.raises(MeahError, match="no number of days"):
        housekeeping.past_retention(older_than_days=days)
