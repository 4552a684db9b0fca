"""One follower of the chain for all sockets of this process: what is new is read once, and told to everyone.

Browsers cost the database nothing more, however many are open. Entries give the order (`seq`); the partial texts of
running workers are not in the chain, so they are looked at beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from django.db.models.functions import Length

from approvals.changes import changes
from audit.dbthread import in_db
from audit.feed import entries_after, last_seq
from audit.models import Entry
from core.errors import JsonObject
from core.logs import event
from core.text import visible
from gateway.models import Server
from workers.models import Worker, WorkerState

from . import rows

log = logging.getLogger("meah.console")

LOOK_EVERY_S: Final = 1.0
# What a socket may lag behind; a slower one is closed, and catches up when it comes back.
MAX_LAG: Final = 256
# Further back than this a page is read anew instead of caught up.
MAX_CATCH_UP: Final = 2_000
_WORKER: Final = "w_"

Message = JsonObject


class Listener:
    """One open page. `None` in its queue is the end: it could not keep up."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Message | None] = asyncio.Queue(MAX_LAG)
        self.is_late = False

    def tell(self, message: Message) -> None:
        if self.is_late:
            return
        try:
            self.messages.put_nowait(message)
        except asyncio.QueueFull:
            self.is_late = True
            self.messages.get_nowait()
            self.messages.put_nowait(None)


class Hub:
    """Made once per process; it follows the chain while somebody listens, and rests otherwise."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._joining = asyncio.Lock()
        self._seq = -1
        self._partials: dict[str, str] = {}
        self._held: JsonObject = {"count": 0, "first": []}
        self._servers: list[JsonObject] = []
        self._servers_seen: Any = None

    @contextlib.asynccontextmanager
    async def listening(self, after: int) -> AsyncIterator[Listener]:
        """A listener that has been told all that is newer than entry `after`, and is told whatever comes."""
        listener = Listener()
        async with self._joining:
            if self._task is None:
                await self._begin()
            listener.tell(await self._catch_up(after))
            # From here to the next await nothing is told: no entry falls between the past and the present.
            self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    # -- following ----------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        self._partials = {}
        self._seq, self._held, self._servers, self._servers_seen = await in_db(_standing)
        self._task = asyncio.create_task(self._follow(), name="console-hub")

    async def _follow(self) -> None:
        while True:
            rung = changes.upcoming()
            try:
                async with self._joining:
                    await self._look()
            except Exception as error:
                # Whatever it was: nobody would be told anything any more, if this ended.
                event(log, "console_hub_stumbled", level="warn", exc_info=error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await rung.wait()

    async def _look(self) -> None:
        news = await in_db(_news, self._seq, {key: len(text) for key, text in self._partials.items()})
        if news.entries:
            self._seq = news.entries[-1].seq
            self._held = news.held
            self._tell({"type": "changes", "seq": self._seq, "rows": news.rows, "queue": news.queue, "held": news.held})
        if news.servers_seen != self._servers_seen:
            self._servers, self._servers_seen = await in_db(_servers_now)
            self._tell({"type": "servers", "servers": self._servers})
        for worker_id, text in news.partials.items():
            self._tell(self._partial(worker_id, text))
        for ended in self._partials.keys() - news.running:
            del self._partials[ended]

    def _partial(self, worker_id: str, text: str) -> Message:
        """Only what was added, where a text went on as it had begun."""
        before = self._partials.get(worker_id, "")
        self._partials[worker_id] = text
        goes_on = bool(before) and text.startswith(before)
        start = len(before) if goes_on else 0
        return {"type": "partial", "id": worker_id, "at": len(visible(text[:start])), "text": visible(text[start:])}

    def _tell(self, message: Message) -> None:
        for listener in self._listeners:
            listener.tell(message)

    # -- joining ------------------------------------------------------------------------------------------------

    async def _catch_up(self, after: int) -> Message:
        """What a page that knows everything up to `after` has to learn; or that it has to begin anew."""
        anew = after < 0 or not 0 <= self._seq - after <= MAX_CATCH_UP
        changed: Sequence[JsonObject] = ()
        queue: dict[str, int] = {}
        if not anew:
            changed, queue = await in_db(_changed_since, after, self._seq)
        return {
            "type": "welcome",
            "seq": self._seq,
            "anew": anew,
            "rows": list(changed),
            "queue": queue,
            "held": self._held,
            "servers": self._servers,
            "partials": {key: visible(text) for key, text in self._partials.items()},
        }


@dataclass(frozen=True)
class _News:
    """What one look has found. `running` are the workers that run, `partials` the texts that have grown."""

    entries: list[Entry]
    rows: list[JsonObject]
    queue: dict[str, int]
    held: JsonObject
    running: Set[str]
    partials: dict[str, str]
    servers_seen: Any


def _news(seq: int, known: dict[str, int]) -> _News:
    """`known` are the lengths of the texts that were told already."""
    entries = entries_after(seq)
    lengths = dict(_running().annotate(length=Length("partial")).values_list("public_id", "length"))
    longer = [key for key, length in lengths.items() if length and length != known.get(key)]
    texts = _running().filter(public_id__in=longer).values_list("public_id", "partial") if longer else ()
    return _News(
        entries=entries,
        rows=rows.rows_by_id(_workers_in(entries)) if entries else [],
        queue=rows.queue_places() if entries else {},
        held=rows.held() if entries else {},
        running=lengths.keys(),
        partials=dict(texts),
        servers_seen=_servers_mark(),
    )


def _standing() -> tuple[int, JsonObject, list[JsonObject], Any]:
    """How things stand when the first page opens."""
    seq = last_seq()
    servers, mark = _servers_now()
    return seq, rows.held(), servers, mark


def _changed_since(after: int, until: int) -> tuple[list[JsonObject], dict[str, int]]:
    ids = {
        subject
        for subject in Entry.objects.filter(seq__gt=after, seq__lte=until).values_list("subject", flat=True)
        if subject.startswith(_WORKER)
    }
    return rows.rows_by_id(ids), rows.queue_places()


def _workers_in(entries: Sequence[Entry]) -> set[str]:
    return {entry.subject for entry in entries if entry.subject.startswith(_WORKER)}


def _running() -> Any:
    return Worker.objects.filter(state=WorkerState.RUNNING).order_by()


def _servers_now() -> tuple[list[JsonObject], Any]:
    mark = _servers_mark()
    return rows.servers(), mark


def _servers_mark() -> Any:
    """Changes whenever a server's line does: states are reported beside the chain."""
    return tuple(Server.objects.order_by("pk").values_list("pk", "name", "state", "exposure", "reported_at"))


hub: Final = Hub()
