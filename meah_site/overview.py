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
from django.urls import reverse
from django.utils import timezone

from approvals.display import ago
from approvals.models import Call, CallState, Process
from approvals.processes import living
from approvals.queue import waiting_for
from approvals.services import DECIDE, is_halted
from audit.services import ChainState, chain_state
from core.errors import MeahError
from core.text import visible
from gateway.models import PinState, Tool
from gateway.services import ACCEPT
from workers.config import effective
from workers.key_state import KeyState, is_this_process, key_state
from workers.listing import listed
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
        context |= {"tiles": _worker_tiles(), "recent": list(listed(Worker.objects.all())[:RECENT])}
    if user.has_perm("audit.view_entry"):
        chain = _chain()
        context |= {"chain": chain, "tiles": [*context["tiles"], _chain_tile(chain)]}
    context["tiles"] = [*_govern_tiles(user), *context["tiles"]]
    if user.has_perm("workers.view_provider"):
        context |= _providers(processes)
    context["command"] = register_command()
    context["serves_a_client"] = any(process.kind == Process.Kind.RUNMCP for process in processes)
    if context.get("recent") == []:
        has_provider = bool(context.get("providers"))
        context["first_steps"] = {"presets": list(PRESETS.values()), "has_provider": has_provider}
    return context


def register_command() -> str:
    """The line that gives this checkout to Claude Code, ready to paste."""
    manage = Path(settings.BASE_DIR) / "manage.py"
    return shlex.join(["claude", "mcp", "add", "meah", "--", sys.executable, str(manage), "runmcp"])


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


def _govern_tiles(user: AbstractBaseUser | AnonymousUser) -> list[Tile]:
    """What waits for this person; what can not be known or is not as it was accepted, while there is any."""
    assert isinstance(user, PermissionsMixin)
    tiles = []
    if user.has_perm(DECIDE):
        waiting = waiting_for(user)
        note = f"of {waiting.total:,} open" if waiting.total != waiting.mine else ""
        note = "; ".join([*filter(None, [note]), *(["single approver"] if waiting.is_single_approver else [])])
        url = reverse("admin:approvals_approval_changelist")
        tiles.append(Tile("for you to decide", f"{waiting.mine:,}", url, note, tone="busy" if waiting.mine else ""))
    if user.has_perm("approvals.halt") and is_halted():
        tiles.append(Tile("every call", "halted", reverse("admin:approvals_halt_changelist"), tone="bad"))
    unknown = Call.objects.filter(state=CallState.UNKNOWN).count() if user.has_perm("approvals.view_call") else 0
    if unknown:
        url = reverse("admin:approvals_call_changelist", query={"state__exact": "unknown"})
        tiles.append(Tile("may have happened", f"{unknown:,}", url, tone="bad"))
    quarantined = Tool.objects.filter(pin_state=PinState.QUARANTINED).count() if _may_see_tools(user) else 0
    if quarantined:
        url = reverse("admin:gateway_tool_changelist", query={"pin_state__exact": "quarantined"})
        tiles.append(Tile("quarantined tools", f"{quarantined:,}", url, tone="busy"))
    return tiles


def _may_see_tools(user: PermissionsMixin) -> bool:
    return user.has_perm("gateway.view_tool") or user.has_perm(ACCEPT)


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
    note = f"verified {ago(chain.verified_at)}" if whole else "altered: see the last verification"
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
