"""How requests and calls end without anybody's word on them: by the clock, by a change, by a halt."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import Q, TextField
from django.db.models.functions import Cast, Now
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from audit.services import record
from core.logs import event

from . import webhooks
from .models import Approval, ApprovalState, Call, CallState
from .processes import ring_after_commit

log = logging.getLogger("meah.approvals")

MAX_NOTE_CHARS: Final = 2000
UNDECIDED_OR_UNSTARTED: Final = Q(state__in=[ApprovalState.PENDING, ApprovalState.APPROVED], call__state=CallState.HELD)
_DEADLINES: Final = ("expires_at", "execute_by")


# -- the clock ------------------------------------------------------------------------------------------------------


def expire_due() -> int:
    """End what ran out of time: undecided past `expiresAt`, approved but not started past `executeBy`."""
    now = timezone.now()
    _end_unreadable_times(now)
    undecided = Approval.objects.filter(state=ApprovalState.PENDING, expires_at__lte=now)
    unstarted = Approval.objects.filter(
        Q(execute_by__lte=now) | Q(execute_by__isnull=True),
        Q(call__lease_until__lte=now) | Q(call__lease_until__isnull=True),
        state=ApprovalState.APPROVED,
        call__state=CallState.HELD,
    )
    ended = [_end(approval, ApprovalState.EXPIRED, "nobody decided in time") for approval in undecided]
    return sum(ended) + sum(map(expire, unstarted))


def expire(approval: Approval) -> bool:
    """End an approved request that was not started in time. False when it had ended, or is being sent."""
    return _end(approval, ApprovalState.EXPIRED, "it was not started in time")


def has_run_out(deadline: datetime | None) -> bool:
    """Also where there is none, or none that can be read."""
    return deadline is None or deadline <= timezone.now()


def _end_unreadable_times(now: datetime) -> None:
    """A deadline that is no moment in time is one that has passed, and its row can be read again."""
    texts = {name: Cast(name, TextField()) for name in _DEADLINES}
    open_ones = Approval.objects.filter(UNDECIDED_OR_UNSTARTED)
    unreadable = [
        key
        for key, *deadlines in open_ones.values_list("pk", *texts.values())
        if any(deadline is not None and _moment(deadline) is None for deadline in deadlines)
    ]
    if unreadable:
        event(log, "deadlines_unreadable", level="error", approvals=len(unreadable))
        with transaction.atomic():
            Approval.objects.filter(pk__in=unreadable).update(expires_at=now)
            Approval.objects.filter(pk__in=unreadable, state=ApprovalState.APPROVED).update(execute_by=now)


def _moment(text: str) -> datetime | None:
    try:
        return parse_datetime(text)
    except ValueError:
        return None


# -- before anything was sent ----------------------------------------------------------------------------------------


def void(approval: Approval, why: str) -> bool:
    """End a request that may no longer run. False when it had ended, or is being sent."""
    return _end(approval, ApprovalState.VOID, why)


def _end(approval: Approval, state: ApprovalState, why: str) -> bool:
    with transaction.atomic():
        # The call first: whoever takes it out of `held`, this or an executor, has the say.
        if not cancel_held(approval):
            return False
        Approval.objects.filter(pk=approval.pk).update(state=state, outcome_note=why[:MAX_NOTE_CHARS])
        webhooks.tell(approval, f"approval.{state}")
        ring_after_commit()
        data = {"call": approval.call.public_id, "why": why}
        record(f"approval.{state}", principal="system", subject=approval.public_id, data=data)
    return True


def cancel_held(approval: Approval) -> bool:
    held = Call.objects.filter(pk=approval.call_id, state=CallState.HELD)
    return bool(held.update(state=CallState.CANCELLED, finished_at=Now()))


def cancel_unsent(call: Call, why: str) -> bool:
    """End an allowed call that waits for an executor. False when it had ended, or is being sent."""
    with transaction.atomic():
        waiting = Call.objects.filter(pk=call.pk, state=CallState.HELD)
        if not waiting.update(state=CallState.CANCELLED, finished_at=Now()):
            return False
        ring_after_commit()
        record("call.cancelled", principal="system", subject=call.public_id, data={"why": why})
    return True
