"""The chain's statements, as plain SQL.

An append is on the way of every call, and a verification reads every entry there is: the ORM would double the time
of the one and more than that of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import DatabaseError, connection

from audit.chain import Projection
from audit.models import Entry

_HEAD = "SELECT log, size, last_hash FROM audit_head WHERE id = 1"
_INSERT = (
    "INSERT INTO audit_entry (seq, payload, hash, kind, principal, subject, at) VALUES (%s, %s, %s, %s, %s, %s, %s)"
)
_ADVANCE = "UPDATE audit_head SET size = %s, last_hash = %s WHERE id = 1 AND size = %s"
_ROWS = (
    "SELECT payload, hash, seq, kind, principal, subject, {time} FROM audit_entry"
    " WHERE seq > %s AND seq < %s ORDER BY seq LIMIT %s"
)
# The column's time in the form of payloads. SQLite keeps text, and Django leaves out a fraction of zero there.
_TIME = {
    "sqlite": ("substr(at, 1, 10) || 'T' || substr(at, 12) || CASE length(at) WHEN 19 THEN '.000000Z' ELSE 'Z' END"),
    "postgresql": """to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""",
}
# In one statement, so that an append between two reads can not look like a stray entry.
_BEYOND = "SELECT MIN(seq) FROM audit_entry WHERE seq >= %s AND seq >= (SELECT size FROM audit_head WHERE id = 1)"
_CHUNK: Final = 2000
_BEFORE_ALL: Final = -(2**63)


@dataclass(frozen=True)
class HeadInfo:
    """Where the chain ends: this installation's id, the number of entries, the hash of the last one."""

    log: str
    size: int
    hash: str


def head() -> HeadInfo:
    """The head as it stands. Raises DatabaseError when it is not there."""
    return _read_head(_HEAD)


def locked_head() -> HeadInfo:
    """The head, held until the transaction ends.

    PostgreSQL locks the row; on SQLite the transaction itself is the lock.
    """
    return _read_head(_HEAD + " FOR UPDATE" if connection.features.has_select_for_update else _HEAD)


def _read_head(statement: str) -> HeadInfo:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
    if row is None or not isinstance(row[1], int):
        raise DatabaseError("The chain has no head row, or one that can not be read.")
    return HeadInfo(*row)


def append(entries: Sequence[Entry], *, was: HeadInfo) -> None:
    """Insert entries and move the locked head past them. Raises DatabaseError when it did not stand at `was`."""
    adapt = connection.ops.adapt_datetimefield_value
    rows: list[tuple[Any, ...]] = [
        (e.seq, e.payload, e.hash, e.kind, e.principal, e.subject, adapt(e.at)) for e in entries
    ]
    with connection.cursor() as cursor:
        if len(rows) == 1:
            cursor.execute(_INSERT, rows[0])
        else:
            cursor.executemany(_INSERT, rows)
        cursor.execute(_ADVANCE, (was.size + len(rows), entries[-1].hash, was.size))
        if cursor.rowcount != 1:
            raise DatabaseError("The head moved while it was held.")


def chunks(*, size: int) -> Iterator[list[tuple[bytes, str, Projection]]]:
    """All entries numbered below `size` as (payload, hash, projection), in the order of the column `seq`.

    Read by key, a chunk at a time: no cursor stays open, and memory does not grow with the chain.
    """
    statement = _ROWS.format(time=_TIME[connection.vendor])
    after = _BEFORE_ALL
    while rows := _fetch(statement, (after, size, _CHUNK)):
        after = rows[-1][2]
        yield [(as_bytes(row[0]), row[1], row[2:]) for row in rows]


def first_beyond(size: int) -> int | None:
    """The number of the first entry that stands after the head and is not a later append, or None."""
    found = _fetch(_BEYOND, (size,))[0][0]
    return found if found is None or isinstance(found, int) else size


def as_bytes(stored: Any) -> bytes:
    """A stored payload; one that SQLite holds as something else, since it was tampered with, as the bytes of that."""
    return str(stored).encode(errors="backslashreplace") if isinstance(stored, str | int | float) else bytes(stored)


def _fetch(statement: str, parameters: Sequence[Any]) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[Any] = cursor.fetchall()
    return rows
