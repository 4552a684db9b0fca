"""All connections of one MEAH process, and the process's own pool of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from .breaker import Breaker
from .connection import Connection, Open, cancelled
from .failures import NotSentError
from .groups import Ledger, end_groups_of_the_dead
from .launch import Launch
from .reports import Hooks, Report
from .slots import Slots

__all__ = ["Connection", "Hooks", "Open", "Pool", "Report", "current", "install"]

LOOK_EVERY_S: Final = 5.0


class Pool:
    """All connections of this process. Make it, `start` it and `stop` it in one event loop."""

    def __init__(self, *, directory: Path, home: Path, hooks: Hooks | None = None) -> None:
        self._directory = directory
        self._ledger = Ledger(directory, home)
        self.start_timeout_s: float | None = None
        self._hooks = hooks or Hooks()
        self.slots = Slots()
        self._connections: dict[str, Connection] = {}
        self._breakers: dict[str, Breaker] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._upkeep: asyncio.Task[None] | None = None
        self._stopped = False

    async def start(self) -> None:
        self._ledger.open()
        self._upkeep = asyncio.create_task(self._look_after(), name="gateway-upkeep")

    async def stop(self) -> None:
        """End every child and connection; takes at most about four seconds."""
        self._stopped = True
        if self._upkeep is not None:
            await cancelled(self._upkeep)
        ends = [asyncio.ensure_future(connection.close()) for connection in self._connections.values()]
        if ends or self._ending:
            await asyncio.wait([*ends, *self._ending])
        self._ledger.close()

    def connection(self, launch: Launch) -> Connection:
        """The server's connection; a new one when what it is made of was changed."""
        if self._stopped:
            raise NotSentError("E_UNAVAILABLE", "MEAH is being stopped.", reason="stopping")
        known = self._connections.get(launch.server)
        if known is not None and known.launch.connection == launch.connection:
            return known
        if known is not None:
            self.drop(launch.server)
            # Made of something else, it has not failed yet.
            self._breakers.pop(launch.server, None)
        made = self._connections[launch.server] = Connection(
            launch, self._ledger, self._hooks, start_timeout_s=self.start_timeout_s
        )
        return made

    @asynccontextmanager
    async def use(self, launch: Launch, *, deadline: float | None = None) -> AsyncIterator[Connection]:
        """The server's connection for one call, with room to run; `deadline` is of the event loop's clock.

        Raises NotSentError, before anything is started, where the server fails again and again or all are busy.
        """
        connection = self.connection(launch)
        breaker = self._breakers.setdefault(launch.server, Breaker())
        breaker.enter(launch.server)
        failed: BaseException | None = None
        try:
            async with self.slots.held(connection, deadline=deadline):
                yield connection
        except BaseException as error:
            failed = error
            raise
        finally:
            breaker.leave(failed)

    def drop(self, server: str) -> None:
        """End a server's connection in the background."""
        known = self._connections.pop(server, None)
        if known is not None:
            self.slots.forget(known)
            self._in_background(known.close())

    def end_soon(self, connection: Connection) -> None:
        """End what is open in the background; the next call starts it again."""
        self._in_background(connection.end())

    def _in_background(self, ending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def known(self, server: str) -> Connection | None:
        return self._connections.get(server)

    def open_servers(self) -> frozenset[str]:
        """The servers whose listing is as fresh as their open connection."""
        return frozenset(name for name, connection in self._connections.items() if connection.is_open)

    async def _look_after(self) -> None:
        while True:
            await asyncio.to_thread(end_groups_of_the_dead, self._directory)
            for connection in self._connections.values():
                connection.tell_news()
            for idle in self.slots.idle():
                self.end_soon(idle)
            await asyncio.sleep(LOOK_EVERY_S)


_current: Pool | None = None


def install(pool: Pool | None) -> None:
    """Make it the pool of this process."""
    global _current
    _current = pool


def open_here() -> frozenset[str]:
    """The servers that this process is connected with; none where it runs no servers at all."""
    return _current.open_servers() if _current is not None else frozenset()


def current() -> Pool:
    """Raises NotSentError where this process runs no downstream servers."""
    if _current is None:
        raise NotSentError("E_UNAVAILABLE", "This process runs no downstream servers.", reason="no_engine")
    return _current
