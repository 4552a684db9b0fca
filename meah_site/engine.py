"""What every MEAH process runs besides its doors: membership, the bell, the worker pool, the sweeps."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from django.conf import settings

from approvals import endings, executor, processes, webhooks
from approvals import services as approval_services
from approvals.changes import changes
from approvals.holds import load_settings
from approvals.models import Delivery, Process
from audit import dbthread, logins
from audit.dbthread import in_background, in_db
from core.bell import Bell
from core.logs import event
from core.tasks import in_task
from gateway import method_runs
from gateway.runner import Runner
from gateway.runtime import Gateway
from meah_site.schema import known, schema_is_newer
from meah_site.version import version
from workers import housekeeping, services
from workers.config import effective
from workers.pool import Pool

log = logging.getLogger("meah.engine")

LOOK_EVERY_S: Final = 1.0
SWEEP_EVERY_S: Final = 1.0
PUBLISH_EVERY_S: Final = 5.0
SCHEMA_EVERY_S: Final = 3.0
LOGINS_EVERY_S: Final = 30.0
PURGE_EVERY_S: Final = 3600.0
FIRST_PURGE_AFTER_S: Final = 30.0
LEAVE_WITHIN_S: Final = 2.0


class Engine:
    """One per process. `start` it, `stop` it; all from one event loop. `outdated` is set once the schema is newer."""

    def __init__(self, kind: Process.Kind, *, allow_writes: bool = False) -> None:
        """`allow_writes`: whether Methods may write here, whatever the gateway settings say."""
        self.membership = processes.Membership(kind, version=version())
        self.pool = Pool(self.membership.public_id)
        self.executor = executor.Executor(self.membership.public_id)
        self.gateway = Gateway()
        self.runner = Runner(self.membership.public_id, allow_writes=allow_writes)
        self.outdated = asyncio.Event()
        self._bell = Bell(Path(settings.MEAH_HOME), self.membership.public_id)
        self._rung = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._chores = [
            Chore("execute", self.executor.look, 0, first_after_s=0),
            Chore("methods", self.runner.look, 0, first_after_s=0),
            Chore("sweep", self._sweep, SWEEP_EVERY_S, first_after_s=0),
            Chore("webhooks", self._deliver, SWEEP_EVERY_S),
            Chore("publish", self._publish, PUBLISH_EVERY_S),
            Chore("schema", self._look_at_schema, SCHEMA_EVERY_S),
            Chore("logins", self._record_logins, LOGINS_EVERY_S),
            Chore("purge", self._purge, PURGE_EVERY_S, first_after_s=FIRST_PURGE_AFTER_S),
        ]

    async def start(self) -> None:
        """Raises MeahError E_CONFIG when the configuration can not be used."""
        known()
        await in_db(effective)
        await in_db(self.membership.join)
        await self.gateway.start()
        self._listen()
        self._task = in_task(self._run(), name="meah-engine")

    async def stop(self, reason: str) -> None:
        """Cancel this process's workers, leave, and close the database threads. Takes at most a few seconds."""
        if self._task is not None:
            self._task.cancel()
            await self.pool.stop(reason)
            await self.runner.stop()
            await self.executor.stop()
            await self.gateway.stop()
            await self._leave(reason)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(dbthread.shutdown), LEAVE_WITHIN_S)

    async def _leave(self, reason: str) -> None:
        """The last look catches what was accepted while the pool was stopping."""
        await self.pool.cancel_all(reason)
        if (bell := self._bell.fileno()) >= 0:
            asyncio.get_running_loop().remove_reader(bell)
        self._bell.close()
        try:
            await in_db(self.membership.leave)
        except Exception as error:
            event(log, "process_not_left", level="warn", exc_info=error)

    def _listen(self) -> None:
        """Without a bell the engine still looks once a second."""
        try:
            self._bell.open()
        except OSError as error:
            event(log, "no_bell", level="warn", exc_info=error)
            return
        asyncio.get_running_loop().add_reader(self._bell.fileno(), self._on_bell)

    def _on_bell(self) -> None:
        self._bell.drain()
        # Those who look at rows need not wait for this process's own chores.
        changes.ring()
        self._rung.set()

    async def _run(self) -> None:
        while True:
            self._rung.clear()
            changes.ring()
            await self.pool.look()
            for chore in self._chores:
                await chore.do_if_due()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), LOOK_EVERY_S)

    async def _sweep(self) -> None:
        for call_id in await in_db(_settle_dead):
            in_task(executor.read_back_unknown(call_id), name="read-back")
        await self.pool.sweep()

    async def _deliver(self) -> None:
        """Send what is due to webhooks, beside everything else."""
        if due := await in_db(webhooks.claim_due):
            in_task(_send(due), name="webhooks")

    async def _publish(self) -> None:
        """A provider that was added since names a key variable that this process may have."""
        await in_db(effective)
        await in_db(self.membership.update)

    async def _look_at_schema(self) -> None:
        if await in_db(schema_is_newer):
            self.outdated.set()

    async def _record_logins(self) -> None:
        await in_db(logins.record_due)

    async def _purge(self) -> None:
        """It may take long, and nothing waits for it."""
        in_task(in_background(_purge_texts), name="meah-purge")


class Chore:
    """Something that is done again and again; one that fails is logged, and keeps no other from being done."""

    def __init__(
        self, name: str, work: Callable[[], Awaitable[None]], every_s: float, *, first_after_s: float | None = None
    ) -> None:
        self._name = name
        self._work = work
        self._every_s = every_s
        self._due = time.monotonic() + (every_s if first_after_s is None else first_after_s)

    async def do_if_due(self) -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._every_s
        try:
            await self._work()
        except Exception as error:
            event(log, "engine_stumbled", level="error", chore=self._name, exc_info=error)


def _settle_dead() -> list[int]:
    """Settle what dead processes left, and what ran out of time; the calls whose outcome is unknown now."""
    services.settle_orphans()
    unknown = executor.settle_orphans()
    processes.forget_dead()
    endings.expire_due()
    if approval_services.is_halted():
        services.cancel_all("everything is halted")
    return unknown


async def _send(due: list[Delivery]) -> None:
    await in_db(webhooks.settle, await webhooks.send(due))


def _purge_texts() -> None:
    days = effective().limits.retention_days
    housekeeping.purge_texts(older_than_days=days, principal=services.SYSTEM)
    method_runs.purge_texts(older_than_days=load_settings().result_days)
    approval_services.purge_texts(older_than_days=load_settings().result_days, principal=services.SYSTEM)
