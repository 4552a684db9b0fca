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
from typing import Final

from audit.dbthread import in_db
from core.errors import MeahError
from core.logs import event
from core.tasks import in_task
from workers import services
from workers.config import effective
from workers.models import Worker, WorkerState
from workers.routing import Limits
from workers.run import WorkerRun

log = logging.getLogger("meah.pool")

LOOK_WITHIN_S: Final = 1.0
STOP_WITHIN_S: Final = 2.5


class Pool:
    """Use from one event loop. `look` is cheap and may be called at any time; `stop` cancels what is left."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._running: dict[str, WorkerRun] = {}
        self._waiters: dict[str, asyncio.Event] = {}
        self._looker: asyncio.Task[None] | None = None
        self._look_again = False
        self._closed_because = ""
        self._stopped = False

    @property
    def busy(self) -> int:
        return len(self._running)

    def close(self, why: str) -> None:
        """Take no more starts; what is queued and running goes on."""
        self._closed_because = why

    def check_open(self) -> None:
        """Raises MeahError E_UNAVAILABLE once this process takes no more work."""
        if self._closed_because:
            raise MeahError(
                "E_UNAVAILABLE",
                self._closed_because,
                hint="Restart the MCP client's connection to MEAH, then call again.",
                reason="closing",
            )

    async def look(self) -> None:
        """Obey cancel orders, start what is queued while there is room, tell waiters what has ended.

        Returns once everything that was there at the call has been seen. Never raises; looking is a task of its own,
        so that a cancelled caller can not leave a worker claimed but not run.
        """
        self._look_again = True
        if self._looker is None or self._looker.done():
            self._looker = in_task(self._look_until_quiet(), name="pool-look")
        await asyncio.shield(self._looker)

    async def wait(self, public_ids: Iterable[str], timeout_s: float) -> None:
        """Until all of these workers have ended, or the time is over."""
        ended = [self._waiters.setdefault(public_id, asyncio.Event()).wait() for public_id in public_ids]
        waits = [asyncio.ensure_future(wait) for wait in ended]
        try:
            async with asyncio.timeout(timeout_s):
                await self.look()
                await asyncio.gather(*waits)
        except TimeoutError:
            pass
        finally:
            for wait in waits:
                wait.cancel()

    async def idle(self) -> None:
        """Until nothing of this process is queued or running."""
        while (active := await in_db(_active_ids, self.owner)) or self._running:
            if active:
                await self.wait(active, 1.0)
            else:
                # The last row is written, its task is about to end.
                await asyncio.sleep(0.01)

    async def stop(self, reason: str) -> None:
        """Cancel everything of this process and wait a moment for the rows to say so."""
        self.close("MEAH is stopping.")
        self._stopped = True
        if self._looker is not None:
            await asyncio.wait([self._looker], timeout=LOOK_WITHIN_S)
        await self.cancel_all(reason)
        tasks = [run.task for run in self._running.values()]
        for run in self._running.values():
            run.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_WITHIN_S)

    async def cancel_all(self, reason: str) -> None:
        """Order whatever of this process is queued or running to end; what is queued ends at once."""
        try:
            await in_db(_cancel_all, self.owner, reason)
        except Exception as error:
            # What is left is settled by the other processes.
            event(log, "workers_not_cancelled", level="error", exc_info=error)

    async def sweep(self) -> None:
        """Settle what this process calls running and does not run: its end could not be written."""
        if self._looker is None or self._looker.done():
            await in_db(services.settle_lost, self.owner, but=list(self._running))

    async def _look_until_quiet(self) -> None:
        while self._look_again and not self._stopped:
            self._look_again = False
            try:
                await self._look_once()
            except Exception as error:
                event(log, "pool_stumbled", level="error", exc_info=error)

    async def _look_once(self) -> None:
        if self._running:
            for public_id in await in_db(_to_be_stopped, list(self._running)):
                if run := self._running.get(public_id):
                    run.cancel()
        while not self._stopped and (worker := await in_db(_claim, self.owner, len(self._running))):
            # The deadline starts with the row's own start, not when the task gets its first turn.
            run = WorkerRun(worker, time.monotonic() + worker.timeout_ms / 1000)
            self._running[worker.public_id] = run
            run.task.add_done_callback(partial(self._ended, worker.public_id))
        await self._notice_ended()

    def _ended(self, public_id: str, task: asyncio.Task[None]) -> None:
        self._running.pop(public_id, None)
        self._tell(public_id)
        if not self._stopped:
            in_task(self.look(), name="pool-look-on")

    async def _notice_ended(self) -> None:
        """Workers that something else ended (cancelled while queued, run or settled by another process)."""
        waited = [public_id for public_id in self._waiters if public_id not in self._running]
        if waited:
            for public_id in await in_db(_finished_among, waited):
                self._tell(public_id)

    def _tell(self, public_id: str) -> None:
        if waiter := self._waiters.pop(public_id, None):
            waiter.set()


def _claim(owner: str, running: int) -> Worker | None:
    """The next worker to run, where one is queued and there is room for it."""
    if not Worker.objects.queued_for(owner).exists() or running >= _max_concurrent():
        return None
    return services.start_next(owner)


def _max_concurrent() -> int:
    try:
        return effective().limits.max_concurrent
    except MeahError:
        # Each worker then fails by itself, and says what is wrong with the configuration.
        return Limits().max_concurrent


def _active_ids(owner: str) -> list[str]:
    return list(Worker.objects.active().filter(owner=owner).values_list("public_id", flat=True))


def _to_be_stopped(running: list[str]) -> list[str]:
    """Those with an order to stop, and those that another process has taken for dead and settled."""
    wanted = Worker.objects.filter(state=WorkerState.RUNNING, cancel_requested_at__isnull=True)
    return sorted(set(running) - set(wanted.filter(public_id__in=running).values_list("public_id", flat=True)))


def _finished_among(public_ids: list[str]) -> list[str]:
    return list(Worker.objects.finished().filter(public_id__in=public_ids).values_list("public_id", flat=True))


def _cancel_all(owner: str, reason: str) -> None:
    services.cancel_many(_active_ids(owner), principal=services.SYSTEM, reason=reason)
