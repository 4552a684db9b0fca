"""Chains to tamper with: in memory, and in the database with its guards taken away."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction

from audit import triggers
from audit.chain import GENESIS, Projection, Verifier, entry_hash, entry_payload
from audit.services import NewEntry, record_many
from audit.verdict import Verdict

LOG = "log_0123456789abcdef0123"
Row = tuple[bytes, str, Projection]


def make_row(
    seq: int,
    prev: str,
    *,
    log: str = LOG,
    subject: str = "",
    data: dict[str, Any] | None = None,
) -> Row:
    """A row as an honest writer would make it in this place."""
    columns = (
        seq,
        "worker.queued",
        "agent:claude",
        subject or f"w_{abs(seq):020x}",
        f"2026-11-30T12:00:00.{abs(seq):06d}Z",
    )
    payload = entry_payload(
        log=log,
        seq=seq,
        prev=prev,
        kind=columns[1],
        principal=columns[2],
        subject=columns[3],
        ts=columns[4],
        data=data or {"text": 'é "quoted" \\ \n', "bytes": seq},
    )
    return payload, entry_hash(payload), columns


@dataclass
class Chain:
    """Rows in the order of their column `seq`, and a head."""

    rows: list[Row] = field(default_factory=list)
    log: str = LOG
    size: int = 0
    head: str = GENESIS

    def verdict(self, *, anchor: str | None = None, columns: bool = True, beyond: int | None = None) -> Verdict:
        verifier = Verifier(self.log, anchor=anchor)
        for payload, stored_hash, projection in self.rows:
            if not verifier.feed(payload, stored_hash, projection if columns else None):
                break
        return verifier.finish(self.size, self.head, beyond=beyond)

    def fault(self, **options: Any) -> tuple[str, int]:
        fault = self.verdict(**options).fault
        assert fault is not None, "the tampering was not seen"
        return fault.kind, fault.seq

    def rebuild_from(self, seq: int, *, with_head: bool) -> None:
        """Do what an attacker with the code would: change entry `seq` and chain everything after it anew."""
        prev = self.rows[seq - 1][1] if seq else GENESIS
        for at in range(seq, len(self.rows)):
            self.rows[at] = make_row(at, prev, data={"forged": True})
            prev = self.rows[at][1]
        if with_head:
            self.size, self.head = len(self.rows), prev


def make_chain(count: int, *, log: str = LOG) -> Chain:
    chain = Chain(log=log)
    for seq in range(count):
        chain.rows.append(make_row(seq, chain.head, log=log))
        chain.head = chain.rows[-1][1]
    chain.size = count
    return chain


def edited(payload: bytes, **fields: Any) -> tuple[bytes, str]:
    """The payload with other fields, and a hash that fits it."""
    new = json.dumps(json.loads(payload) | fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return new, entry_hash(new)


def record_history(count: int) -> None:
    """Entries in the database."""
    with transaction.atomic():
        record_many([NewEntry("call.done", "agent:claude", f"c_{n:020x}", {"bytes": n}) for n in range(count)])


def drop_triggers() -> None:
    """Take the guards away, as someone with access to the database can."""
    for name in triggers._WANTED[connection.vendor]:
        table = "audit_head" if name.startswith("audit_head") else "audit_entry"
        on = f" ON {table}" if connection.vendor == "postgresql" else ""
        sql(f"DROP TRIGGER IF EXISTS {name}{on}")


def break_chain() -> None:
    """Make every append fail."""
    drop_triggers()
    sql("DELETE FROM audit_head")


def sql(statement: str, *parameters: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []
