"""Decisions of persons. Each is one transaction: states, entry, bell, webhooks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from audit.services import NewEntry, record, record_many
from core.errors import JsonObject, MeahError

from . import webhooks
from .endings import MAX_NOTE_CHARS, UNDECIDED_OR_UNSTARTED, cancel_held, cancel_unsent, expire_due, has_run_out, void
from .holds import binding_of, load_settings
from .models import Approval, ApprovalState, Call, CallState, Decision, Halt
from .outcomes import status_of, storable_error
from .processes import living, ring_after_commit
from .targets import target_of

User = Any
DECIDE = "approvals.decide_approval"
_HAS_DECIDED: Final = "{} has decided already; another person is needed."


def get(public_id: str) -> Approval:
    """Raises MeahError E_NOT_FOUND."""
    found = Approval.objects.select_related("call").filter(public_id=public_id)
    try:
        approval = found.first()
    except ValueError:
        # One of its deadlines can not be read.
        expire_due()
        approval = found.first()
    if approval is None:
        raise MeahError("E_NOT_FOUND", f"There is no request {public_id}.", hint="list_pending shows the open ones.")
    return approval


# -- persons --------------------------------------------------------------------------------------------------------


def deciders() -> list[User]:
    """Active users who hold the permission to decide."""
    holders = Permission.objects.filter(content_type__app_label="approvals", codename="decide_approval")
    users = get_user_model()._default_manager.filter(is_active=True)
    return list(
        users.filter(
            Q(is_superuser=True) | Q(user_permissions__in=holders) | Q(groups__permissions__in=holders)
        ).distinct()
    )


def may_decide(approval: Approval, user: User) -> str:
    """Why this user can not decide it; empty where they can."""
    return may_decide_each([approval], user)[approval.pk]


def may_decide_each(approvals: Iterable[Approval], user: User) -> dict[int, str]:
    """`may_decide` of many requests, by key, in a number of queries that does not grow with them."""
    if not user.is_active or not user.has_perm(DECIDE):
        return {approval.pk: f"{user.get_username()} lacks the permission {DECIDE}." for approval in approvals}
    rows = list(approvals)
    votes = defaultdict(list)
    for vote in Decision.objects.filter(approval__in=rows).select_related("user").prefetch_related("user__groups"):
        votes[vote.approval_id].append(vote)
    voter = get_user_model()._default_manager.prefetch_related("groups").get(pk=user.pk)
    is_alone = len(deciders()) == 1
    return {row.pk: _why_not(row, voter, votes[row.pk], is_alone=is_alone) for row in rows}


def _why_not(approval: Approval, user: User, votes: Sequence[Decision], *, is_alone: bool) -> str:
    if approval.state != ApprovalState.PENDING:
        return f"It is {status_of(approval)} already."
    if _asked(approval, user) and not is_alone:
        return "Who asked can not decide: somebody else has to."
    if any(vote.user_id == user.pk for vote in votes):
        return _HAS_DECIDED.format(user.get_username())
    waiting = _unmet(approval.demands, votes)
    if not any(_counts(user, demand) for demand in waiting):
        groups = ", ".join(sorted({demand["group"] for demand in waiting}))
        return f"It waits for somebody of the group {groups}."
    return ""


def _asked(approval: Approval, user: User) -> bool:
    return approval.requested_by_id == user.pk or approval.principal == f"user:{user.get_username()}"


def _counts(user: User, demand: JsonObject) -> bool:
    if not demand["group"]:
        return True
    return any(group.name == demand["group"] for group in user.groups.all())


def _open_demands(approval: Approval) -> list[JsonObject]:
    """The demands that the recorded approvals do not meet yet."""
    return _unmet(approval.demands, list(approval.decisions.select_related("user")))


def _unmet(demands: list[JsonObject], votes: Sequence[Decision]) -> list[JsonObject]:
    approvers = [vote.user for vote in votes if vote.vote == Decision.Vote.APPROVE]
    return [demand for demand in demands if not _met(demand, approvers)]


def _met(demand: JsonObject, approvers: list[User]) -> bool:
    wanted: int = demand["count"]
    return sum(_counts(user, demand) for user in approvers if user.is_active) >= wanted


def demands_met(approval: Approval, demands: list[JsonObject]) -> bool:
    """Whether the recorded decisions, by users who may still decide, satisfy these demands."""
    approvers = [
        decision.user
        for decision in approval.decisions.select_related("user")
        if decision.vote == Decision.Vote.APPROVE and decision.user.is_active and decision.user.has_perm(DECIDE)
    ]
    return all(_met(demand, approvers) for demand in demands)


# -- approve and reject ---------------------------------------------------------------------------------------------


def approve(approval: Approval, *, user: User, note: str, door: str, digest: str = "") -> Approval:
    """One person's approval; the last one that is needed starts the clock of the execution.

    `digest` is what the person was shown. Raises MeahError: E_DENIED for who may not, E_INVALID_REQUEST for what
    is decided, expired, void, changed, or lacks its note.
    """
    _check_decision(approval, user, note, digest)
    if approval.note_required and not note.strip():
        raise MeahError("E_INVALID_REQUEST", "A note is required to approve this.", hint="Say why it is right.")
    with transaction.atomic():
        _lock_pending(approval)
        _vote(approval, user, Decision.Vote.APPROVE, note, door)
        complete = not _open_demands(approval)
        if complete:
            execute_by = timezone.now() + timedelta(seconds=load_settings().execute_within_s)
            _decide(approval, ApprovalState.APPROVED, execute_by=execute_by)
            webhooks.tell(approval, "approval.approved")
        record_many([_decided(approval, user, "approve", note, door, complete=complete)])
    return get(approval.public_id)


def reject(approval: Approval, *, user: User, note: str, door: str, digest: str = "") -> Approval:
    """One rejection ends it. Raises as `approve` does; the note is required, since the agent reads it."""
    _check_decision(approval, user, note, digest)
    if not note.strip():
        raise MeahError("E_INVALID_REQUEST", "A rejection needs a note.", hint="Say why: the agent reads it.")
    with transaction.atomic():
        _lock_pending(approval)
        _vote(approval, user, Decision.Vote.REJECT, note, door)
        _decide(approval, ApprovalState.REJECTED, note=note)
        cancel_held(approval)
        webhooks.tell(approval, "approval.rejected")
        record_many([_decided(approval, user, "reject", note, door, complete=True)])
    return get(approval.public_id)


def _check_decision(approval: Approval, user: User, note: str, digest: str) -> None:
    if len(note) > MAX_NOTE_CHARS:
        raise MeahError("E_INVALID_REQUEST", f"The note has {len(note)} characters; {MAX_NOTE_CHARS} are kept.")
    if digest and digest != approval.digest:
        raise MeahError("E_INVALID_REQUEST", "What was shown is not what is stored: look again.", reason="digest")
    if approval.state == ApprovalState.PENDING and has_run_out(approval.expires_at):
        expire_due()
        approval.refresh_from_db()
    if approval.state != ApprovalState.PENDING:
        raise already_decided(approval)
    if not is_as_asked(approval):
        raise MeahError(
            "E_INVALID_REQUEST",
            "What is stored is not what was asked for.",
            hint="The database was changed beside MEAH. `manage.py audit verify` and a look at the chain come first.",
            reason="digest",
        )
    if why := may_decide(approval, user):
        raise _may_not_decide(why)


def _may_not_decide(why: str) -> MeahError:
    return MeahError("E_DENIED", why, hint="Ask another approver.", reason="may_not_decide")


def is_as_asked(approval: Approval) -> bool:
    """Whether the stored call is still what the digest binds the request to."""
    return binding_of(approval.call, approval.call.arguments) == approval.digest


_DECIDED_HINTS: Final[dict[str, str]] = dict.fromkeys(
    (ApprovalState.EXPIRED.value, ApprovalState.VOID.value), "It was never sent; the agent can ask again."
)


def already_decided(approval: Approval) -> MeahError:
    """What the loser of a race, or a late decision, is told."""
    first = approval.decisions.select_related("user").order_by("-id").first()
    by = f" by {first.user.get_username()}" if first else ""
    note = f": {approval.outcome_note}" if approval.outcome_note else ""
    return MeahError(
        "E_INVALID_REQUEST",
        f"This request is {status_of(approval)} already{by}{note}.",
        hint=_DECIDED_HINTS.get(approval.state, "Its page, and approval_status, say what became of it."),
        reason="decided",
        details={"status": status_of(approval)},
    )


def _lock_pending(approval: Approval) -> None:
    """Two clicks at once queue up here; the second finds it decided."""
    row = Approval.objects.select_for_update().filter(pk=approval.pk).first()
    if row is None or row.state != ApprovalState.PENDING:
        raise already_decided(get(approval.public_id))


def _vote(approval: Approval, user: User, vote: Decision.Vote, note: str, door: str) -> None:
    """One each: of a person's two clicks at once the second gets here after the first."""
    values = {"vote": vote, "note": note, "door": door}
    if not Decision.objects.get_or_create(approval=approval, user=user, defaults=values)[1]:
        raise _may_not_decide(_HAS_DECIDED.format(user.get_username()))


