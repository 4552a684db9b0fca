"""Workers as lists show them: without their texts, which can be megabytes, but with the beginning of the task."""

from __future__ import annotations

from typing import Final

from django.db.models import QuerySet
from django.db.models.functions import Substr

from core.text import one_line
from workers.models import Worker

TITLE_CHARS: Final = 80
_TEXTS: Final = (
    "task",
    "context",
    "constraints",
    "expected_output",
    "partial",
    "result",
    "transcript",
    "notes",
)


def listed(rows: QuerySet[Worker]) -> QuerySet[Worker]:
    """The same rows, with `task_start` in place of their texts."""
    return rows.defer(*_TEXTS).annotate(task_start=Substr("task", 1, TITLE_CHARS))


def title_of(worker: Worker) -> str:
    """Its label, else the beginning of its task, else its id: one visible line."""
    text = worker.label or getattr(worker, "task_start", None) or worker.task[: 2 * TITLE_CHARS]
    return one_line(text, TITLE_CHARS) or worker.public_id
