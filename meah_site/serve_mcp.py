"""Serving MCP over stdio, from the first frame to a clean end within seconds."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Final, Literal

from approvals.models import Process
from audit.dbthread import in_db
from core.logs import event
from core.tasks import in_task
from meah_site.companion import Companion
from meah_site.engine import Engine
from meah_site.mcp_server import Identity, MeahServer
from meah_site.own_tools import own_tools
from meah_site.stdio import Streams, Wire, streams
from workers.config import effective

log = logging.getLogger("meah.mcp")

PARENT_EVERY_S: Final = 0.5
ANSWER_WITHIN_S: Final = 0.5
# Not the database, not a name server that does not answer: nothing may hold the process back longer.
GONE_WITHIN_S: Final = 4.5

Ending = Literal["client_gone", "signal", "parent_gone", "outdated", "server_failed"]


class StdioSession:
    """One client over stdin and stdout."""

    def __init__(self, wire: Wire, parent: int, identity: Identity, *, allow_writes: bool = False) -> None:
        """`parent` is the process id of the client, noted before anything else took time."""
        self._wire = wire
        self._identity = identity
        self._parent = parent
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._signalled = asyncio.Event()
        self._client_left = asyncio.Event()
        self._engine = Engine(Process.Kind.RUNMCP, allow_writes=allow_writes)
        self._companion = Companion()
        self._known_as = ""

    async def serve(self) -> Ending:
        """Serve until something ends it; says what. Raises MeahError E_CONFIG when it can not start."""
        self._listen_to_signals()
        try:
            await self._engine.start()
        except BaseException:
            await self._engine.stop("MEAH could not start")
            raise
        offered = own_tools(self._identity.role, self._engine.pool, self._engine.runner)
        meah = MeahServer(offered, self._engine.membership.public_id, self._identity, self._on_caller)
        async with streams(self._wire, on_frame=meah.on_frame, on_end=self._when("client_gone")) as pair:
            server = asyncio.create_task(meah.server.run(pair.read, pair.write, meah.options()), name="mcp-server")
            server.add_done_callback(lambda _: self._when("server_failed")())
            in_task(self._watch_parent(), name="watch-parent")
            in_task(self._watch_schema(), name="watch-schema")
            in_task(meah.watch.run(), name="watch-listing")
            gc.freeze()
            gc.enable()
            self._companion.start()
            event(log, "server_ready", transport="stdio", process=self._engine.membership.public_id, pid=os.getpid())
            reason = await self._ending
            await self._end(reason, pair)
            server.cancel()
            await asyncio.wait([server])
            if reason == "server_failed" and not server.cancelled():
                event(log, "server_failed", level="error", exc_info=server.exception())
        event(log, "server_ended", reason=reason)
        return reason

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        self._signalled.set()
        self._when("signal")()

    def _when(self, reason: Ending) -> Callable[[], None]:
        """The first reason counts."""

        def end() -> None:
            if reason in ("client_gone", "parent_gone"):
                self._client_left.set()
            if not self._ending.done():
                self._ending.set_result(reason)

        return end

    async def _watch_parent(self) -> None:
        """A killed client may leave the pipe open in another child of its own."""
        while os.getppid() == self._parent:  # noqa: ASYNC110 - no event tells of a parent that died
            await asyncio.sleep(PARENT_EVERY_S)
        self._when("parent_gone")()

    async def _watch_schema(self) -> None:
        await self._engine.outdated.wait()
        event(
            log,
            "schema_is_newer",
            level="error",
            hint="Another version of MEAH migrated the database: restart this client once its calls have ended.",
        )
        self._engine.pool.close("The database was migrated by a newer version of MEAH; this process ends.")
        self._when("outdated")()

    async def _end(self, reason: Ending, pair: Streams) -> None:
        if reason == "outdated":
            # Calls that were begun are finished for the client, as long as it is there.
            await self._until_idle(or_when=[self._signalled, self._client_left])
            reason = "client_gone" if self._client_left.is_set() else reason
        if reason == "client_gone" and await self._lets_finish():
            await self._until_idle(or_when=[self._signalled])
        _be_gone(GONE_WITHIN_S)
        self._companion.stop()
        await self._engine.stop("MEAH was stopped" if self._signalled.is_set() else "the MCP client went away")
        await pair.answered(ANSWER_WITHIN_S)

    async def _lets_finish(self) -> bool:
        try:
            return (await in_db(effective)).limits.on_client_exit == "finish"
        except Exception as error:
            event(log, "configuration_not_read", level="warn", exc_info=error)
            return False

    async def _until_idle(self, *, or_when: Sequence[asyncio.Event]) -> None:
        """Until all workers have ended, or one of these events ends the waiting."""
        waits = [in_task(self._engine.pool.idle(), name="pool-idle")]
        waits += [in_task(_set(over), name="until-event") for over in or_when]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _on_caller(self, principal: str) -> None:
        """Publish for whom this process speaks, once it is known."""
        if principal != self._known_as:
            self._known_as = principal
            in_task(in_db(self._engine.membership.update, principal=principal), name="publish-principal")


async def _set(over: asyncio.Event) -> None:
    await over.wait()


def _be_gone(within_s: float) -> None:
    """Leave by then, whatever still holds on: what is not settled is settled by the other processes."""
    watchdog = threading.Timer(within_s, os._exit, [1])
    watchdog.daemon = True
    watchdog.start()
