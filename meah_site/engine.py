"""What every MEAH process runs besides its doors: membership, the bell, the worker pool, the sweeps."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import Final

from django.conf import settings

from approvals import executor, processes, webhooks
from approvals import services as approval_services
from approvals.changes import changes
from approvals.holds import load_settings
from approvals.models import Delivery, Process
from audit import dbthread, logins
from audit.dbthread import in_background, in_db
from core.bell import Bell
from core.logs import event
from core.tasks import in_task
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

    def __init__(self, kind: Process.Kind) -> None:
        self.membership = processes.Membership(kind, version=version())
        self.pool = Pool(self.membership.public_id)
        self.executor = executor.Executor(self.membership.public_id)
        self.gateway = Gateway()
        self.outdated = asyncio.Event()
        self._bell = Bell(Path(settings.MEAH_HOME), self.membership.public_id)
        self._rung = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._due = {
            "sweep": 0.0,
            "logins": time.monotonic() + LOGINS_EVERY_S,
            "publish": time.monotonic() + PUBLISH_EVERY_S,
            "schema": time.monotonic() + SCHEMA_EVERY_S,
            "purge": time.monotonic() + FIRST_PURGE_AFTER_S,
        }

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
            await self.executor.stop()
            await self.gateway.stop()
            await self._leave(reason)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(dbthread.shutdown), LEAVE_WITHIN_S)

    async def _leave(self, reason: str) -> None:
        """The last look catches what was accepted while the pool was stopping."""
        await self.pool.cancel_all(reason)
        asyncio.get_running_loop().remove_reader(self._bell.fileno())
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
        self._rung.set()

    async def _run(self) -> None:
        while True:
            self._rung.clear()
            changes.ring()
            await self.pool.look()
            try:
                await self.executor.look()
                await self._sweep()
            except Exception as error:
                event(log, "engine_stumbled", level="error", exc_info=error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), LOOK_EVERY_S)

    async def _sweep(self) -> None:
        if self._is_due("sweep", SWEEP_EVERY_S):
            for call_id in await in_db(_settle_dead):
                in_task(executor.read_back_unknown(call_id), name="read-back")
            await self.pool.sweep()
            await self._deliver()
        if self._is_due("publish", PUBLISH_EVERY_S):
            await in_db(self._publish)
        if self._is_due("logins", LOGINS_EVERY_S):
            await in_db(logins.record_due)
        if self._is_due("schema", SCHEMA_EVERY_S) and await in_db(schema_is_newer):
            self.outdated.set()
        if self._is_due("purge", PURGE_EVERY_S):
            in_task(in_background(_purge), name="meah-purge")

    def _is_due(self, name: str, every_s: float) -> bool:
        if time.monotonic() < self._due[name]:
            return False
        self._due[name] = time.monotonic() + every_s
        return True

    async def _deliver(self) -> None:
        """Send what is due to webhooks, beside everything else."""
        if due := await in_db(webhooks.claim_due):
            in_task(_send(due), name="webhooks")

    def _publish(self) -> None:
        """A provider that was added since names a key variable that this process may have."""
        effective()
        self.membership.update()


def _settle_dead() -> list[int]:
    """Settle what dead processes left, and what ran out of time; the calls whose outcome is unknown now."""
    services.settle_orphans()
    unknown = executor.settle_orphans()
    processes.forget_dead()
    approval_services.expire_due()
    if approval_services.is_halted():
        services.cancel_all("everything is halted")
    return unknown


async def _send(due: list[Delivery]) -> None:
    await in_db(webhooks.settle, await webhooks.send(due))


def _purge() -> None:
    days = effective().limits.retention_days
    housekeeping.purge_texts(older_than_days=days, principal=services.SYSTEM)
    approval_services.purge_texts(older_than_days=load_settings().result_days, principal=services.SYSTEM)