def _decide(approval: Approval, state: ApprovalState, *, execute_by: Any = None, note: str = "") -> None:
    changed = Approval.objects.filter(pk=approval.pk, state=ApprovalState.PENDING).update(
        state=state, decided_at=Now(), execute_by=execute_by, outcome_note=note[:MAX_NOTE_CHARS]
    )
    if not changed:
        raise already_decided(get(approval.public_id))
    approval.state = state
    ring_after_commit()


def _decided(approval: Approval, user: User, vote: str, note: str, door: str, *, complete: bool) -> NewEntry:
    data = {
        "call": approval.call.public_id,
        "vote": vote,
        "note": note,
        "door": door,
        "complete": complete,
        "binding": approval.digest,
        "singleApprover": len(deciders()) == 1,
    }
    return NewEntry("approval.decided", f"user:{user.get_username()}", approval.public_id, data)


def missing_to_run(call: Call) -> list[str]:
    """Variables that no living process has, so that an approved call could not start; empty where one can run it."""
    try:
        needed = set(target_of(call.server).needs(call.tool))
    except MeahError as error:
        return [error.message]
    lacking: list[set[str]] = [needed - set(process.key_variables) for process in living()]
    if not lacking:
        return [] if not needed else sorted(needed)
    return min((sorted(names) for names in lacking), key=len)


