"""The database threads: one connection each, jobs in order, and a job that began is never lost."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

import pytest
from django.db import connection, transaction

from audit import services
from audit.dbthread import in_background, in_db, shutdown
from tests.conftest import Home

pytestmark = pytest.mark.usefixtures("home")


def record_one(kind: str = "call.done", *, first: Any = None) -> int:
    if first is not None:
        first()
    with transaction.atomic():
        return services.record(kind, principal="system").seq


def test_a_service_call_runs_on_the_one_database_thread(run: Any) -> None:
    async def main() -> list[tuple[str, int]]:
        def where() -> tuple[str, int]:
            return threading.current_thread().name, id(connection.connection)

        record_first = await in_db(record_one)
        assert record_first == 0
        return [await in_db(where), await in_db(where)]

    one, other = run(main())
    assert one == other
    assert one[0] != threading.main_thread().name


def test_what_takes_long_has_a_thread_and_a_connection_of_its_own(run: Any) -> None:
    async def main() -> None:
        held, go_on = threading.Event(), threading.Event()

        def long_job() -> int:
            head = services.head()
            held.set()
            assert go_on.wait(20)
            return head.size

        waiting = asyncio.create_task(in_background(long_job))
        await asyncio.to_thread(held.wait, 20)
        assert await in_db(record_one) == 0
        go_on.set()
        assert await waiting == 0
        assert (await in_background(services.verify)).whole

    run(main())


def test_jobs_run_in_the_order_they_came_in(run: Any) -> None:
    async def main() -> list[int]:
        return list(await asyncio.gather(*[in_db(record_one) for _ in range(20)]))

    assert run(main()) == list(range(20))


def test_an_error_reaches_the_caller(run: Any) -> None:
    async def main() -> None:
        with pytest.raises(transaction.TransactionManagementError):
            await in_db(services.record, "call.done", principal="system")

    run(main())


@pytest.mark.parametrize("queued", [False, True], ids=["running", "queued"])
def test_a_cancelled_wait_does_not_lose_the_job(run: Any, queued: bool) -> None:
    async def main() -> None:
        began, go_on = threading.Event(), threading.Event()

        def block() -> None:
            began.set()
            assert go_on.wait(20)

        blocker = asyncio.create_task(in_db(block)) if queued else None
        job = asyncio.create_task(in_db(record_one, first=None if queued else block))
        await asyncio.to_thread(began.wait, 20)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        go_on.set()
        if blocker:
            await blocker
        assert (await in_db(services.head)).size == 1

    run(main())


def test_shutdown_lets_the_running_job_end_and_a_later_call_starts_anew(run: Any) -> None:
    async def main() -> None:
        job = asyncio.create_task(in_db(record_one, first=lambda: time.sleep(0.2)))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(shutdown)
        assert await job == 0
        assert await in_db(record_one) == 1

    run(main())
    shutdown()
    shutdown()


def test_a_forked_child_gets_threads_of_its_own(run: Any, home: Home) -> None:
    assert run(in_db(record_one)) == 0
    child = os.fork()
    if child == 0:
        # No assertion may leave the child: pytest would go on twice.
        status = 1
        try:
            status = 0 if asyncio.run(asyncio.wait_for(in_db(lambda: threading.active_count()), 20)) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run(in_db(record_one)) == 1
