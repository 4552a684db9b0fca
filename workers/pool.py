"""The engine of workers: runs what this process accepted, oldest first, at most `maxConcurrent` at once.

It holds no state that matters: what is queued, running or to be cancelled stands in the rows. A bell (or a second
without one) makes it look again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from functools import partial

from audit.dbthread import in_db
from core.logs import event
from workers import services
from workers.config import effective
from workers.models import Worker, WorkerState
from workers.run import run_worker

log = logging.getLogger("meah.pool")

STOP_WITHIN_S = 3.0


class Pool:
    """Use from one event loop. `look` is cheap and may be called at any time; `stop` cancels what is left."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._running: dict[str, asyncio.Task[None]] = {}
        self._cancelled: set[str] = set()
        self._waiters: dict[str, asyncio.Event] = {}
        self._looking = asyncio.Lock()
        self._look_again = False
        self._stopping = False

    async def look(self) -> None:
        """Obey cancel orders, start what is queued while there is room, tell waiters what has ended."""
        self._look_again = True
        if self._looking.locked():
            return
        async with self._looking:
            while self._look_again and not self._stopping:
                self._look_again = False
                await self._obey_cancel_orders()
                await self._start_queued()
                await self._notice_ended()

    @property
    def busy(self) -> int:
        return len(self._running)

    async def wait(self, public_ids: Iterable[str], timeout_s: float) -> None:
        """Until all of these workers of this process have ended, or the time is over."""
        events = [self._waiters.setdefault(public_id, asyncio.Event()) for public_id in public_ids]
        await self.look()
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            if waits:
                await asyncio.wait(waits, timeout=timeout_s)
        finally:
            for wait in waits:
                wait.cancel()

    async def idle(self) -> None:
        """Until nothing of this process is queued or running."""
        while await in_db(_active_ids, self.owner) or self._running:
            await asyncio.sleep(0.1)
            await self.look()

    async def stop(self, reason: str) -> None:
        """Cancel everything of this process and wait a moment for the rows to say so."""
        self._stopping = True
        await in_db(_cancel_all, self.owner, reason)
        tasks = list(self._running.values())
        for public_id in list(self._running):
            self._cancel(public_id)
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_WITHIN_S)

    async def _obey_cancel_orders(self) -> None:
        if not self._running:
            return
        for public_id in await in_db(_ordered_to_stop, list(self._running)):
            self._cancel(public_id)

    def _cancel(self, public_id: str) -> None:
        """Once only: a second cancel would break off the writing of the row that the first one led to."""
        if (task := self._running.get(public_id)) and public_id not in self._cancelled:
            self._cancelled.add(public_id)
            task.cancel()

    async def _start_queued(self) -> None:
        limit = (await in_db(effective)).limits.max_concurrent
        while len(self._running) < limit and not self._stopping:
            worker = await in_db(services.start_next, self.owner)
            if worker is None:
                return
            # The deadline starts with the row's own start, not when the task gets its first turn.
            deadline = time.monotonic() + worker.timeout_ms / 1000
            task = asyncio.create_task(run_worker(worker, deadline), name=f"worker-{worker.public_id}")
            self._running[worker.public_id] = task
            task.add_done_callback(partial(self._ended, worker.public_id))

    def _ended(self, public_id: str, task: asyncio.Task[None]) -> None:
        self._running.pop(public_id, None)
        self._cancelled.discard(public_id)
        if not task.cancelled() and (error := task.exception()):
            event(log, "worker_runner_failed", level="error", worker=public_id, exc_info=error)
        if waiter := self._waiters.pop(public_id, None):
            waiter.set()
        if not self._stopping:
            # Kept by the loop through the lock it takes; a lost one would only wait for the next bell.
            self._next_look = asyncio.ensure_future(self.look())

    async def _notice_ended(self) -> None:
        """Workers that something else ended (cancelled while queued, settled by another process)."""
        waited = [public_id for public_id in self._waiters if public_id not in self._running]
        if not waited:
            return
        for public_id in await in_db(_finished_among, waited):
            if waiter := self._waiters.pop(public_id, None):
                waiter.set()


def _active_ids(owner: str) -> list[str]:
    return list(Worker.objects.active().filter(owner=owner).values_list("public_id", flat=True))


def _ordered_to_stop(running: list[str]) -> list[str]:
    ordered = Worker.objects.filter(public_id__in=running, state=WorkerState.RUNNING, cancel_requested_at__isnull=False)
    return list(ordered.values_list("public_id", flat=True))


def _finished_among(public_ids: list[str]) -> list[str]:
    return list(Worker.objects.finished().filter(public_id__in=public_ids).values_list("public_id", flat=True))


def _cancel_all(owner: str, reason: str) -> None:
    services.cancel_many(_active_ids(owner), principal=services.SYSTEM, reason=reason)
