"""Requests as people look at them: what waits for whom, what a request is like, what becomes of a retry. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Count

from audit.models import Entry

from .holds import load_settings
from .models import Approval, ApprovalState, Call, CallState, EffectClass, Token
from .services import deciders, may_decide_each

# How far back a similar call is looked for.
SIMILAR_WITHIN: Final = 20_000
MAX_WAITING: Final = 1_000
MAX_ENTRIES: Final = 50


@dataclass(frozen=True)
class Waiting:
    """Requests that wait for a person: all of them, those that one user may decide, and whether nobody else can."""

    total: int
    mine: int
    is_single_approver: bool


def waiting_for(user: Any) -> Waiting:
    pending = list(Approval.objects.filter(state=ApprovalState.PENDING).order_by("pk")[:MAX_WAITING])
    mine = sum(not why for why in may_decide_each(pending, user).values())
    return Waiting(len(pending), mine, is_single_approver=len(deciders()) == 1)


def similar_call(call: Call) -> Call | None:
    """The last call of the same tool that was done, whoever made it."""
    before = Call.objects.filter(pk__lt=call.pk, pk__gte=call.pk - SIMILAR_WITHIN)
    same = before.filter(server=call.server, tool=call.tool, state=CallState.DONE)
    return same.exclude(arguments="").order_by("-pk").first()


def identical_calls(call: Call) -> dict[str, int]:
    """How often the same principal asked exactly this before and since, by the state that it came to."""
    same = Call.objects.filter(principal=call.principal, arguments_digest=call.arguments_digest).exclude(pk=call.pk)
    counted = same.exclude(arguments_digest="").order_by().values_list("state").annotate(count=Count("pk"))
    return {str(state): count for state, count in counted}


def entries_about(*subjects: str) -> list[Entry]:
    return list(Entry.objects.filter(subject__in=subjects).order_by("seq")[:MAX_ENTRIES])


# -- who asked ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asker:
    """Who is behind a principal: an authenticated person, or nobody but a name that a client gave itself."""

    principal: str
    person: str
    is_claim: bool

    @property
    def explanation(self) -> str:
        if self.is_claim:
            return "a claim: the client gave this name itself, and no person is known behind it"
        return f"authenticated, with {self.person} behind it" if self.person else "MEAH itself"


def asker_of(principal: str, user: Any = None) -> Asker:
    kind, _, name = principal.partition(":")
    if kind == "token" and user is None:
        token = Token.objects.select_related("user").filter(name=name).first()
        user = token.user if token else None
    if user is not None:
        return Asker(principal, user.get_username(), is_claim=False)
    if kind == "user":
        return Asker(principal, name, is_claim=False)
    return Asker(principal, "", is_claim=principal != "system")


# -- retries --------------------------------------------------------------------------------------------------------


def retry_of(call: Call, approval: Approval | None) -> str:
    """What a repetition of this call gets, in words."""
    if call.effect_class == EffectClass.READ:
        return "is read again: reads are never replayed."
    if call.step:
        return _retry_with_step(call, approval)
    if not call.needs_approval:
        return "is sent again, as a new call: it had no step."
    if call.state in Call.OPEN:
        return "is this same request."
    return _retry_of_ended(call, approval)


def _retry_with_step(call: Call, approval: Approval | None) -> str:
    if call.state in Call.OPEN:
        return "of the same step is this same request."
    if call.state == CallState.CANCELLED and not _is_rejected(approval):
        return "of the same step is a new request: this one was never sent."
    stored = "the rejection and its note" if _is_rejected(approval) else "the stored outcome, marked as a replay"
    return f"of the same step gets {stored}, for good; with other arguments it is refused."


def _retry_of_ended(call: Call, approval: Approval | None) -> str:
    if approval is None or approval.decided_at is None:
        return "is a new request: this one was never sent."
    if call.state == CallState.CANCELLED and not _is_rejected(approval):
        return "is a new request: this one was never sent."
    stored = "the rejection and its note" if _is_rejected(approval) else "the stored outcome, marked as a replay"
    until = approval.decided_at + timedelta(seconds=load_settings().duplicate_window_s)
    return f"gets {stored} until {until:%Y-%m-%d %H:%M:%S} UTC, and is a new request after that."


def _is_rejected(approval: Approval | None) -> bool:
    return approval is not None and approval.state == ApprovalState.REJECTED
