"""The chain as an outbox: nothing new is missed, nothing comes twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import transaction

from audit.dbthread import in_db
from audit.feed import Tailer, entries_after, last_seq
from audit.models import Entry
from audit.services import record
from core.bell import Bell, ring
from tests.audit.histories import record_history
from tests.conftest import Home


def record_one(home: Home | None = None) -> None:
    with transaction.atomic():
        record("call.done", principal="system")
    if home:
        ring(home.path)


class Collector:
    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.lists = 0

    async def __call__(self, entries: Sequence[Entry]) -> None:
        self.seqs += [entry.seq for entry in entries]
        self.lists += 1

    async def reaches(self, count: int, within_s: float = 10) -> None:
        async with asyncio.timeout(within_s):
            while len(self.seqs) < count:
                await asyncio.sleep(0.01)


@pytest.mark.django_db
def test_entries_are_read_in_order_from_where_one_was() -> None:
    assert last_seq() == -1
    record_history(5)
    assert [entry.seq for entry in entries_after(-1)] == [0, 1, 2, 3, 4]
    assert [entry.seq for entry in entries_after(2)] == [3, 4]
    assert [entry.seq for entry in entries_after(-1, limit=2)] == [0, 1]
    assert entries_after(last_seq()) == []


def test_a_tailer_starts_with_what_is_new(run: Any, home: Home) -> None:
    async def main() -> None:
        await in_db(record_history, 3)
        seen = Collector()
        task = asyncio.create_task(Tailer(seen).run())
        await asyncio.sleep(0.3)
        await in_db(record_one)
        await seen.reaches(1)
        task.cancel()
        assert seen.seqs == [3]

    run(main())


def test_a_tailer_reads_all_from_where_it_is_told_to(run: Any, home: Home) -> None:
    async def main() -> None:
        await in_db(record_history, 1203)
        seen = Collector()
        task = asyncio.create_task(Tailer(seen, after=-1).run())
        await seen.reaches(1203)
        task.cancel()
        assert seen.seqs == list(range(1203))
        assert seen.lists == 3

    run(main())


@pytest.mark.parametrize("owns_bell", [True, False])
def test_the_bell_wakes_a_tailer(run: Any, home: Home, owns_bell: bool) -> None:
    async def main() -> None:
        bell = Bell(home.path, "p_1")
        bell.open()
        seen = Collector()
        tailer = Tailer(seen, after=-1, bell=bell if owns_bell else None)
        task = asyncio.create_task(tailer.run())
        await asyncio.sleep(0.1)
        waits = []
        for count in range(1, 6):
            await in_db(record_one, home)
            start = time.monotonic()
            if not owns_bell:
                tailer.wake()
            await seen.reaches(count)
            waits.append(time.monotonic() - start)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        bell.close()
        assert sorted(waits)[2] < 0.5, "the poll found it, not the bell"

    run(main())


def test_without_a_bell_a_tailer_looks_every_second(run: Any, home: Home) -> None:
    async def main() -> None:
        seen = Collector()
        task = asyncio.create_task(Tailer(seen, after=-1).run())
        await asyncio.sleep(0.2)
        await in_db(record_one)
        await seen.reaches(1, within_s=6)
        task.cancel()

    run(main())


def test_an_error_of_the_reader_ends_the_tailer(run: Any, home: Home) -> None:
    async def broken(_entries: Sequence[Entry]) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        await in_db(record_one)
        with pytest.raises(ZeroDivisionError):
            await Tailer(broken, after=-1).run()

    run(main())
