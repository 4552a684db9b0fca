"""What every MEAH process runs besides its doors: membership, the bell, the worker pool, the sweeps."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from django.conf import settings

from approvals import processes
from approvals.models import Process
from audit import dbthread
from audit.dbthread import in_background, in_db
from core.bell import Bell
from core.logs import event
from meah_site.schema import schema_is_newer
from meah_site.version import version
from workers import housekeeping, services
from workers.config import effective
from workers.pool import Pool

log = logging.getLogger("meah.engine")

LOOK_EVERY_S = 1.0
SWEEP_EVERY_S = 2.0
SCHEMA_EVERY_S = 10.0
PURGE_EVERY_S = 3600.0


class Engine:
    """One per process. `start`, then `run` until `stop`; all from one event loop."""

    def __init__(self, kind: Process.Kind) -> None:
        self.membership = processes.Membership(kind, version=version())
        self.pool = Pool(self.membership.public_id)
        self.outdated = asyncio.Event()
        self._bell = Bell(Path(settings.MEAH_HOME), self.membership.public_id)
        self._rung = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._due = {
            "sweep": 0.0,
            "schema": time.monotonic() + SCHEMA_EVERY_S,
            "purge": time.monotonic() + 30.0,
        }

    async def start(self) -> None:
        """Raises MeahError E_CONFIG when the configuration can not be used."""
        await in_db(effective)
        await in_db(self.membership.join)
        self._bell.open()
        asyncio.get_running_loop().add_reader(self._bell.fileno(), self._on_bell)
        self._task = asyncio.create_task(self._run(), name="meah-engine")

    async def stop(self, reason: str) -> None:
        """Cancel this process's workers, leave, and close the database threads. Takes at most a few seconds."""
        if self._task is not None:
            self._task.cancel()
            asyncio.get_running_loop().remove_reader(self._bell.fileno())
            await self.pool.stop(reason)
            self._bell.close()
            await in_db(self.membership.leave)
        await asyncio.to_thread(dbthread.shutdown)

    def _on_bell(self) -> None:
        self._bell.drain()
        self._rung.set()

    async def _run(self) -> None:
        while True:
            self._rung.clear()
            try:
                await self.pool.look()
                await self._sweep()
            except Exception as error:
                event(log, "engine_stumbled", level="error", exc_info=error)
            try:
                await asyncio.wait_for(self._rung.wait(), LOOK_EVERY_S)
            except TimeoutError:
                continue

    async def _sweep(self) -> None:
        if self._is_due("sweep", SWEEP_EVERY_S):
            await in_db(_settle_dead)
        if self._is_due("schema", SCHEMA_EVERY_S) and await in_db(schema_is_newer):
            self.outdated.set()
        if self._is_due("purge", PURGE_EVERY_S):
            await in_background(_purge)

    def _is_due(self, name: str, every_s: float) -> bool:
        if time.monotonic() < self._due[name]:
            return False
        self._due[name] = time.monotonic() + every_s
        return True


def _settle_dead() -> None:
    services.settle_orphans()
    processes.forget_dead()


def _purge() -> None:
    days = effective().limits.retention_days
    housekeeping.purge_texts(older_than_days=days, principal=services.SYSTEM)
