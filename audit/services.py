"""What everybody does with the chain: add to it, and ask where it stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from core.canonical import utc_text
from core.text import one_line
from django.db import Error as DatabaseError
from django.db import connection, transaction
from django.utils import timezone

from audit.chain import entry_hash, entry_payload
from audit.models import Entry, Head
from core.errors import MeahError

JsonObject = dict[str, Any]

MAX_PAYLOAD_BYTES: Final = 2**20
_KIND: Final = re.compile(r"[a-z][a-z_]*\.[a-z][a-z_]*")
_NAME_CHARACTERS: Final = 200


@dataclass(frozen=True)
class NewEntry:
    """What is to be recorded. `data` holds strings, booleans, null, integers, lists and objects with ASCII keys."""

    kind: str
    principal: str
    subject: str = ""
    data: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class HeadInfo:
    """Where the chain ends: this installation's id, the number of entries, the hash of the last one."""

    log: str
    size: int
    hash: str


def record(kind: str, *, principal: str, subject: str = "", data: JsonObject | None = None) -> Entry:
    """Add one entry, in the transaction of the change it describes and as its last statement.

    `kind` is `noun.verb`. Control characters of `principal` and `subject` are made visible, and both are cut to 200
    characters. Raises MeahError E_AUDIT when the entry can not be written (the transaction is then rolled back
    whatever the caller does), TransactionManagementError outside of `transaction.atomic`.
    """
    return record_many([NewEntry(kind, principal, subject, data or {})])[0]


def record_many(news: Sequence[NewEntry]) -> list[Entry]:
    """Add several entries under one lock of the head; see `record`."""
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError(
            "audit.services.record belongs inside transaction.atomic()."
        )
    if not news:
        return []
    try:
        return _append(news)
    except (DatabaseError, ValueError) as error:
        transaction.set_rollback(True)
        raise MeahError("E_AUDIT", details={"kind": news[0].kind}) from error


def _append(news: Sequence[NewEntry]) -> list[Entry]:
    start = _locked_head()
    now = timezone.now()
    entries, prev = [], start.hash
    for seq, new in enumerate(news, start.size):
        entries.append(_entry(new, log=start.log, seq=seq, prev=prev, now=now))
        prev = entries[-1].hash
    Entry.objects.append(entries)
    if not Head.objects.advance(was=start.size, size=start.size + len(entries), last_hash=prev):
        raise DatabaseError("The head moved while it was held.")
    return entries


def _locked_head() -> HeadInfo:
    """The head, locked until the transaction ends: by the row on PostgreSQL, by the transaction itself on SQLite."""
    row = Head.objects.select_for_update().values_list("log", "size", "last_hash").first()
    if row is None:
        raise DatabaseError("The chain has no head row.")
    return HeadInfo(*row)


def _entry(new: NewEntry, *, log: str, seq: int, prev: str, now: datetime) -> Entry:
    if not _KIND.fullmatch(new.kind):
        raise ValueError(f"{new.kind!r} is not a kind of entry.")
    names = {
        "kind": new.kind,
        "principal": one_line(new.principal, _NAME_CHARACTERS),
        "subject": one_line(new.subject, _NAME_CHARACTERS),
    }
    payload = entry_payload(log=log, seq=seq, prev=prev, ts=utc_text(now), data=new.data, **names)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"An entry of {len(payload)} bytes is too large.")
    return Entry(seq=seq, payload=payload, hash=entry_hash(payload), at=now, **names)


def head() -> HeadInfo:
    """Where the chain ends now. Raises MeahError E_AUDIT when there is no head row."""
    row = Head.objects.values_list("log", "size", "last_hash").first()
    if row is None:
        raise MeahError("E_AUDIT", "The chain has no head row.")
    return HeadInfo(*row)
