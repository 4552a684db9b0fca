"""What is thrown away, and when: workspaces of finished workers, texts past their time."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from audit.services import record
from core.canonical import utc_text
from core.errors import MeahError
from workers.config import effective
from workers.models import Worker, WorkerQuerySet
from workers.routing import Config
from workers.workspace import Workspace, WorkspaceInfo, all_workspaces

PURGE_BATCH: Final = 500
EMPTY_TEXTS: Final[dict[str, Any]] = {
    "task": "",
    "context": [],
    "constraints": [],
    "expected_output": "",
    "partial": "",
    "result": "",
    "transcript": None,
}


def workspace_root(config: Config) -> Path:
    """Where workspaces are: relative roots stand in MEAH_HOME."""
    return Path(settings.MEAH_HOME) / Path(config.limits.workspace_root).expanduser()


def remove_workspace(worker: Worker) -> bool:
    """Delete a finished worker's directory and keep its record. False when there was none; a repeat is no error.

    Raises MeahError E_INVALID_REQUEST while it is queued or running.
    """
    removed = finished_workspace(worker).remove()
    forget_workspace(worker)
    return removed


def finished_workspace(worker: Worker) -> Workspace:
    """The directory of a worker, to be removed. Raises MeahError E_INVALID_REQUEST while it is queued or running."""
    worker.refresh_from_db(fields=["state", "workspace"])
    refuse_active(worker)
    return Workspace(workspace_root(effective()), worker.public_id)


def forget_workspace(worker: Worker) -> None:
    """Its directory is gone; its row says so."""
    with transaction.atomic():
        Worker.objects.filter(pk=worker.pk).update(workspace="")


def refuse_active(worker: Worker) -> None:
    """Raises MeahError E_INVALID_REQUEST while the worker is queued or running."""
    if worker.is_active:
        raise MeahError(
            "E_INVALID_REQUEST",
            f"{worker.public_id} is {worker.state}: its workspace is in use.",
            hint="Cancel it first with meah_cancel_agent; cleanupWorkspace there does both.",
        )


def finished_workspaces(*, older_than_days: float) -> list[WorkspaceInfo]:
    """The workspaces on disk whose workers ended before then, oldest worker first.

    The disk is asked and not the column: a worker whose process died left a directory that no row names.
    """
    there = {info.worker_id: info for info in all_workspaces(workspace_root(effective()))}
    ended = Worker.objects.finished().filter(finished_at__lt=_days_ago(older_than_days)).order_by("pk")
    return [there[name] for name in ended.values_list("public_id", flat=True) if name in there]


def past_retention(*, older_than_days: float) -> WorkerQuerySet:
    """Workers that ended before then and still have their texts."""
    return _unpurged(_days_ago(older_than_days))


def purge_texts(*, older_than_days: float, principal: str) -> int:
    """Empty the texts of workers that ended before then; records and the chain stay. Returns how many."""
    before = _days_ago(older_than_days)
    total = 0
    while True:
        with transaction.atomic():
            batch = list(_unpurged(before).order_by("pk").values_list("pk", flat=True)[:PURGE_BATCH])
            if not batch:
                return total
            Worker.objects.filter(pk__in=batch).update(**EMPTY_TEXTS, purged_at=Now())
            data = {"workers": len(batch), "endedBefore": utc_text(before)}
            record("worker.purged", principal=principal, data=data)
            total += len(batch)


def _unpurged(before: datetime) -> WorkerQuerySet:
    return Worker.objects.finished().filter(finished_at__lt=before, purged_at__isnull=True)


def _days_ago(days: float) -> datetime:
    """Raises MeahError E_INVALID_REQUEST for a number of days that no calendar has."""
    try:
        return timezone.now() - timedelta(days=days)
    except (OverflowError, ValueError):
        raise MeahError("E_INVALID_REQUEST", f"{days} is no number of days.") from None