# -- the halt -------------------------------------------------------------------------------------------------------


def is_halted() -> bool:
    return Halt.objects.filter(pk=1, engaged=True).exists()


def halt(*, principal: str, reason: str) -> int:
    """Stop everything: new calls are refused, open requests become void. Returns how many those were.

    Engines see the row within a second and cancel what runs.
    """
    with transaction.atomic():
        values = {"engaged": True, "reason": reason[:500], "changed_by": principal, "changed_at": Now()}
        Halt.objects.update_or_create(pk=1, defaults=values)
        ring_after_commit()
        record("halt.engaged", principal=principal, data={"reason": reason})
    return _end_open(f"halted by {principal}")


def enforce_halt() -> bool:
    """Whether everything is halted; then what was opened in the very moment of the halt is ended too."""
    engaged = Halt.objects.filter(pk=1, engaged=True).first()
    if engaged is None:
        return False
    _end_open(f"halted by {engaged.changed_by}")
    return True


def _end_open(why: str) -> int:
    requests = Approval.objects.filter(UNDECIDED_OR_UNSTARTED).select_related("call")
    unsent = Call.objects.filter(state=CallState.HELD, needs_approval=False)
    return sum(void(approval, why) for approval in requests) + sum(cancel_unsent(call, why) for call in unsent)


def resume(*, principal: str) -> None:
    with transaction.atomic():
        changed = Halt.objects.filter(pk=1, engaged=True).update(
            engaged=False, reason="", changed_by=principal, changed_at=Now()
        )
        if changed:
            ring_after_commit()
            record("halt.released", principal=principal)


# -- unknown --------------------------------------------------------------------------------------------------------


def resolve_unknown(call: Call, *, happened: bool, user: User, note: str) -> Call:
    """A person's word on a call whose outcome could not be known. Raises MeahError E_DENIED, E_INVALID_REQUEST."""
    if not user.is_active or not user.has_perm("approvals.resolve_call"):
        raise MeahError("E_DENIED", f"{user.get_username()} lacks the permission approvals.resolve_call.")
    if not note.strip():
        raise MeahError("E_INVALID_REQUEST", "A note is required.", hint="Say how you know.")
    values = {"state": CallState.DONE, "error": None} if happened else _did_not_happen(user, note)
    with transaction.atomic():
        changed = Call.objects.filter(pk=call.pk, state=CallState.UNKNOWN).update(**values)
        if not changed:
            raise MeahError("E_INVALID_REQUEST", "The call is not unknown (any more).")
        ring_after_commit()
        data = {"happened": happened, "note": note, "server": call.server, "tool": call.tool}
        record("call.resolved", principal=f"user:{user.get_username()}", subject=call.public_id, data=data)
    call.refresh_from_db()
    return call


def _did_not_happen(user: User, note: str) -> JsonObject:
    error = MeahError(
        "E_UNAVAILABLE",
        f"{user.get_username()} found that the call did not happen: {note.strip()[:MAX_NOTE_CHARS]}",
        hint="It may be made again, as a new call.",
        reason="did_not_happen",
        retryable=False,
    )
    return {"state": CallState.FAILED, "error": storable_error(error)}


# -- purge ----------------------------------------------------------------------------------------------------------


def purgeable(*, older_than_days: float) -> QuerySet[Call]:
    """Calls that ended before then and still have their texts."""
    before = timezone.now() - timedelta(days=older_than_days)
    ended = Call.objects.filter(finished_at__lt=before, purged_at__isnull=True)
    return ended.exclude(state__in=[*Call.OPEN, CallState.UNKNOWN])


def purge_texts(*, older_than_days: float, principal: str) -> int:
    """Empty arguments and results of calls that ended before then; the chain is untouched. Returns how many.

    What became of an unknown call is still to be found out, so it keeps its texts.
    """
    with transaction.atomic():
        old = purgeable(older_than_days=older_than_days)
        count = old.update(arguments="", result="", verification_details=None, purged_at=Now())
        if count:
            record("call.purged", principal=principal, data={"calls": count})
    return count
