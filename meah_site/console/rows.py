"""What the console shows of workers, held requests and servers, as plain JSON. Reads only.

Texts of strangers leave here with their hidden characters made visible; the page sets them as text, never as markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from django.db.models import QuerySet
from django.http import QueryDict
from django.urls import reverse

from approvals.display import TONES
from approvals.models import Approval, ApprovalState
from audit.feed import last_seq
from core.canonical import utc_text
from core.errors import JsonObject
from core.text import one_line, visible
from gateway.models import Server
from workers.listing import listed, title_of
from workers.models import Worker, WorkerState
from workers.objects import cost_text

PAGE: Final = 100
MAX_QUEUE: Final = 2_000
MAX_HELD: Final = 50
MAX_FILTER_CHARS: Final = 200
STATES: Final = tuple(WorkerState.values)


@dataclass(frozen=True)
class Filters:
    """Which workers are looked at. Empty means all; `label` is looked for inside labels, ignoring case."""

    state: str = ""
    role: str = ""
    provider: str = ""
    label: str = ""

    @classmethod
    def of(cls, query: QueryDict) -> Filters:
        given = {name: query.get(name, "").strip()[:MAX_FILTER_CHARS] for name in cls.__dataclass_fields__}
        if given["state"] not in (*STATES, "active"):
            given["state"] = ""
        return cls(**given)

    def apply(self, rows: QuerySet[Worker]) -> QuerySet[Worker]:
        if self.state:
            rows = rows.filter(state__in=Worker.ACTIVE if self.state == "active" else [self.state])
        if self.role:
            rows = rows.filter(role=self.role)
        if self.provider:
            rows = rows.filter(provider=self.provider)
        return rows.filter(label__icontains=self.label) if self.label else rows

    def as_dict(self) -> dict[str, str]:
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class Page:
    """Rows from the newest on. `seq` is the last entry that they certainly show; `before` asks for the next page."""

    rows: list[JsonObject]
    total: int
    seq: int
    before: int | None = None
    queue: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> JsonObject:
        return {"rows": self.rows, "total": self.total, "seq": self.seq, "before": self.before, "queue": self.queue}


def page_of(filters: Filters, *, before: int | None = None, size: int = PAGE) -> Page:
    """One page of the list."""
    # First the number, then the rows: what is recorded in between is told again, and changes nothing twice.
    seq = last_seq()
    matching = filters.apply(Worker.objects.all())
    found = matching.filter(pk__lt=before) if before is not None else matching
    workers = list(listed(found).order_by("-pk")[: size + 1])
    more = len(workers) > size
    shown = workers[:size]
    return Page(
        rows=[row_of(worker) for worker in shown],
        total=matching.count(),
        seq=seq,
        before=shown[-1].pk if more else None,
        queue=queue_places(),
    )


def rows_by_id(public_ids: Iterable[str]) -> list[JsonObject]:
    return [row_of(worker) for worker in listed(Worker.objects.filter(public_id__in=list(public_ids)))]


def row_of(worker: Worker) -> JsonObject:
    """A worker as a line of the list. Times are UTC texts, durations milliseconds; what is unknown is None."""
    symbol, tone = TONES.get(worker.state, ("·", "quiet"))
    return {
        "id": worker.public_id,
        "key": worker.pk,
        "state": worker.state,
        "stateText": worker.get_state_display(),
        "symbol": symbol,
        "tone": tone,
        "active": worker.is_active,
        "title": title_of(worker),
        "label": visible(worker.label),
        "role": worker.role,
        "provider": visible(worker.provider),
        "model": visible(worker.model),
        "principal": visible(worker.principal),
        "createdAt": _time(worker.created_at),
        "startedAt": _time(worker.started_at),
        "finishedAt": _time(worker.finished_at),
        "timeoutMs": worker.timeout_ms,
        "durationMs": worker.duration_ms,
        "tokens": _tokens(worker),
        "cost": _cost(worker),
        "error": _error(worker),
        "cancelling": worker.cancel_requested_at is not None and worker.is_active,
        "url": reverse("admin:workers_worker_change", args=[worker.public_id]),
    }


def text_of(worker: Worker) -> JsonObject:
    """What a worker has answered: its result, or so far; with its task, for the pane beside the list."""
    return {
        "id": worker.public_id,
        "task": visible(worker.task),
        "text": visible(worker.result or worker.partial),
        "truncated": worker.result_truncated,
        "purged": worker.purged_at is not None,
    }


def queue_places() -> dict[str, int]:
    """The place of each queued worker in the queue of the process that accepted it, from 1."""
    queued = Worker.objects.filter(state=WorkerState.QUEUED).order_by("pk").values_list("public_id", "owner")
    taken: Counter[str] = Counter()
    places = {}
    for public_id, owner in queued[:MAX_QUEUE]:
        taken[owner] += 1
        places[public_id] = taken[owner]
    return places


def held() -> JsonObject:
    """The requests that wait for a person, oldest first: how many, and the first of them."""
    pending = Approval.objects.filter(state=ApprovalState.PENDING)
    first = pending.select_related("call").order_by("requested_at", "pk")[:MAX_HELD]
    return {"count": pending.count(), "first": [_held_row(approval) for approval in first]}


def _held_row(approval: Approval) -> JsonObject:
    return {
        "id": approval.public_id,
        "tool": one_line(f"{approval.call.server} {approval.call.tool}", 120),
        "principal": one_line(approval.principal, 80),
        "requestedAt": _time(approval.requested_at),
        "expiresAt": _time(approval.expires_at),
        "url": reverse("admin:approvals_approval_change", args=[approval.pk]),
    }


def servers() -> list[JsonObject]:
    """The downstream servers with their states, where there are any."""
    return [_server_row(server) for server in Server.objects.exclude(exposure="off").order_by("name")]


def _server_row(server: Server) -> JsonObject:
    symbol, tone = TONES.get(server.state, ("·", "quiet"))
    return {
        "name": server.name,
        "state": server.state,
        "symbol": symbol,
        "tone": tone,
        "error": one_line(server.last_error, 200),
        "url": reverse("admin:gateway_server_change", args=[server.pk]),
    }


def _tokens(worker: Worker) -> int | None:
    if worker.input_tokens is None or worker.output_tokens is None:
        return None
    return worker.input_tokens + worker.output_tokens


def _cost(worker: Worker) -> str | None:
    text = cost_text(worker.cost)
    return None if text is None else visible(f"{text} {worker.currency}".strip())


def _error(worker: Worker) -> str:
    error: dict[str, Any] = worker.error or {}
    return one_line(f"{error.get('code', '')} {error.get('message', '')}", 200)


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else utc_text(moment)
