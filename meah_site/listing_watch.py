"""Tells clients that the list of tools is not what it was: a tool was accepted or quarantined, a rule was changed.

What changes the list is recorded, in whichever process it happens; so the chain says when to look. Clients are told
only where the list has really become another one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from weakref import WeakSet

from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged

from audit.feed import Tailer
from audit.models import Entry
from core.errors import JsonObject
from core.logs import event

log = logging.getLogger("meah.mcp")

Listing = list[JsonObject]
# Entries of these kinds come with the daily work, and change no list.
DAILY: Final = ("call.", "worker.", "approval.", "delivery.", "audit.", "console.", "login.", "user.")


class ListingWatch:
    """`looked` notes what a client was shown; `run` follows the chain until it is cancelled."""

    def __init__(self, listing: Callable[[str], Awaitable[Listing]]) -> None:
        self._listing = listing
        self._shown: dict[str, Listing] = {}
        self._connections: WeakSet[Any] = WeakSet()
        self._bus = InMemorySubscriptionBus()
        self.on_listen = ListenHandler(self._bus)

    def looked(self, principal: str, listing: Listing, session: Any = None) -> None:
        """`session` is that of a client of the handshake era; those of the newer one listen by themselves."""
        self._shown[principal] = listing
        if session is not None:
            # A session lives as long as one request; the SDK has no public name for what lives as long as the client.
            self._connections.add(session._connection)

    async def run(self) -> None:
        await Tailer(self._on_entries).run()

    async def _on_entries(self, entries: Sequence[Entry]) -> None:
        if all(entry.kind.startswith(DAILY) for entry in entries):
            return
        if [principal for principal in list(self._shown) if await self._has_changed(principal)]:
            await self._tell()

    async def _has_changed(self, principal: str) -> bool:
        fresh = await self._listing(principal)
        changed = fresh != self._shown[principal]
        self._shown[principal] = fresh
        return changed

    async def _tell(self) -> None:
        await self._bus.publish(ToolsListChanged())
        for connection in list(self._connections):
            try:
                await connection.send_tool_list_changed()
            except Exception as error:
                # A client that has gone need not be told.
                event(log, "client_not_told", level="info", why=type(error).__name__)
                self._connections.discard(connection)
