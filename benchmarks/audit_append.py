"""Appends to the audit chain through its service, one transaction each, beside bare SQLite doing the same writes."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Aim, Measure

TITLE = "audit appends through the service, synchronous=FULL"
SLICE = 200


def measure(home: Path, *, appends: int = 3_000) -> Measure:
    """Service and yardstick in turns, on the same disk."""
    from django.db import connection

    spent = {"service": 0.0, "bare": 0.0}
    bare = _bare_database(home / "yardstick.sqlite3")
    done = 0
    while done < appends:
        size = min(SLICE, appends - done)
        spent["service"] += _by_service(size)
        spent["bare"] += _by_hand(bare, size)
        done += size
    bare.close()
    level = _synchronous(connection)
    return Measure(
        "audit-append",
        TITLE,
        appends / spent["service"],
        "appends/s",
        Aim("value", "at least", 700),
        yardstick=appends / spent["bare"],
        yardstick_title="the same two writes and commit by bare sqlite3, WAL, synchronous=FULL",
        notes=(f"{appends:,} transactions of one entry each; synchronous={level} on the service's connection.",),
    )


def sample(number: int) -> dict[str, Any]:
    """The size of what a call leaves in the chain."""
    return {
        "server": "meah",
        "tool": "meah_delegate_task",
        "door": "mcp",
        "verdict": {"effect": "allow", "rule": "built-in: allow everything"},
        "arguments": {"text": '{"task":"' + "x" * 120 + '"}', "cut": False, "bytes": 131, "digest": "0" * 64},
        "number": number,
    }


def _by_service(count: int) -> float:
    from django.db import transaction

    from audit.services import record

    begun = time.perf_counter()
    for number in range(count):
        with transaction.atomic():
            record("call.sent", principal="agent:benchmark", subject=f"c_{number:020x}", data=sample(number))
    return time.perf_counter() - begun


def _bare_database(path: Path) -> sqlite3.Connection:
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        "CREATE TABLE entry (id INTEGER PRIMARY KEY, seq INTEGER UNIQUE, payload BLOB, hash TEXT);"
        "CREATE TABLE head (id INTEGER PRIMARY KEY, size INTEGER); INSERT INTO head VALUES (1, 0);"
    )
    return database


def _by_hand(database: sqlite3.Connection, count: int) -> float:
    payload = b"x" * 700
    (start,) = database.execute("SELECT size FROM head").fetchone()
    begun = time.perf_counter()
    for number in range(start, start + count):
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO entry (seq, payload, hash) VALUES (?, ?, ?)", (number, payload, "0" * 64))
        database.execute("UPDATE head SET size = ?", (number + 1,))
        database.execute("COMMIT")
    return time.perf_counter() - begun


def _synchronous(connection: Any) -> str:
    if connection.vendor != "sqlite":
        return "the server's own"
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA synchronous")
        return {1: "NORMAL", 2: "FULL"}.get(cursor.fetchone()[0], "?")
