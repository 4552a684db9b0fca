"""The gateway of one MEAH process: its pool of connections, and what they report written down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings

from approvals.processes import run_directory
from audit.dbthread import in_db
from core.logs import event
from core.secrets import name_secrets

from . import observations, sessions
from .groups import refuse_loop
from .launch import Launch
from .models import GatewaySettings, Server
from .sessions import Hooks, Pool, Report

log = logging.getLogger("meah.gateway")


class Gateway:
    """Made by the process's engine: `start` before the first call, `stop` at the end, in one event loop."""

    def __init__(self) -> None:
        hooks = Hooks(listed=self._listed, reported=self._reported)
        self.pool = Pool(directory=run_directory(), home=Path(settings.MEAH_HOME), hooks=hooks)
        self._latest: dict[str, Report] = {}
        self._woken = asyncio.Event()
        self._reporter: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises MeahError E_CONFIG where this process is a downstream server of its own."""
        refuse_loop(Path(settings.MEAH_HOME))
        self.pool.start_timeout_s = await in_db(_prepare)
        await self.pool.start()
        self._reporter = asyncio.create_task(self._report(), name="gateway-reporter")
        sessions.install(self.pool)

    async def stop(self) -> None:
        """Ends every child, within about four seconds; then the database has the last word on their states."""
        sessions.install(None)
        await self.pool.stop()
        if self._reporter is not None:
            self._reporter.cancel()
            await asyncio.wait([self._reporter])
        await self._write_latest()

    async def _listed(self, launch: Launch, listing: list[Any]) -> Mapping[str, str]:
        return await in_db(observations.compare, launch, listing)

    def _reported(self, report: Report) -> None:
        self._latest[report.server] = report
        self._woken.set()

    async def _report(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            await self._write_latest()

    async def _write_latest(self) -> None:
        reports, self._latest = list(self._latest.values()), {}
        for report in reports:
            try:
                await in_db(observations.report, report)
            except Exception as error:
                # What a server's page shows is behind then; no call may fail of it.
                event(log, "report_failed", level="warn", server=report.server, exc_info=error)


def _prepare() -> float:
    """The time that a start may take. What servers refer to is secret from now on, before one of them runs here."""
    for server in Server.objects.all():
        name_secrets(server.launch().variables)
    return float(GatewaySettings.load().start_timeout_s)
