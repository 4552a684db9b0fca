"""Runs approved calls, at most once each: claim a lease, judge again, mark as sent, run, settle.

A lease may run out while nothing was sent. From the send marker on a call never goes back: what can not be known
after a crash is `unknown`.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Final

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from audit.dbthread import in_db
from audit.services import NewEntry, commitment, record_many
from core.errors import JsonObject, MeahError
from core.logs import event
from core.secrets import read_secret

from . import endings, governor, holds, outcomes, services, verification
from .decision import Decision, outcome_entry, request_of, sent_entry
from .models import Approval, ApprovalState, Call, CallState, EffectClass, VerificationState
from .policy import ALLOW, DENY
from .processes import dead_among, ring_after_commit
from .targets import CallContext, target_of

log = logging.getLogger("meah.executor")

LEASE: Final = timedelta(seconds=30)
AT_ONCE: Final = 32


class Executor:
    """One per process; `look` is cheap and may be called at any time from the process's event loop."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._tasks: set[asyncio.Task[None]] = set()

    async def look(self) -> None:
        """Obey a halt; claim what is approved and can run here, and run each in a task of its own."""
        if await in_db(services.enforce_halt):
            # At every look: a call that was decided on just before the halt may have begun after the last one.
            governor.cancel_running("everything is halted")
            return
        for call_id in await in_db(claim, self.owner):
            task = asyncio.create_task(self._run(call_id), name=f"call-{call_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel what runs; each call is settled before this returns."""
        governor.cancel_running("MEAH is stopping")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=3.0)

    async def _run(self, call_id: int) -> None:
        try:
            decision = await in_db(start, call_id, self.owner)
            if decision is not None and decision.outcome is None:
                await governor.execute(decision, CallContext())
        except MeahError as error:
            event(log, "approved_call_failed", level="warn", call=call_id, code=error.code)
        except asyncio.CancelledError:
            return
        except Exception as error:
            event(log, "executor_stumbled", level="error", call=call_id, exc_info=error)


# -- claiming -------------------------------------------------------------------------------------------------------


def claim(owner: str) -> list[int]:
    """Lease every call that waits for an executor and can run in this process; their primary keys.

    The process that held a call runs it while it lives; else the first one that can.
    """
    now = timezone.now()
    approved = Q(approval__state=ApprovalState.APPROVED, approval__execute_by__gt=now)
    waiting = Call.objects.filter(Q(needs_approval=False) | approved, state=CallState.HELD)
    processes = {name for pair in waiting.order_by().values_list("owner", "lease_owner").distinct() for name in pair}
    if not processes:
        return []
    dead = dead_among(processes - {owner, ""})
    # A lease ends by itself, or with the process that holds it: nothing was sent under it.
    is_free = Q(lease_owner__in={"", *dead}) | Q(lease_until__lte=now)
    mine = waiting.filter(is_free, owner__in={owner, "", *dead}).order_by("id")
    return list(islice((call.pk for call in mine if _can_run(call) and _lease(call, owner)), AT_ONCE))


def _can_run(call: Call) -> bool:
    try:
        return all(read_secret(name) for name in target_of(call.server).needs(call.tool))
    except MeahError:
        return True  # it is gone: starting it says so, and ends it


def _lease(call: Call, owner: str) -> bool:
    """Only from the very lease that was found free: one of several processes gets it."""
    found = Call.objects.filter(
        pk=call.pk, state=CallState.HELD, lease_owner=call.lease_owner, lease_until=call.lease_until
    )
    return bool(found.update(lease_owner=owner, lease_until=timezone.now() + LEASE))


# -- starting -------------------------------------------------------------------------------------------------------


def start(call_id: int, owner: str) -> Decision | None:
    """Judge again and write the send marker, in one transaction. None when it may not run (any more)."""
    call = Call.objects.get(pk=call_id)
    approval = Approval.objects.select_related("call").filter(call=call).first()
    if approval is not None and endings.has_run_out(approval.execute_by):
        endings.expire(approval)
        return None
    try:
        decision = governor.judged(replace(request_of(call), owner=owner))
    except MeahError as error:
        _stop(call, approval, f"{error.code}: {error.message}")
        return None
    decision.call = call
    if why := _changed(call, approval, decision):
        _stop(call, approval, why)
        return None
    with transaction.atomic():
        marked = Call.objects.filter(
            pk=call.pk, state=CallState.HELD, lease_owner=owner, lease_until__gt=timezone.now()
        ).update(**_marker(decision, owner))
        if not marked:
            return None
        ring_after_commit()
        decision.arguments_view, _ = commitment(decision.checked.arguments)
        if decision.facts.local:
            decision.outcome = governor.apply_local(decision)
        else:
            record_many([sent_entry(decision)])
    return decision


