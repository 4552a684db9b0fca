"""What can be found of tools and Methods, kept in memory and made anew when the chain says that something changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from audit.dbthread import in_db
from audit.models import Entry

from . import semantic
from .models import Exposure, PinState, Server, Tool
from .search import Document, Hit, Index
from .semantic import SemanticSearch

ROWS_AT_ONCE: Final = 500
# After so many entries making it anew costs less than reading what they were about.
MANY_ENTRIES: Final = 2_000
_CHANGES: Final = ("tool.", "server.")
_NO_CHANGES: Final = frozenset({"server.started", "server.failed"})


@dataclass
class Found:
    """What a search found, how (keyword, semantic), and why not in the way that was wanted."""

    hits: list[Hit] = field(default_factory=list)
    mode: str = "keyword"
    note: str = ""


class Catalogue:
    """One per process. Whoever changes a tool, a server or a Method records it: that is how it hears of changes."""

    def __init__(self) -> None:
        self._seq = -1
        self._index = Index(())
        self._documents: dict[int, Document] = {}
        self._semantic = SemanticSearch()
        self._making = asyncio.Lock()

    async def search(self, query: str, *, server: str = "") -> Found:
        """Tools that agents may be shown, by primary key, the best first."""
        await self._make_current()
        index, documents = self._index, self._documents
        found = Found(await asyncio.to_thread(index.search, query))
        if semantic.is_on():
            found = await self._by_meaning(query, list(documents.values()), found)
        if server:
            found.hits = [hit for hit in found.hits if documents[hit.key].owner == server]
        return found

    async def _by_meaning(self, query: str, documents: list[Document], by_words: Found) -> Found:
        """Whoever names a tool wants that one first. Where it does not work, what was found by words, and why."""
        try:
            hits = await self._semantic.search(query, documents)
        except semantic.NoSemanticSearchError as error:
            return Found(by_words.hits, note=f"{error}: this was found by words.")
        exact = [hit for hit in by_words.hits if hit.exact]
        named = {hit.key for hit in exact}
        return Found([*exact, *(hit for hit in hits if hit.key not in named)], mode="semantic")

    async def _make_current(self) -> None:
        async with self._making:
            newest, has_changed = await in_db(changed_since, self._seq)
            if not has_changed:
                self._seq = newest
                return
            rows: list[Any] = []
            while chunk := await in_db(_rows_after, rows[-1][0] if rows else 0):
                rows += chunk
            self._index, self._documents = await asyncio.to_thread(_made, rows)
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


def _made(rows: list[Any]) -> tuple[Index, dict[int, Document]]:
    documents = {document.key: document for document in _documents(rows)}
    return Index(documents.values()), documents


def _documents(rows: Iterable[Any]) -> Iterator[Document]:
    for key, name, definition, server in rows:
        found = json.loads(definition)
        yield Document(key, name, f"{found.get('title') or ''} {found.get('description') or ''}", server)


def search_servers(servers: Iterable[Server], query: str) -> list[Server]:
    """Those whose name has one of the words."""
    listed = list(servers)
    index = Index(Document(position, server.name) for position, server in enumerate(listed))
    return [listed[hit.key] for hit in index.search(query)]
