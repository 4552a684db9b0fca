"""A call that was judged: what it is about, its row, and its entries in the chain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.db.models.functions import Now

from audit.services import NewEntry
from core.canonical import StrictDecodeError, canonical_text, check_value
from core.errors import JsonObject, MeahError

from .models import Call, CallState, EffectClass, new_call_id
from .policy import ALLOW, Verdict
from .step_key import same_call, step_key
from .targets import CallRequest, Checked, Target, ToolFacts

MAX_ARGUMENT_BYTES: Final = 2**20


@dataclass
class Outcome:
    """What a door gets back: a result, or the state of a request that waits for a person."""

    status: str
    result: Any = None
    approval: JsonObject | None = None
    replay: bool = False
    call_id: str = ""


@dataclass
class Decision:
    """A call that was judged. `outcome` is set where nothing is left to run."""

    request: CallRequest
    target: Target
    facts: ToolFacts
    checked: Checked
    text: str
    verdict: Verdict
    call: Call | None = None
    arguments_view: JsonObject = field(default_factory=dict)
    salt: str = ""
    outcome: Outcome | None = None

    @property
    def is_read(self) -> bool:
        return self.facts.effect_class == EffectClass.READ


def check_json(arguments: JsonObject) -> None:
    """Whatever the door has checked before. Raises MeahError E_INVALID_REQUEST."""
    try:
        check_value(arguments)
        size = len(canonical_text(arguments).encode())
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


def new_call(decision: Decision, *, waits: bool, outcome: Mapping[str, Any] | None = None) -> Call:
    """Its row: to be sent, waiting, or (with `outcome`, the columns of one that has ended) already over."""
    request, facts = decision.request, decision.facts
    public_id = new_call_id()
    local_now = facts.local and decision.verdict.effect == ALLOW
    state = CallState.DONE if local_now else CallState.HELD if waits else CallState.SENDING
    columns: dict[str, Any] = {
        "state": state,
        "arguments": decision.text if not local_now else "",
        "lease_owner": request.owner if state == CallState.SENDING else "",
        "sending_at": Now() if state == CallState.SENDING else None,
        "finished_at": Now() if local_now else None,
    }
    if outcome is not None:
        columns |= {"arguments": "", **outcome}
    return Call.objects.create(
        public_id=public_id,
        principal=request.principal,
        server=request.server,
        tool=request.tool,
        effect_class=facts.effect_class,
        door=request.door,
        run=request.run,
        step=request.step if not decision.is_read else "",
        step_key=step_key(
            principal=request.principal,
            run=request.run,
            # Without a step each call is one of its own: two that are meant must not look like one that is repeated.
            step=request.step or public_id,
            server=request.server,
            tool=request.tool,
            arguments=decision.text,
        ),
        needs_approval=decision.verdict.effect != ALLOW,
        pin=facts.pin,
        arguments_digest=same_call(server=request.server, tool=request.tool, arguments=decision.text),
        arguments_salt=decision.salt,
        verdict=decision.verdict.as_dict(),
        owner=request.owner,
        **columns,
    )


def sent_entry(decision: Decision) -> NewEntry:
    data = {"verdict": decision.verdict.as_dict(), "arguments": decision.arguments_view}
    return _entry(decision, "call.sent", data)


def outcome_entry(decision: Decision, state: CallState, data: JsonObject) -> NewEntry:
    return _entry(decision, f"call.{state}", data)


def _entry(decision: Decision, kind: str, data: JsonObject) -> NewEntry:
    assert decision.call is not None
    return NewEntry(
        kind,
        principal=decision.request.principal,
        subject=decision.call.public_id,
        data=named(decision) | data,
    )


def named(decision: Decision) -> JsonObject:
    data: JsonObject = {
        "server": decision.request.server,
        "tool": decision.request.tool,
        "door": decision.request.door,
        "class": str(decision.facts.effect_class),
    }
    if decision.request.step:
        data |= {"run": decision.request.run, "step": decision.request.step}
    return data


def request_of(call: Call) -> CallRequest:
    """A held call's request, from the stored arguments: exactly what was decided on."""
    return CallRequest(
        principal=call.principal,
        server=call.server,
        tool=call.tool,
        arguments=json.loads(call.arguments),
        door=call.door,
        owner=call.owner,
        run=call.run,
        step=call.step,
    )
