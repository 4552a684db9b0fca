"""The gate: every call passes `submit`, or `decide_now` from a sync door. There is no other way to a side effect.

Check the arguments, judge, and write the verdict down in one transaction; run; settle in another. What was decided on
is what is sent: the canonical arguments.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from django.db import IntegrityError, transaction

from audit.dbthread import in_db
from audit.services import NewEntry, commitment, record_many
from core.canonical import canonical_text
from core.errors import JsonObject, MeahError
from core.logs import event
from core.tasks import in_task

from . import holds, outcomes, verification
from .decision import Decision, Outcome, check_json, named, new_call, outcome_entry, sent_entry
from .models import Call, CallState
from .policy import ALLOW, DENY, Subject, judge
from .policy_store import current
from .processes import ring_after_commit
from .targets import CallContext, CallRequest, target_of

T = TypeVar("T")

log = logging.getLogger("meah.gate")

DEFAULT_TIMEOUT_S = 60.0
# A write whose answer is late is still listened for, so that `unknown` can become known.
LATE_ANSWER_S = 600.0

_running: set[asyncio.Task[Any]] = set()


# -- doors ----------------------------------------------------------------------------------------------------------


async def submit(request: CallRequest, context: CallContext | None = None) -> Outcome:
    """Take a call through the gate: its result, or the request that now waits.

    Raises MeahError: of the gate (E_INVALID_REQUEST, E_DENIED, E_AUDIT, …) before anything happened, or of the call.
    """
    deciding = in_task(in_db(decide, request), name="gate-decide")
    try:
        decision = await asyncio.shield(deciding)
    except asyncio.CancelledError:
        in_task(_withdraw(deciding), name="gate-withdraw")
        raise
    if decision.outcome is not None:
        return decision.outcome
    return await execute(decision, context or CallContext())


async def _withdraw(deciding: asyncio.Task[Decision]) -> None:
    """The caller went away while the gate decided: what has not been sent is not sent any more."""
    try:
        decision = await deciding
    except MeahError:
        return
    if decision.outcome is None and decision.call is not None:
        error = MeahError("E_CANCELLED", details={"sent": False})
        await in_db(settle, decision, None, error, verification.NONE, 0)


def decide_now(request: CallRequest) -> Outcome:
    """The gate for sync doors (admin, commands). An allowed call that is not local is left to an executor."""
    decision = decide(request, sync_door=True)
    assert decision.outcome is not None
    return decision.outcome


# -- deciding -------------------------------------------------------------------------------------------------------


def decide(request: CallRequest, *, sync_door: bool = False) -> Decision:
    """Check, judge, record; a local call is also done, in the same transaction."""
    decision = judged(request)
    if decision.verdict.effect == DENY:
        _deny(decision)
    if not decision.facts.recorded and decision.verdict.effect == ALLOW:
        decision.outcome = _apply_unrecorded(decision)
        return decision
    try:
        _open(decision, sync_door=sync_door)
    except IntegrityError:
        # Somebody else opened the same request in this moment: then it is there to be found.
        _open(decision, sync_door=sync_door)
    return decision


def judged(request: CallRequest) -> Decision:
    """The verdict on a call as policy stands now. Raises MeahError for bad arguments and while everything is halted."""
    check_json(request.arguments)
    target = target_of(request.server)
    facts = target.facts(request.tool, request.arguments)
    checked = target.check(request)
    holds.refuse_while_halted(facts.recorded)
    subject = Subject(
        request.principal, request.server, request.tool, facts.effect_class, checked.arguments, facts.schema
    )
    return Decision(
        replace(request, arguments=checked.arguments),
        target,
        facts,
        checked,
        canonical_text(checked.arguments),
        judge(current(), subject),
    )


def _deny(decision: Decision) -> None:
    view, _ = commitment(decision.checked.arguments)
    with transaction.atomic():
        data = named(decision) | {"verdict": decision.verdict.as_dict(), "arguments": view}
        record_many([NewEntry("call.denied", principal=decision.request.principal, data=data)])
    verdict = decision.verdict
    why = (verdict.reason or verdict.rule).rstrip(".")
    raise MeahError(
        "E_DENIED",
        f"Policy denies {decision.request.server}/{decision.request.tool}: {why}.",
        reason="policy",
        details={"rule": verdict.rule},
    )


def _apply_unrecorded(decision: Decision) -> Outcome | None:
    if not decision.facts.local:
        return None
    applied = decision.target.apply(decision.request, decision.checked, None, decision.verdict)
    return Outcome("done", applied.result)


def _open(decision: Decision, *, sync_door: bool) -> None:
    """Find the request that this one repeats, or open a new one: sent, held, or (local) done."""
    # Redacting a large call takes its time: not while the write lock is held.
    decision.arguments_view, decision.salt = commitment(decision.checked.arguments)
    is_allowed = decision.verdict.effect == ALLOW
    if is_allowed and decision.is_read and not sync_door and not decision.facts.local:
        return  # one row and one entry, written with its outcome
    with transaction.atomic():
        if not decision.is_read and (known := holds.repeats(decision.request, decision.text, decision.verdict.effect)):
            decision.outcome = _repeated(decision, known)
            return
        decision.call = new_call(decision, waits=not is_allowed or sync_door)
        if not is_allowed:
            approval = holds.hold(decision.call, decision.request, decision.verdict, decision.text)
            decision.outcome = Outcome(
                "pending_approval", approval=outcomes.approval_object(approval), call_id=decision.call.public_id
            )
            record_many([holds.held_entry(approval, decision.verdict, named(decision), decision.arguments_view)])
        elif decision.facts.local:
            decision.outcome = apply_local(decision)
        elif sync_door:
            ring_after_commit()
            decision.outcome = Outcome("approved", call_id=decision.call.public_id)
        else:
            record_many([sent_entry(decision)])


def apply_local(decision: Decision) -> Outcome:
    """Do a call whose effect is rows, inside the caller's transaction, and record it last."""
    assert decision.call is not None
    applied = decision.target.apply(decision.request, decision.checked, decision.call, decision.verdict)
    values = outcomes.stored_result(decision.target.store(applied.result))
    Call.objects.filter(pk=decision.call.pk).update(**values)
    if applied.replaces_call_entries and applied.entries:
        first, *others = applied.entries
        entries = [replace(first, data=first.data | {"arguments": decision.arguments_view}), *others]
    else:
        entries = [sent_entry(decision), *applied.entries, outcome_entry(decision, CallState.DONE, {})]
    record_many(entries)
    return Outcome("done", applied.result, call_id=decision.call.public_id)


