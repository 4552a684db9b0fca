"""How many children may run at once: the idle one that was used longest ago makes room, or the caller waits a while."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from .connection import Connection
from .failures import NotSentError

AT_ONCE: Final = 20
WAIT_S: Final = 30.0
IDLE_S: Final = 300.0


class Slots:
    """All of it belongs to one event loop. Only children count: a remote connection is no process."""

    def __init__(self, *, at_once: int = AT_ONCE, wait_s: float = WAIT_S, idle_s: float = IDLE_S) -> None:
        self.at_once = at_once
        self.wait_s = wait_s
        self.idle_s = idle_s
        self._running: set[Connection] = set()
        self._users: Counter[Connection] = Counter()
        self._used_at: dict[Connection, float] = {}
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def held(self, connection: Connection, *, deadline: float | None) -> AsyncIterator[None]:
        """Room for that connection, which is not idle meanwhile. `deadline` is of the event loop's clock.

        Raises NotSentError when every child is busy for too long.
        """
        self._users[connection] += 1
        try:
            if connection.launch.transport == "stdio":
                await self._admit(connection, deadline)
            yield
        finally:
            self._users[connection] -= 1
            if not self._users[connection]:
                del self._users[connection]
            self._used_at[connection] = time.monotonic()
            self._tell()

    def idle(self) -> list[Connection]:
        """Connections that nobody has used for a while, and that need not be kept."""
        before = time.monotonic() - self.idle_s
        return [
            connection
            for connection, used_at in self._used_at.items()
            if used_at < before
            and connection.is_running
            and not self._users[connection]
            and not connection.launch.keep_alive
        ]

    def forget(self, connection: Connection) -> None:
        """It is ended for good."""
        self._used_at.pop(connection, None)
        self._running.discard(connection)
        self._tell()

    async def _admit(self, connection: Connection, deadline: float | None) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self.wait_s
        if deadline is not None:
            until = min(until, deadline)
        while not await self._found_room(connection):
            freed = self._freed
            try:
                await asyncio.wait_for(freed.wait(), until - loop.time())
            except TimeoutError:
                raise NotSentError(
                    "E_UNAVAILABLE",
                    f"All {self.at_once} servers that may run at once are busy; nothing was sent.",
                    hint="Try again in a moment, or make fewer calls at the same time.",
                    reason="pool_full",
                    retryable=True,
                ) from None

    async def _found_room(self, connection: Connection) -> bool:
        if connection in self._running:
            return True
        self._running = {one for one in self._running if one.is_running or self._users[one]}
        if len(self._running) < self.at_once:
            self._running.add(connection)
            return True
        unused = [one for one in self._running if not self._users[one]]
        if not unused:
            return False
        victim = min(unused, key=lambda one: self._used_at.get(one, 0.0))
        # The place is taken before the other has left it, so that nobody else takes it meanwhile.
        self._running.remove(victim)
        self._running.add(connection)
        await victim.end()
        return True

    def _tell(self) -> None:
        self._freed.set()
        self._freed = asyncio.Event()