def _marker(decision: Decision, owner: str) -> dict[str, object]:
    if decision.facts.local:
        return {"state": CallState.DONE, "finished_at": Now(), "owner": owner}
    return {"state": CallState.SENDING, "sending_at": Now()}


def _changed(call: Call, approval: Approval | None, decision: Decision) -> str:
    """Why a call that was approved must not run now; empty where nothing stands against it."""
    if decision.facts.pin != call.pin:
        return "the tool's pinned definition has changed since"
    if decision.verdict.effect == DENY:
        return f"policy now denies it: {decision.verdict.rule}"
    if approval is None:
        return "" if decision.verdict.effect == ALLOW else f"policy now asks for approval: {decision.verdict.rule}"
    if approval.digest != holds.binding_of(call, decision.text):
        return "its stored arguments are not the ones that were approved"
    if decision.verdict.effect == ALLOW:
        return ""
    demands = [{"count": demand.count, "group": demand.group} for demand in decision.verdict.demands]
    if not services.demands_met(approval, demands):
        return f"policy now demands other approvals: {decision.verdict.rule}"
    return ""


def _stop(call: Call, approval: Approval | None, why: str) -> None:
    if approval is not None:
        endings.void(approval, why)
    else:
        endings.cancel_unsent(call, why)


# -- recovering -----------------------------------------------------------------------------------------------------


def settle_orphans() -> list[int]:
    """Calls that were being sent by a process that died: a read failed, a write is unknown. Returns the writes."""
    sending = Call.objects.filter(state=CallState.SENDING)
    dead = dead_among(set(sending.order_by().values_list("lease_owner", flat=True).distinct()))
    if not dead:
        return []
    return [call.pk for call in sending.filter(lease_owner__in=dead) if _settle_orphan(call)]


def _settle_orphan(call: Call) -> bool:
    """Whether it became unknown."""
    is_read = call.effect_class == EffectClass.READ
    state = CallState.FAILED if is_read else CallState.UNKNOWN
    error = MeahError(
        "E_UNAVAILABLE",
        "The MEAH process that sent this call has ended before its answer was stored.",
        hint="It is not sent again by itself. Read back what it should have changed, or let a person resolve it.",
        reason="process_died",
        retryable=is_read,
    )
    with transaction.atomic():
        changed = Call.objects.filter(pk=call.pk, state=CallState.SENDING, lease_owner=call.lease_owner).update(
            state=state, finished_at=Now(), error=error.as_dict()
        )
        if changed:
            ring_after_commit()
            data: JsonObject = {
                "server": call.server,
                "tool": call.tool,
                "error": error.code,
                "reason": error.reason,
            }
            record_many([NewEntry(f"call.{state}", call.principal, call.public_id, data)])
    return bool(changed) and not is_read


async def read_back_unknown(call_id: int) -> None:
    """Try to learn what became of an unknown write by its rule's read-back; a person resolves it otherwise."""
    decision = await in_db(_decision_of, call_id)
    if decision is None or decision.verdict.verification is None:
        return
    check = await verification.read_back(decision.target, decision.request, decision.verdict.verification)
    await in_db(_settle_read_back, decision, check)


def _decision_of(call_id: int) -> Decision | None:
    call = Call.objects.get(pk=call_id)
    try:
        decision = governor.judged(request_of(call))
    except MeahError:
        return None
    decision.call = call
    return decision


def _settle_read_back(decision: Decision, check: verification.Check) -> None:
    """Seen is done. Not seen proves nothing: it may still arrive."""
    assert decision.call is not None
    seen = check.state == VerificationState.VERIFIED
    values: dict[str, object] = {"verification": check.state, "verification_details": check.details}
    if seen:
        values |= {"state": CallState.DONE, "error": None}
    with transaction.atomic():
        if Call.objects.filter(pk=decision.call.pk, state=CallState.UNKNOWN).update(**values):
            ring_after_commit()
            data = outcomes.described(None, None, check)
            state = CallState.DONE if seen else CallState.UNKNOWN
            record_many([outcome_entry(decision, state, data)])
