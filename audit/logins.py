"""Failed logins: one entry per source and minute, with a count, however many there are.

Each failure is first counted in a row of its source, in the same transaction that then records what is due. Due is a
source whose count is not zero and which has no entry in this minute yet: so the first failure is recorded at once,
the following ones of that minute are counted, and their sum is recorded by the first login or failed login of a later
minute, whoever it comes from, or by the engine, which calls `record_due`. The count is in the database, so a killed
process loses none; per source, the counts of its entries and the one in its row add up to all failures there were.

A flood from many addresses is bounded too: an IPv6 source is its /64 network, and beyond 64 sources at once the rest
is counted as one source, `many`. Names that were tried are not recorded: what stands in that field is often a
password.
"""

from __future__ import annotations

from datetime import datetime
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.utils import timezone

from audit.models import LoginFailure
from audit.services import NewEntry, record_many
from core.canonical import utc_text

KIND: Final = "user.login_failed"
MANY: Final = "many"
MAX_SOURCES: Final = 64


def source_of(address: str | None) -> str:
    """The source that a client's address counts under."""
    try:
        found = ip_address(address or "")
    except ValueError:
        return "unknown"
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(ip_network((found, 64), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)


def count_failure(source: str, *, now: datetime | None = None) -> None:
    """Count a failed login, and record what is due. Raises MeahError E_AUDIT when that fails."""
    moment = now or timezone.now()
    with transaction.atomic():
        _add(source, moment)
        _record_due(moment)


def record_due(*, now: datetime | None = None) -> None:
    """Record the failures of past minutes that are only counted yet. Cheap when there are none."""
    moment = now or timezone.now()
    if LoginFailure.objects.filter(_is_past(moment)).exists():
        with transaction.atomic():
            _record_due(moment)


def _add(source: str, now: datetime) -> None:
    # All rows, in one order: two processes that each held some would wait for each other.
    known = [row.source for row in LoginFailure.objects.select_for_update().order_by("source")]
    if source not in known and len(known) >= MAX_SOURCES:
        source = MANY
    LoginFailure.objects.get_or_create(source=source)
    LoginFailure.objects.filter(source=source).update(
        unrecorded=F("unrecorded") + 1, first_at=Coalesce("first_at", now), last_at=now
    )


def _record_due(now: datetime) -> None:
    past = LoginFailure.objects.filter(_is_past(now))
    due = list(past.filter(unrecorded__gt=0).select_for_update().order_by("source"))
    past.filter(unrecorded=0).delete()
    LoginFailure.objects.filter(source__in=[row.source for row in due]).update(
        unrecorded=0, first_at=None, last_at=None, recorded_in=_minute(now)
    )
    record_many([_entry(row) for row in due])


def _is_past(now: datetime) -> Q:
    return Q(recorded_in=None) | Q(recorded_in__lt=_minute(now))


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def _entry(row: LoginFailure) -> NewEntry:
    assert row.first_at and row.last_at
    data = {"count": row.unrecorded, "first": utc_text(row.first_at), "last": utc_text(row.last_at)}
    return NewEntry(KIND, principal="system", subject=row.source, data=data)
