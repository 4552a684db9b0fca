"""The gate: every call passes `submit`, or `decide_now` from a sync door. There is no other way to a side effect.

Policy is not here yet: every call is allowed, and recorded. The order of things is the final one:
check the arguments, decide and record in one transaction, run, settle in another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from approvals.models import Call, CallState, EffectClass
from approvals.processes import dead_among
from approvals.targets import CallContext, CallRequest, Target, ToolFacts, Verdict, target_of
from audit.dbthread import in_db
from audit.services import NewEntry, commitment, record_many
from core.canonical import StrictDecodeError, canonical_text
from core.errors import JsonObject, MeahError
from core.redaction import redact_value
from core.tasks import in_task

MAX_ARGUMENT_BYTES: Final = 2**20
ALLOW_ALL: Final = Verdict("allow", "built-in: allow everything")
# A call of a command has no process whose death would be seen; it is over long before this.
UNOWNED_CALLS_END_WITHIN: Final = timedelta(minutes=15)


@dataclass
class Decision:
    """A call that may go on: what was decided on is what is sent."""

    request: CallRequest
    target: Target
    facts: ToolFacts
    checked: Any
    verdict: Verdict
    call: Call | None = None
    arguments_view: JsonObject = field(default_factory=dict)
    result: Any = None


async def submit(request: CallRequest, context: CallContext | None = None) -> Any:
    """Take a call through the gate and return its result.

    Raises MeahError: of the gate (E_INVALID_REQUEST, E_DENIED, E_AUDIT, …) before anything happened, or of the call.
    """
    deciding = in_task(in_db(decide, request), name="gate-decide")
    try:
        decision = await asyncio.shield(deciding)
    except asyncio.CancelledError:
        in_task(_withdraw(deciding), name="gate-withdraw")
        raise
    if decision.facts.local:
        return decision.result
    try:
        result = await decision.target.run(request, decision.checked, context)
    except BaseException as error:
        # A job that was handed to the database thread runs to its end, even where this task is being cancelled.
        await in_db(settle, decision, _as_meah_error(error))
        raise
    await _settle_done(decision)
    return result


def decide_now(request: CallRequest) -> Any:
    """The gate for sync doors (admin, commands): local calls only; the rest needs an engine to run it."""
    decision = decide(request, local_only=True)
    return decision.result


def decide(request: CallRequest, *, local_only: bool = False) -> Decision:
    """Check, judge, record; for a local call also do it, all in one transaction.

    Raises MeahError, and ValueError with `local_only` for a tool that is not local; nothing was done then.
    """
    _check_arguments(request)
    target = target_of(request.server)
    facts = target.facts(request.tool, request.arguments)
    if local_only and not facts.local:
        raise ValueError(f"{request.tool} is not local: a sync door cannot run it")
    decision = Decision(request, target, facts, target.check(request), ALLOW_ALL)
    if facts.recorded:
        # Redacting a large call takes its time: not while the write lock is held.
        decision.arguments_view, salt = commitment(request.arguments)
        with transaction.atomic():
            decision.call = _open_call(decision, salt)
            record_many(_apply(decision) if facts.local else [_sent(decision)])
    elif facts.local:
        decision.result = target.apply(request, decision.checked, None, decision.verdict).result
    return decision


def settle(decision: Decision, error: MeahError | None, *, was_sent: bool = True) -> None:
    """Write the outcome of a call that was run."""
    if decision.call is not None:
        _close_call(decision.call, _outcome(decision.facts.effect_class, error, was_sent=was_sent), error)


def settle_orphans() -> int:
    """Settle the calls whose process died while they ran: a read has failed, of a write nobody knows. How many."""
    sending = Call.objects.filter(state=CallState.SENDING)
    owners = set(sending.exclude(owner="").order_by().values_list("owner", flat=True).distinct())
    unowned = Q(owner="", created_at__lt=timezone.now() - UNOWNED_CALLS_END_WITHIN)
    orphans = sending.filter(Q(owner__in=dead_among(owners)) | unowned) if owners else sending.filter(unowned)
    return sum(_settle_orphan(call) for call in orphans)


def _settle_orphan(call: Call) -> bool:
    error = MeahError(
        "E_UNAVAILABLE",
        "The MEAH process that made this call has ended; what came of it is not known.",
        hint="See whether it happened before you make it again: nothing is resent by itself.",
        reason="process_died",
        retryable=call.effect_class == EffectClass.READ,
    )
    state = CallState.FAILED if call.effect_class == EffectClass.READ else CallState.UNKNOWN
    return _close_call(call, state, error)


async def _withdraw(deciding: asyncio.Task[Decision]) -> None:
    """The caller went away while the gate decided: what has not been sent is not sent any more."""
    try:
        decision = await deciding
    except MeahError:
        return
    if not decision.facts.local:
        await in_db(settle, decision, MeahError("E_CANCELLED"), was_sent=False)


async def _settle_done(decision: Decision) -> None:
    try:
        await in_db(settle, decision, None)
    except MeahError as error:
        raise MeahError(
            error.code,
            "The call was made, but its outcome could not be recorded.",
            hint="Do not make it again before you have looked at what it did; then run `manage.py doctor`.",
            retryable=False,
        ) from error


def _check_arguments(request: CallRequest) -> None:
    try:
        size = len(canonical_text(request.arguments).encode())
    except StrictDecodeError as error:
        raise MeahError(
            "E_INVALID_REQUEST",
            f"The arguments are not acceptable JSON: {error}.",
            hint="Send plain JSON: unique keys, finite numbers, integers within 2^53, valid Unicode, depth up to 64.",
            reason=error.reason,
        ) from error
    if size > MAX_ARGUMENT_BYTES:
        raise MeahError(
            "E_INVALID_REQUEST",
            f"The arguments are {size:,} bytes; at most {MAX_ARGUMENT_BYTES:,} are accepted.",
            hint="Send less: cut the context to what the task needs.",
            reason="too_large",
        )


def _open_call(decision: Decision, salt: str) -> Call:
    request = decision.request
    return Call.objects.create(
        state=CallState.DONE if decision.facts.local else CallState.SENDING,
        principal=request.principal,
        server=request.server,
        tool=request.tool,
        effect_class=decision.facts.effect_class,
        door=request.door,
        run=request.run,
        step=request.step,
        arguments_salt=salt,
        owner=request.owner,
        finished_at=Now() if decision.facts.local else None,
    )


def _apply(decision: Decision) -> list[NewEntry]:
    """Do a local call, and return everything that is to be recorded of it."""
    assert decision.call is not None
    applied = decision.target.apply(decision.request, decision.checked, decision.call, decision.verdict)
    decision.result = applied.result
    if applied.replaces_call_entries and applied.entries:
        return _with_arguments(applied.entries, decision.arguments_view)
    return [_sent(decision), *applied.entries, _entry(decision.call, "call.done")]


def _with_arguments(entries: Iterable[NewEntry], view: JsonObject) -> list[NewEntry]:
    first, *others = entries
    return [replace(first, data=first.data | {"arguments": view}), *others]


def _sent(decision: Decision) -> NewEntry:
    assert decision.call is not None
    return _entry(decision.call, "call.sent", verdict=decision.verdict.as_dict(), arguments=decision.arguments_view)


def _close_call(call: Call, state: CallState, error: MeahError | None) -> bool:
    """From `sending` to how it ended, with the entry that says so. False when that was done already."""
    told: JsonObject | None = redact_value(error.as_dict()) if error else None
    with transaction.atomic():
        changed = Call.objects.filter(pk=call.pk, state=CallState.SENDING).update(
            state=state, finished_at=Now(), error=told
        )
        if changed:
            outcome = {"code": told["code"], "message": told["message"]} if told else {}
            record_many([_entry(call, f"call.{state}", **outcome)])
    return bool(changed)


def _entry(call: Call, kind: str, **data: Any) -> NewEntry:
    named = {"server": call.server, "tool": call.tool, "door": call.door}
    return NewEntry(kind, principal=call.principal, subject=call.public_id, data=named | data)


def _outcome(effect_class: EffectClass, error: MeahError | None, *, was_sent: bool) -> CallState:
    """After sending, what can't be known of a write is unknown; a read simply failed."""
    if error is None:
        return CallState.DONE
    ambiguous = was_sent and error.code in {"E_TIMEOUT", "E_CANCELLED", "E_NETWORK"}
    return CallState.UNKNOWN if ambiguous and effect_class != EffectClass.READ else CallState.FAILED


def _as_meah_error(error: BaseException) -> MeahError:
    if isinstance(error, MeahError):
        return error
    if isinstance(error, Exception):
        return MeahError("E_UNAVAILABLE", "The call failed inside MEAH; its log says more.")
    return MeahError("E_CANCELLED")
