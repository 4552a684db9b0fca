"""The pool: order, room, cancel orders, waiting, stopping; and that no cancelled caller leaves a worker half begun."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.db import transaction

from audit.dbthread import in_db
from audit.services import record_many
from core.errors import MeahError
from tests.conftest import Home
from tests.rows import make_call
from workers import pool as pool_module
from workers import services
from workers.models import Worker, WorkerSettings, WorkerState
from workers.pool import Pool
from workers.preparation import prepare
from workers.routing import Config
from workers.schemas import TaskIn

pytestmark = pytest.mark.usefixtures("home")

OWNER = "p_mine"
PATIENCE_S = 30.0


def enqueue(task: str, owner: str = OWNER) -> str:
    with transaction.atomic():
        worker, entry = services.enqueue(
            prepare(TaskIn(task=task), Config()), call=make_call(), owner=owner, verdict={"effect": "allow"}
        )
        record_many([entry])
    return worker.public_id


def order_to_cancel(public_id: str) -> None:
    services.cancel_many([public_id], principal="agent:test", reason="by the test")


def limit(max_concurrent: int) -> None:
    WorkerSettings.objects.update_or_create(pk=1, defaults={"max_concurrent": max_concurrent})


def states() -> list[str]:
    return list(Worker.objects.order_by("pk").values_list("state", flat=True))


def in_pool(run: Any, test: Callable[[Pool], Awaitable[None]]) -> None:
    async def main() -> None:
        pool = Pool(OWNER)
        try:
            await test(pool)
        finally:
            await pool.stop("the test is over")

    run(main())


async def until(look: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await in_db(look):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def test_as_many_run_as_there_is_room_for_the_oldest_first(run: Any) -> None:
    async def test(pool: Pool) -> None:
        await in_db(limit, 2)
        ids = [await in_db(enqueue, f"[mock wait=300] {number}") for number in range(5)]
        await in_db(enqueue, "not ours", "p_other")
        await pool.look()
        assert await in_db(states) == ["running"] * 2 + ["queued"] * 4
        assert pool.busy == 2
        await pool.wait(ids, PATIENCE_S)
        assert await in_db(states) == ["succeeded"] * 5 + ["queued"]
        started = await in_db(lambda: list(Worker.objects.filter(owner=OWNER).order_by("started_at", "pk")))
        assert [worker.public_id for worker in started] == ids

    in_pool(run, test)


def test_more_room_is_taken_at_the_next_look(run: Any) -> None:
    async def test(pool: Pool) -> None:
        await in_db(limit, 1)
        for _ in range(3):
            await in_db(enqueue, "[mock wait=60000]")
        await pool.look()
        assert (await in_db(states)).count("running") == 1
        await in_db(limit, 3)
        await pool.look()
        assert (await in_db(states)).count("running") == 3

    in_pool(run, test)


def test_an_order_in_the_row_stops_a_running_worker_and_frees_its_place(run: Any) -> None:
    async def test(pool: Pool) -> None:
        await in_db(limit, 1)
        first, second = await in_db(enqueue, "[mock wait=60000]"), await in_db(enqueue, "quick")
        await pool.look()
        await in_db(order_to_cancel, first)
        await pool.wait([first, second], PATIENCE_S)
        assert await in_db(states) == ["cancelled", "succeeded"]
        worker = await in_db(services.get, first)
        assert worker.error["code"] == "E_CANCELLED" and "by the test" in worker.error["message"]

    in_pool(run, test)


def test_a_worker_that_is_cancelled_while_it_waits_never_starts(run: Any) -> None:
    async def test(pool: Pool) -> None:
        await in_db(limit, 1)
        await in_db(enqueue, "[mock wait=60000]")
        second = await in_db(enqueue, "never")
        await pool.look()
        await in_db(order_to_cancel, second)
        await pool.wait([second], PATIENCE_S)
        assert (await in_db(services.get, second)).started_at is None
        assert await in_db(states) == ["running", "cancelled"]

    in_pool(run, test)


def test_a_worker_that_others_took_for_dead_stops_to_cost_money(run: Any) -> None:
    async def test(pool: Pool) -> None:
        await in_db(enqueue, "[mock wait=60000]")
        await pool.look()
        await in_db(lambda: Worker.objects.update(state=WorkerState.FAILED))
        await pool.look()
        deadline = time.monotonic() + PATIENCE_S
        while pool.busy:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        assert await in_db(states) == ["failed"]

    in_pool(run, test)


def test_a_wait_ends_when_its_time_is_over_and_at_once_for_what_has_ended(run: Any) -> None:
    async def test(pool: Pool) -> None:
        slow, quick = await in_db(enqueue, "[mock wait=60000]"), await in_db(enqueue, "quick")
        begun = time.monotonic()
        await pool.wait([slow, quick], 0.5)
        assert 0.4 < time.monotonic() - begun < 10
        assert await in_db(states) == ["running", "succeeded"]
        begun = time.monotonic()
        await pool.wait([quick], PATIENCE_S)
        await pool.wait([], PATIENCE_S)
        assert time.monotonic() - begun < 10

    in_pool(run, test)


def test_a_wait_hears_of_a_worker_that_another_process_ended(run: Any) -> None:
    async def test(pool: Pool) -> None:
        foreign = await in_db(enqueue, "elsewhere", "p_other")
        waiting = asyncio.create_task(pool.wait([foreign], PATIENCE_S))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await in_db(order_to_cancel, foreign)
        await pool.look()
        await asyncio.wait_for(waiting, 5)

    in_pool(run, test)


def test_a_caller_that_is_cancelled_while_it_looks_leaves_nothing_half_begun(run: Any) -> None:
    async def test(pool: Pool) -> None:
        for _ in range(10):
            public_id = await in_db(enqueue, "quick")
            caller = asyncio.create_task(pool.look())
            await asyncio.sleep(0)
            caller.cancel()
            await asyncio.wait([caller])
            assert caller.cancelled()
            await until(lambda public_id=public_id: not services.get(public_id).is_active)
        assert set(await in_db(states)) == {"succeeded"}

    in_pool(run, test)


def test_a_database_that_stumbles_does_not_reach_who_looks(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(pool: Pool) -> None:
        public_id = await in_db(enqueue, "quick")
        with monkeypatch.context() as broken:
            broken.setattr(services, "start_next", _raise)
            await pool.look()
        assert await in_db(states) == ["queued"]
        await pool.wait([public_id], PATIENCE_S)
        assert await in_db(states) == ["succeeded"]

    in_pool(run, test)


def _raise(*_: object, **__: object) -> None:
    raise MeahError("E_AUDIT")


def test_stopping_cancels_all_of_this_process_and_nothing_else(run: Any) -> None:
    async def test(pool: Pool) -> None:
        await in_db(limit, 1)
        for owner in (OWNER, OWNER, "p_other"):
            await in_db(enqueue, "[mock wait=60000]", owner)
        await pool.look()
        await pool.stop("the client went away")
        assert await in_db(states) == ["cancelled", "cancelled", "queued"]
        for worker in await in_db(lambda: list(Worker.objects.filter(owner=OWNER))):
            assert "the client went away" in worker.error["message"]
        assert pool.busy == 0
        with pytest.raises(MeahError) as caught:
            pool.check_open()
        assert (caught.value.code, caught.value.retryable) == ("E_UNAVAILABLE", True)
        await in_db(enqueue, "late")
        await pool.look()
        assert (await in_db(states))[-1] == "queued"

    in_pool(run, test)


def test_a_stop_right_behind_a_start_loses_no_worker(run: Any) -> None:
    async def test(pool: Pool) -> None:
        for _ in range(4):
            await in_db(enqueue, "[mock wait=60000]")
        looking = asyncio.create_task(pool.look())
        await asyncio.sleep(0)
        await pool.stop("at once")
        await looking
        assert set(await in_db(states)) == {"cancelled"}

    in_pool(run, test)


def test_idle_is_when_nothing_is_queued_or_running(run: Any) -> None:
    async def test(pool: Pool) -> None:
        await in_db(limit, 1)
        for _ in range(3):
            await in_db(enqueue, "[mock wait=100]")
        await asyncio.wait_for(pool.idle(), PATIENCE_S)
        assert await in_db(states) == ["succeeded"] * 3 and pool.busy == 0

    in_pool(run, test)


def test_a_sweep_settles_what_is_called_running_and_is_not(run: Any) -> None:
    async def test(pool: Pool) -> None:
        await in_db(enqueue, "[mock wait=60000]")
        await pool.look()
        lost = await in_db(enqueue, "lost")
        await in_db(lambda: Worker.objects.filter(public_id=lost).update(state=WorkerState.RUNNING))
        await pool.sweep()
        assert await in_db(states) == ["running", "failed"]

    in_pool(run, test)


def test_a_configuration_that_broke_does_not_stop_the_queue(
    home: Home, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Config:
        raise MeahError("E_CONFIG", "MEAH_MAX_CONCURRENT is no number.")

    async def test(pool: Pool) -> None:
        public_id = await in_db(enqueue, "quick")
        monkeypatch.setattr(pool_module, "effective", broken)
        monkeypatch.setattr("workers.run.effective", broken)
        await pool.wait([public_id], PATIENCE_S)
        worker = await in_db(services.get, public_id)
        assert worker.state == "failed" and worker.error["code"] == "E_CONFIG"

    in_pool(run, test)
