"""The chain as an outbox: read what is new, in order, and follow it.

An append holds the head until its commit, so entries become visible in the order of `seq`: who has seen an entry
has seen all before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from django.db import Error as DatabaseError

from audit import services
from audit.dbthread import in_db
from audit.models import Entry
from core.bell import Bell
from core.errors import MeahError
from core.logs import event

log = logging.getLogger("meah.audit.feed")

POLL_EVERY_S: Final = 1.0
CHUNK: Final = 500

OnEntries = Callable[[Sequence[Entry]], Awaitable[None]]


def entries_after(seq: int, *, limit: int = CHUNK) -> list[Entry]:
    """The entries that follow entry `seq` (-1: from the first on), oldest first, at most `limit`."""
    return list(Entry.objects.filter(seq__gt=seq).order_by("seq")[:limit])


def last_seq() -> int:
    """The number of the last entry, -1 when there is none."""
    return services.head().size - 1


class Tailer:
    """Hands every new entry to `on_entries`, in order, each once, in lists of at most 500.

    It looks when it is woken, and once a second without. Give it the bell to listen to, or call `wake` from the
    loop's thread where the bell has another owner. It starts after the entry `after`, else with the first entry
    that is recorded after `run` began.
    """

    def __init__(self, on_entries: OnEntries, *, after: int | None = None, bell: Bell | None = None) -> None:
        self._on_entries = on_entries
        self._seq = after
        self._bell = bell
        self._rung = asyncio.Event()

    def wake(self) -> None:
        self._rung.set()

    async def run(self) -> None:
        """Follow the chain until cancelled. A database that fails is asked again; what `on_entries` raises ends it."""
        with self._listening():
            while True:
                self._rung.clear()
                await self._catch_up()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._rung.wait(), POLL_EVERY_S)

    async def _catch_up(self) -> None:
        while entries := await self._look():
            await self._on_entries(entries)
            self._seq = entries[-1].seq

    async def _look(self) -> list[Entry]:
        try:
            if self._seq is None:
                self._seq = await in_db(last_seq)
            return await in_db(entries_after, self._seq)
        except (DatabaseError, MeahError) as error:
            event(log, "audit_feed_stumbled", level="warn", exc_info=error)
            return []

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        if self._bell is None:
            yield
            return
        loop, fd = asyncio.get_running_loop(), self._bell.fileno()
        loop.add_reader(fd, self._on_bell)
        try:
            yield
        finally:
            loop.remove_reader(fd)

    def _on_bell(self) -> None:
        assert self._bell is not None
        self._bell.drain()
        self.wake()
