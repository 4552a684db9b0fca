"""The gate: every call passes `submit`, or `decide_now` from a sync door. There is no other way to a side effect.

Policy is not here yet: every call is allowed, and recorded. The order of things is the final one:
check the arguments, decide and record in one transaction, run, settle in another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from audit.dbthread import in_db
from audit.services import NewEntry, commitment, record_many
from core.canonical import StrictDecodeError, canonical_text, check_value
from core.errors import JsonObject, MeahError

from .models import Call, CallState, EffectClass
from .targets import CallContext, CallRequest, Target, ToolFacts, Verdict, target_of

MAX_ARGUMENT_BYTES = 2**20
ALLOW_ALL = Verdict("allow", "built-in: allow everything")


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
    decision = await in_db(decide, request)
    if decision.facts.local:
        return decision.result
    try:
        result = await decision.target.run(request, decision.checked, context)
    except BaseException as error:
        await in_db(settle, decision, _as_meah_error(error))
        raise
    await in_db(settle, decision, None)
    return result


def decide_now(request: CallRequest) -> Any:
    """The gate for sync doors (admin, commands): local calls only; the rest needs an engine to run it."""
    decision = decide(request)
    if not decision.facts.local:
        raise ValueError(f"{request.tool} is not local: a sync door cannot run it")
    return decision.result


def decide(request: CallRequest) -> Decision:
    """Check, judge, record; for a local call also do it, all in one transaction."""
    _check_arguments(request)
    target = target_of(request.server)
    facts = target.facts(request.tool, request.arguments)
    decision = Decision(request, target, facts, target.check(request), ALLOW_ALL)
    if facts.recorded:
        with transaction.atomic():
            decision.call = _open_call(decision)
            record_many(_apply(decision) if facts.local else [_sent(decision)])
    elif facts.local:
        decision.result = target.apply(request, decision.checked, None, decision.verdict).result
    return decision


def settle(decision: Decision, error: MeahError | None) -> None:
    """Write the outcome of a call that was run."""
    if decision.call is None:
        return
    state = _outcome(decision, error)
    with transaction.atomic():
        changed = Call.objects.filter(pk=decision.call.pk, state=CallState.SENDING).update(
            state=state, finished_at=Now(), error=error.as_dict() if error else None
        )
        if changed:
            outcome: JsonObject = {"code": error.code, "message": error.message} if error else {}
            record_many([_entry(decision, f"call.{state}", outcome)])


def _check_arguments(request: CallRequest) -> None:
    try:
        check_value(request.arguments)
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


def _open_call(decision: Decision) -> Call:
    request = decision.request
    decision.arguments_view, salt = commitment(request.arguments)
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
    applied = decision.target.apply(decision.request, decision.checked, decision.call, decision.verdict)
    decision.result = applied.result
    if applied.replaces_call_entries and applied.entries:
        return applied.entries
    return [_sent(decision), *applied.entries, _entry(decision, "call.done", {})]


def _sent(decision: Decision) -> NewEntry:
    data = {"verdict": decision.verdict.as_dict(), "arguments": decision.arguments_view}
    return _entry(decision, "call.sent", data)


def _entry(decision: Decision, kind: str, data: JsonObject) -> NewEntry:
    assert decision.call is not None
    named = {"server": decision.request.server, "tool": decision.request.tool, "door": decision.request.door}
    return NewEntry(kind, principal=decision.request.principal, subject=decision.call.public_id, data=named | data)


def _outcome(decision: Decision, error: MeahError | None) -> CallState:
    """After sending, what can't be known of a write is unknown; a read simply failed."""
    if error is None:
        return CallState.DONE
    ambiguous = error.code in {"E_TIMEOUT", "E_CANCELLED", "E_NETWORK"}
    if ambiguous and decision.facts.effect_class != EffectClass.READ:
        return CallState.UNKNOWN
    return CallState.FAILED


def _as_meah_error(error: BaseException) -> MeahError:
    if isinstance(error, MeahError):
        return error
    if isinstance(error, Exception):
        return MeahError("E_UNAVAILABLE", "The call failed inside MEAH; its log says more.")
    return MeahError("E_CANCELLED")