def _repeated(decision: Decision, known: holds.Known) -> Outcome:
    """The answer to a retry: what is known of the request that it repeats; never a second send."""
    call, approval = known.call, known.approval
    if known.mismatch:
        raise MeahError("E_IDEMPOTENCY_MISMATCH", details={"step": decision.request.step})
    if approval is not None and approval.state == "rejected":
        raise outcomes.rejected_error(approval)
    if approval is not None and call.state in Call.OPEN:
        return Outcome(
            outcomes.status_of(approval), approval=outcomes.approval_object(approval), call_id=call.public_id
        )
    if call.state in Call.OPEN:
        raise MeahError("E_IN_PROGRESS", details={"step": decision.request.step})
    if call.error is not None:
        error = MeahError.from_dict(call.error)
        error.details |= {"replay": True, "status": call.state}
        raise error
    stored = outcomes.result_of(call)
    return Outcome(
        "done", decision.target.revive(decision.request, decision.checked, stored), replay=True, call_id=call.public_id
    )


# -- running --------------------------------------------------------------------------------------------------------


async def execute(decision: Decision, context: CallContext) -> Outcome:
    """Run a call that is marked as sending (or an allowed read), verify it, settle it."""
    context.idempotency_key = decision.call.step_key if decision.call else ""
    context.timeout_s = context.timeout_s or decision.facts.timeout_s or DEFAULT_TIMEOUT_S
    begun = time.monotonic()
    error: MeahError | None = None
    result: Any = None
    check = verification.NONE
    try:
        result = await _run(decision, context)
        if _is_to_be_verified(decision, result):
            # What was written is written, whatever becomes of looking at it.
            check = verification.CUT_SHORT
            check = await _read_back(decision)
            error = verification.failure(check)
    except MeahError as failed:
        error = failed
    except asyncio.CancelledError:
        # A job that was handed to the database thread runs to its end, even where this task is being cancelled.
        ended = None if result is not None else MeahError("E_CANCELLED")
        in_task(in_db(settle, decision, result, ended, check, _since(begun)), name="gate-settle")
        raise
    except Exception as unexpected:
        event(log, "call_failed_inside", level="error", tool=decision.request.tool, exc_info=unexpected)
        error = MeahError("E_UNAVAILABLE", "The call failed inside MEAH; its log says more.", retryable=False)
    await _settled(decision, result, error, check, _since(begun))
    if error is not None:
        raise error
    return Outcome("done", result, call_id=decision.call.public_id if decision.call else "")


async def _settled(
    decision: Decision, result: Any, error: MeahError | None, check: verification.Check, duration_ms: int
) -> None:
    try:
        await in_db(settle, decision, result, error, check, duration_ms)
    except Exception as unrecorded:
        event(log, "call_not_settled", level="error", tool=decision.request.tool, exc_info=unrecorded)
        raise MeahError(
            unrecorded.code if isinstance(unrecorded, MeahError) else "E_AUDIT",
            "The call was made, but its outcome could not be recorded, so its result is withheld.",
            hint="Do not make it again before you have looked at what it did; then run `manage.py doctor`.",
            retryable=False,
        ) from unrecorded


