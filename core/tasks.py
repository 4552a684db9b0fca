"""Tasks that outlive whoever started them: kept from the garbage collector, and never failing unseen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from core.logs import event

T = TypeVar("T")

log = logging.getLogger("meah.tasks")

_kept: Final[set[asyncio.Task[Any]]] = set()


def in_task(work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Run it in a task of its own. Nobody has to wait for it, or to hold it; what it raises is logged."""
    task = asyncio.create_task(work, name=name)
    _kept.add(task)
    task.add_done_callback(_let_go)
    return task


def _let_go(task: asyncio.Task[Any]) -> None:
    _kept.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        event(log, "task_failed", level="debug", task=task.get_name(), exc_info=error)
