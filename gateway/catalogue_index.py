"""What can be found of tools and Methods, kept in memory and made anew when the chain says that something changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from audit.dbthread import in_db
from audit.models import Entry

from .models import Exposure, PinState, Server, Tool
from .search import Document, Hit, Index

ROWS_AT_ONCE: Final = 500
# After so many entries making it anew costs less than reading what they were about.
MANY_ENTRIES: Final = 2_000
_CHANGES: Final = ("tool.", "server.")
_NO_CHANGES: Final = frozenset({"server.started", "server.failed"})


class Catalogue:
    """One per process. Whoever changes a tool, a server or a Method records it: that is how it hears of changes."""

    def __init__(self) -> None:
        self._seq = -1
        self._index = Index(())
        self._servers: dict[int, str] = {}
        self._making = asyncio.Lock()

    async def search(self, query: str, *, server: str = "") -> list[Hit]:
        """Tools that agents may be shown, by primary key, the best first."""
        await self._make_current()
        hits = await asyncio.to_thread(self._index.search, query)
        return [hit for hit in hits if self._servers[hit.key] == server] if server else hits

    async def _make_current(self) -> None:
        async with self._making:
            newest, has_changed = await in_db(changed_since, self._seq)
            if not has_changed:
                self._seq = newest
                return
            rows: list[Any] = []
            while chunk := await in_db(_rows_after, rows[-1][0] if rows else 0):
                rows += chunk
            self._index = await asyncio.to_thread(lambda: Index(_documents(rows)))
            self._servers = {row[0]: row[3] for row in rows}
            self._seq = newest


def changed_since(seq: int) -> tuple[int, bool]:
    """The newest entry's number, and whether something findable may have changed since that one."""
    newest = Entry.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    if seq < 0 or newest - seq > MANY_ENTRIES:
        return newest, True
    kinds = Entry.objects.filter(seq__gt=seq, seq__lte=newest).values_list("kind", flat=True)
    return newest, any(kind.startswith(_CHANGES) and kind not in _NO_CHANGES for kind in kinds)


def _rows_after(key: int) -> list[Any]:
    """Some at a time: the gate's thread is not held up by thousands."""
    offered = Tool.objects.filter(pin_state=PinState.ACCEPTED, pk__gt=key).exclude(server__exposure=Exposure.OFF)
    return list(offered.order_by("pk").values_list("pk", "name", "definition", "server__name")[:ROWS_AT_ONCE])


def _documents(rows: Iterable[Any]) -> Iterator[Document]:
    for key, name, definition, server in rows:
        found = json.loads(definition)
        yield Document(key, name, f"{found.get('title') or ''} {found.get('description') or ''}", server)


def search_servers(servers: Iterable[Server], query: str) -> list[Server]:
    """Those whose name has one of the words."""
    listed = list(servers)
    index = Index(Document(position, server.name) for position, server in enumerate(listed))
    return [listed[hit.key] for hit in index.search(query)]
