"""Holding a call for a person, and recognising a call that repeats one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from django.db import connection
from django.db.models import Q
from django.utils import timezone

from audit.services import NewEntry
from core.canonical import utc_text
from core.errors import JsonObject, MeahError

from . import webhooks
from .models import Approval, ApprovalSettings, ApprovalState, Call, CallState, Halt
from .policy import REQUIRE_APPROVAL, Verdict
from .processes import ring_after_commit
from .step_key import binding, same_call
from .targets import CallRequest


@dataclass(frozen=True)
class Known:
    """The call that a new one repeats, and its approval where it was held."""

    call: Call
    approval: Approval | None
    mismatch: bool = False


def load_settings() -> ApprovalSettings:
    return ApprovalSettings.objects.filter(pk=1).first() or ApprovalSettings(pk=1)


def refuse_while_halted(recorded: bool) -> None:
    """Polling goes on during a halt; everything that has an effect does not."""
    if recorded and _is_halted() and (halt := Halt.objects.filter(pk=1, engaged=True).first()):
        raise MeahError(
            "E_DENIED",
            f"Everything is halted by {halt.changed_by}" + (f": {halt.reason}." if halt.reason else "."),
            hint="Wait until an operator resumes; do not work around it.",
            reason="halted",
        )


@cache
def _halt_statement() -> tuple[str, tuple[Any, ...]]:
    """Built once: every call asks."""
    found: tuple[str, tuple[Any, ...]] = (
        Halt.objects.filter(pk=1, engaged=True).values_list("pk").query.sql_with_params()
    )
    return found


def _is_halted() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(*_halt_statement())
        return cursor.fetchone() is not None


# -- repeats --------------------------------------------------------------------------------------------------------


def repeats(request: CallRequest, text: str, effect: str) -> Known | None:
    """What a write repeats: by its step where it has one, else (held calls only) by being the same."""
    same = same_call(server=request.server, tool=request.tool, arguments=text)
    if request.step:
        return _by_step(request, same)
    if effect != REQUIRE_APPROVAL:
        return None
    return _open_duplicate(request, same) or _recent_duplicate(request, same)


def _by_step(request: CallRequest, same: str) -> Known | None:
    """After `expired` or `void` a step is free again; after anything else it answers for good."""
    calls = Call.objects.filter(principal=request.principal, run=request.run, step=request.step)
    call = calls.order_by("-id").first()
    if call is None:
        return None
    approval = _approval_of(call)
    if call.state == CallState.CANCELLED and (approval is None or approval.state != ApprovalState.REJECTED):
        return None
    return Known(call, approval, mismatch=call.arguments_digest != same)


def _open_duplicate(request: CallRequest, same: str) -> Known | None:
    call = _held(request, same).filter(state__in=Call.OPEN).first()
    return Known(call, _approval_of(call)) if call else None


def _recent_duplicate(request: CallRequest, same: str) -> Known | None:
    """For a while after the decision an identical call gets the stored answer, or the rejection."""
    since = timezone.now() - timedelta(seconds=load_settings().duplicate_window_s)
    decided = Q(state__in=Call.ENDED) | Q(approval__state=ApprovalState.REJECTED)
    call = _held(request, same).filter(decided, approval__decided_at__gte=since).order_by("-id").first()
    return Known(call, _approval_of(call)) if call else None


def _held(request: CallRequest, same: str):  # type: ignore[no-untyped-def]
    return Call.objects.filter(
        principal=request.principal,
        server=request.server,
        tool=request.tool,
        arguments_digest=same,
        needs_approval=True,
        step="",
    )


def _approval_of(call: Call) -> Approval | None:
    return Approval.objects.filter(call=call).select_related("call").first()


# -- holding --------------------------------------------------------------------------------------------------------


def hold(call: Call, request: CallRequest, verdict: Verdict, text: str) -> Approval:
    """Make the request that waits, inside the caller's transaction.

    Raises MeahError E_DENIED when the principal has too many open ones.
    """
    limits = load_settings()
    _refuse_flood(request.principal, limits.max_open_holds)
    now = timezone.now()
    approval = Approval.objects.create(
        call=call,
        principal=request.principal,
        requested_by_id=request.user_id,
        digest=binding_of(call, text),
        rule=verdict.rule,
        reason=verdict.reason,
        demands=[{"count": demand.count, "group": demand.group} for demand in verdict.demands],
        note_required=verdict.note_required,
        requested_at=now,
        expires_at=now + timedelta(seconds=verdict.ttl_s or limits.ttl_s),
    )
    webhooks.tell(approval, "approval.requested")
    ring_after_commit()
    return approval


def binding_of(call: Call, text: str) -> str:
    return binding(server=call.server, tool=call.tool, pin=call.pin, arguments=text, principal=call.principal)


def _refuse_flood(principal: str, limit: int) -> None:
    waiting = Approval.objects.filter(principal=principal, state=ApprovalState.PENDING).count()
    if waiting >= limit:
        raise MeahError(
            "E_DENIED",
            f"{waiting} requests of {principal} wait for a person already; no more are taken.",
            hint="Wait until some are decided (list_pending shows them), and ask for fewer, larger steps.",
            reason="too_many_open",
            retryable=True,
        )


def held_entry(approval: Approval, verdict: Verdict, named: JsonObject, view: JsonObject) -> NewEntry:
    data = named | {
        "approval": approval.public_id,
        "verdict": verdict.as_dict(),
        "arguments": view,
        "binding": approval.digest,
        "expiresAt": utc_text(approval.expires_at),
    }
    return NewEntry("call.held", principal=approval.principal, subject=approval.call.public_id, data=data)