async def _run(decision: Decision, context: CallContext) -> Any:
    """The target's own run under the time limit; a write that is late goes on being listened for."""
    assert context.timeout_s is not None
    running = decision.target.run(decision.request, decision.checked, context)
    task = await _while_not_halted(running, context.timeout_s + decision.facts.grace_s)
    if task.done():
        return _result_of(task)
    if decision.is_read or decision.call is None:
        task.cancel()
    else:
        in_task(_settle_late(decision, task), name="gate-late")
    raise MeahError(
        "E_TIMEOUT",
        f"{decision.request.server}/{decision.request.tool} gave no answer within {context.timeout_s:g} s.",
        hint="Do not simply repeat a write: it may have happened. Read back what it should have changed.",
    )


def _is_to_be_verified(decision: Decision, result: Any) -> bool:
    return decision.verdict.verification is not None and not verification.is_error(result)


async def _read_back(decision: Decision) -> verification.Check:
    assert decision.verdict.verification is not None
    looking = verification.read_back(decision.target, decision.request, decision.verdict.verification)
    task = await _while_not_halted(looking, None)
    return verification.CUT_SHORT if task.cancelled() else task.result()


async def _while_not_halted(work: Coroutine[Any, Any, T], timeout_s: float | None) -> asyncio.Task[T]:
    """Do it in a task that `cancel_running` finds; the task goes on where it is not done in time."""
    task = asyncio.ensure_future(work)
    _running.add(task)
    task.add_done_callback(_running.discard)
    try:
        await asyncio.wait([task], timeout=timeout_s)
    except asyncio.CancelledError:
        task.cancel()
        raise
    return task


def _result_of(task: asyncio.Task[T]) -> T:
    """Its caller was not cancelled where the task was: it is told."""
    try:
        return task.result()
    except asyncio.CancelledError as cut:
        why = f": {cut.args[0]}" if cut.args else ""
        raise MeahError(
            "E_CANCELLED",
            f"The call was cancelled while it ran{why}.",
            hint="A write may have happened all the same: read back what it should have changed.",
        ) from None


async def _settle_late(decision: Decision, task: asyncio.Task[Any]) -> None:
    """What was unknown is known once its answer is there, whatever that says."""
    begun = time.monotonic()
    result, error, check = None, None, verification.NONE
    try:
        result = await asyncio.wait_for(asyncio.shield(task), LATE_ANSWER_S)
        if _is_to_be_verified(decision, result):
            check = await _read_back(decision)
            error = verification.failure(check)
    except MeahError as failed:
        error = failed
    except TimeoutError:
        task.cancel()
        return
    if outcomes.state_after(decision.facts.effect_class, error) != CallState.UNKNOWN:
        await in_db(settle, decision, result, error, check, _since(begun), late=True)


def cancel_running(why: str) -> int:
    """Cancel every call that this process is running, as a halt does. Returns how many.

    What was told to end already may be cleaning up, and is let alone.
    """
    tasks = [task for task in _running if not task.cancelling()]
    for task in tasks:
        task.cancel(why)
    return len(tasks)


def _since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)


# -- settling -------------------------------------------------------------------------------------------------------


def settle(
    decision: Decision,
    result: Any,
    error: MeahError | None,
    check: verification.Check,
    duration_ms: int,
    *,
    late: bool = False,
) -> None:
    """Write how a call ended; `late`: what had been written as unknown. A read gets its one row and one entry here.

    Raises MeahError E_AUDIT when that can not be written: then the result is withheld.
    """
    if not decision.facts.recorded:
        return
    state = outcomes.state_after(decision.facts.effect_class, error)
    was_held = decision.call is not None and decision.call.needs_approval
    values = outcomes.values_after(
        decision.facts.effect_class, state, result, error, check, decision.target, was_held=was_held
    )
    data: JsonObject = {"durationMs": duration_ms, **outcomes.described(result, error, check)}
    if decision.is_read:
        data |= {"verdict": decision.verdict.as_dict(), "arguments": decision.arguments_view}
    if late:
        data["late"] = True
    before = CallState.UNKNOWN if late else CallState.SENDING
    with transaction.atomic():
        if decision.call is None:
            decision.call = new_call(decision, waits=False, outcome=values)
        elif not Call.objects.filter(pk=decision.call.pk, state=before).update(**values):
            return
        if decision.call.needs_approval or late:
            # Of other calls only their caller wants to know how they ended, and it is told here.
            ring_after_commit()
        record_many([outcome_entry(decision, state, data)])
