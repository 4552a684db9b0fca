"""What the admin's index shows: what runs, what it cost, whether the chain is whole, who has which key."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, PermissionsMixin
from django.db.models import Count, F, Q, Sum
from django.db.models.functions import Substr
from django.urls import reverse
from django.utils import timezone

from approvals.models import Process
from approvals.processes import living
from audit.services import ChainState, chain_state
from core.errors import MeahError
from core.text import visible
from workers.admin.workers import TEXTS, TITLE_CHARS
from workers.config import effective
from workers.key_state import KeyState, is_this_process, key_state
from workers.models import Worker, WorkerState
from workers.objects import cost_text
from workers.presets import PRESETS
from workers.routing import Config, ProviderConfig

RECENT = 8


@dataclass(frozen=True)
class Tile:
    """One figure: it leads to the list that it counts."""

    label: str
    value: str
    url: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True)
class ProviderLine:
    provider: ProviderConfig
    key: KeyState


def overview(user: AbstractBaseUser | AnonymousUser) -> dict[str, Any]:
    """The context of the index, as far as this person may see things."""
    assert isinstance(user, PermissionsMixin)
    processes = living() if user.has_perm("approvals.view_process") else []
    context: dict[str, Any] = {"tiles": [], "processes": [(row, is_this_process(row)) for row in processes]}
    if user.has_perm("workers.view_worker"):
        recent = Worker.objects.defer(*TEXTS).annotate(task_start=Substr("task", 1, TITLE_CHARS))
        context |= {"tiles": _worker_tiles(), "recent": list(recent[:RECENT])}
    if user.has_perm("audit.view_entry"):
        chain = _chain()
        context |= {"chain": chain, "tiles": [*context["tiles"], _chain_tile(chain)]}
    if user.has_perm("workers.view_provider"):
        context |= _providers(processes)
    if not context.get("recent"):
        context["first_steps"] = _first_steps(context.get("providers", []))
    return context


def _today() -> datetime:
    return timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)


def _list(**query: str) -> str:
    return reverse("admin:workers_worker_changelist", query=query)


def _worker_tiles() -> list[Tile]:
    active = Worker.objects.active().aggregate(
        running=Count("pk", filter=Q(state=WorkerState.RUNNING)), queued=Count("pk", filter=Q(state=WorkerState.QUEUED))
    )
    failed = Worker.objects.filter(
        state__in=(WorkerState.FAILED, WorkerState.TIMED_OUT), finished_at__gte=_today()
    ).count()
    return [
        Tile(
            "running", f"{active['running']:,}", _list(state__exact="running"), tone="busy" if active["running"] else ""
        ),
        Tile("queued", f"{active['queued']:,}", _list(state__exact="queued")),
        Tile(
            "failed today",
            f"{failed:,}",
            _list(state__in="failed,timed_out", finished_at__gte=f"{_today():%Y-%m-%d %H:%M:%S+00:00}"),
            tone="bad" if failed else "",
        ),
        *_spending_tiles(),
    ]


def _spending_tiles() -> list[Tile]:
    """Unknown stays unknown: workers without figures are counted beside the sum, never as nought."""
    ended = Worker.objects.finished().filter(finished_at__gte=_today())
    answered = ended.filter(state=WorkerState.SUCCEEDED)
    tokens = ended.aggregate(sum=Sum(F("input_tokens") + F("output_tokens")))["sum"] or 0
    uncounted = answered.filter(Q(input_tokens=None) | Q(output_tokens=None)).count()
    costs = ended.exclude(cost=None).values_list("currency").annotate(sum=Sum("cost")).order_by("currency")
    unpriced = answered.filter(cost=None).count()
    url = _list(finished_at__gte=f"{_today():%Y-%m-%d %H:%M:%S+00:00}")
    return [
        Tile("tokens today", f"{tokens:,}", url, note=_and_unknown(uncounted)),
        Tile("cost today", _costs(list(costs), nothing=not unpriced), url, note=_and_unknown(unpriced)),
    ]


def _costs(sums: list[tuple[str, Decimal]], *, nothing: bool) -> str:
    if not sums:
        return "0" if nothing else "unknown"
    return " + ".join(f"{cost_text(round(total, 4))} {visible(currency)}" for currency, total in sums)


def _and_unknown(count: int) -> str:
    return f"and {count:,} unknown" if count else ""


def _chain() -> ChainState | None:
    try:
        return chain_state()
    except MeahError:
        return None


def _chain_tile(chain: ChainState | None) -> Tile:
    url = reverse("admin:audit_entry_changelist")
    if chain is None:
        return Tile("audit chain", "unreadable", url, tone="bad")
    if chain.verified_at is None:
        return Tile("audit entries", f"{chain.head.size:,}", url, note="never verified")
    whole = chain.verdict == "whole"
    note = f"verified {chain.verified_at:%Y-%m-%d %H:%M}" if whole else "altered: see the last verification"
    return Tile("audit chain", "whole" if whole else "tampered", url, note=note, tone="good" if whole else "bad")


def _providers(processes: list[Process]) -> dict[str, Any]:
    try:
        config = effective()
    except MeahError as error:
        return {"config_error": {"message": visible(error.message), "hint": visible(error.hint)}}
    return {"providers": _provider_lines(config, processes)}


def _provider_lines(config: Config, processes: list[Process]) -> list[ProviderLine]:
    return [
        ProviderLine(config.providers[name], key_state(config.providers[name].api_key_env, processes))
        for name in sorted(config.providers)
    ]


def _first_steps(providers: list[ProviderLine]) -> dict[str, Any]:
    manage = Path(settings.BASE_DIR) / "manage.py"
    words = ["claude", "mcp", "add", "meah", "--", sys.executable, str(manage), "runmcp"]
    return {"command": shlex.join(words), "presets": list(PRESETS.values()), "has_provider": bool(providers)}
