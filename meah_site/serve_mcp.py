"""Serving MCP over stdio, from the first frame to a clean end within seconds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable

from approvals.models import Process
from audit.dbthread import in_db
from core.logs import event
from meah_site.engine import Engine
from meah_site.mcp_server import MeahServer
from meah_site.stdio import Wire, streams
from workers.config import effective
from workers.tools import tools

log = logging.getLogger("meah.mcp")

PARENT_EVERY_S = 1.0


class StdioSession:
    """One client over stdin and stdout. `ending` says why it ends: client_gone, signal, parent_gone, outdated."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._engine = Engine(Process.Kind.RUNMCP)
        self._known_as = ""
        self._publishing: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Raises MeahError E_CONFIG when it can not start."""
        await self._engine.start()
        self._listen_for_the_end()
        meah = MeahServer(tools(self._engine.pool), self._engine.membership.public_id, self._on_caller)
        event(log, "server_ready", transport="stdio", process=self._engine.membership.public_id, pid=os.getpid())
        end_of_input = self._when("client_gone")
        async with streams(self._wire, on_frame=meah.on_frame, on_end=end_of_input) as (read, write):
            server = asyncio.create_task(
                meah.server.run(read, write, meah.server.create_initialization_options()), name="mcp-server"
            )
            reason = await self._ending
            await self._end(reason)
            server.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await server
        event(log, "server_ended", reason=reason)

    def _listen_for_the_end(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._when("signal"))
        self._watches = [
            asyncio.create_task(self._watch_parent(os.getppid())),
            asyncio.create_task(self._watch_schema()),
        ]

    def _when(self, reason: str) -> Callable[[], None]:
        def end() -> None:
            if not self._ending.done():
                self._ending.set_result(reason)

        return end

    async def _watch_parent(self, parent: int) -> None:
        """A killed client may leave the pipe open in another child of its own."""
        while os.getppid() == parent:  # noqa: ASYNC110 - no event tells of a parent that died
            await asyncio.sleep(PARENT_EVERY_S)
        self._when("parent_gone")()

    async def _watch_schema(self) -> None:
        await self._engine.outdated.wait()
        event(
            log,
            "schema_is_newer",
            level="error",
            hint="Another version migrated the database: restart this client.",
        )
        self._when("outdated")()

    async def _end(self, reason: str) -> None:
        for watch in self._watches:
            watch.cancel()
        finish = reason == "outdated" or (
            reason == "client_gone" and (await in_db(effective)).limits.on_client_exit == "finish"
        )
        if finish:
            await self._engine.pool.idle()
        await self._engine.stop("the MCP client went away" if reason != "signal" else "MEAH was stopped")

    def _on_caller(self, principal: str) -> None:
        """Publish for whom this process speaks, once it is known."""
        if principal != self._known_as:
            self._known_as = principal
            self._publishing = asyncio.ensure_future(in_db(self._engine.membership.update, principal=principal))
