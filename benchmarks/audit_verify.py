"""Verification of the chain with all its checks, beside reading and hashing the same rows alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from statistics import median

from benchmarks.audit_append import sample
from benchmarks.measure import Aim, Measure

TITLE = "audit verification with all checks"
BATCH = 500


def measure(home: Path, *, entries: int = 50_000, rounds: int = 5) -> Measure:
    fill(entries)
    ours, bare = [], []
    for _ in range(rounds):
        ours.append(_timed(_verify))
        bare.append(_timed(_read_and_hash))
    size = _size()
    return Measure(
        "audit-verify",
        TITLE,
        size / median(ours),
        "entries/s",
        Aim("value", "at least", 50_000),
        yardstick=size / median(bare),
        yardstick_title="the same rows read by key and hashed, nothing checked",
        notes=(f"A chain of {size:,} entries, medians of {rounds}, in turns.",),
    )


def fill(entries: int) -> None:
    """Make the chain at least that long."""
    from django.db import transaction

    from audit.services import NewEntry, record_many

    for start in range(_size(), entries, BATCH):
        news = [
            NewEntry("call.sent", "agent:benchmark", f"c_{number:020x}", sample(number))
            for number in range(start, min(start + BATCH, entries))
        ]
        with transaction.atomic():
            record_many(news)


def _size() -> int:
    from audit.services import head

    return head().size


def _verify() -> None:
    from audit.services import verify

    verdict = verify()
    if not verdict.whole:
        raise RuntimeError(f"the chain is not whole: {verdict.fault}")


def _read_and_hash() -> None:
    from audit import store

    for chunk in store.chunks(size=_size()):
        for payload, _stored, _columns in chunk:
            sha256(b"\x00" + payload).hexdigest()


def _timed(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
