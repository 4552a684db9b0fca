"""The tools' own part: how long they block, what they say meanwhile, what a call that is taken back takes along."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.db import OperationalError

from approvals.models import Call
from audit.dbthread import in_db
from core.errors import MeahError
from tests.rows import make_worker
from workers import tools as tools_module
from workers.models import Worker
from workers.pool import Pool
from workers.schemas import MAX_PAGE_CHARS
from workers.tools import WorkerTools, _fair_limit

pytestmark = pytest.mark.usefixtures("home")

PATIENCE_S = 30.0


class Caller:
    """A client; `purpose` is what it would say of a cancellation."""

    principal = "agent:test"
    owner = "p_mine"
    role = "agent"
    user_id = None
    run = ""
    step = ""

    def __init__(self, *, purpose: bool = True) -> None:
        self.purpose = purpose
        self.told: list[str] = []

    async def progress(self, message: str) -> None:
        self.told.append(message)

    def cancelled_on_purpose(self) -> bool:
        return self.purpose


def in_tools(run: Any, test: Callable[[WorkerTools], Awaitable[None]]) -> None:
    async def main() -> None:
        pool = Pool("p_mine")
        try:
            await test(WorkerTools(pool))
        finally:
            await pool.stop("the test is over")

    run(main())


def states() -> list[str]:
    return list(Worker.objects.order_by("pk").values_list("state", flat=True))


async def until_states(*wanted: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while await in_db(states) != list(wanted):
        assert time.monotonic() < deadline, await in_db(states)
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "expected_s"),
    [
        ({}, 50.0),
        ({"timeoutMs": 10_000}, 15.0),
        ({"timeoutMs": 600_000}, 50.0),
        ({"timeoutMs": 10_000, "waitMs": 120_000}, 120.0),
        ({"waitMs": 0}, 0.0),
        ({"waitMs": None}, 50.0),
    ],
)
def test_a_delegated_task_blocks_for_its_budget_and_a_little_more_but_not_for_ever(
    run: Any, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], expected_s: float
) -> None:
    waited: list[float] = []

    async def test(tools: WorkerTools) -> None:
        async def wait(public_ids: list[str], timeout_s: float) -> None:
            waited.append(timeout_s)

        monkeypatch.setattr(tools.pool, "wait", wait)
        result = await tools.delegate({"task": "[mock wait=60000]"} | arguments, Caller())
        assert result["state"] == "running" and result["workerId"] and "meah_get_agent" in result["next"]

    in_tools(run, test)
    assert waited == ([expected_s] if expected_s else [])


def test_a_started_agent_comes_back_at_once_as_a_whole_worker(run: Any) -> None:
    async def test(tools: WorkerTools) -> None:
        begun = time.monotonic()
        worker = await tools.run({"task": "[mock wait=60000]"}, Caller())
        assert time.monotonic() - begun < 10
        assert worker["state"] == "running" and worker["timeoutMs"] == 120_000 and worker["result"] is None

    in_tools(run, test)


def test_while_a_call_blocks_it_says_that_it_lives_and_nothing_after(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools_module, "PROGRESS_EVERY_S", 0.1)

    async def test(tools: WorkerTools) -> None:
        caller = Caller()
        result = await tools.delegate({"task": "[mock wait=1000]"}, caller)
        told = list(caller.told)
        assert len(told) >= 3
        assert all(result["workerId"] in message for message in told)
        assert any("1 running" in message for message in told)
        await asyncio.sleep(0.4)
        assert caller.told == told

    in_tools(run, test)


def test_a_client_that_hears_nothing_does_not_disturb_the_call(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(Caller):
        async def progress(self, message: str) -> None:
            raise ConnectionError

    monkeypatch.setattr(tools_module, "PROGRESS_EVERY_S", 0.05)

    async def test(tools: WorkerTools) -> None:
        assert (await tools.delegate({"task": "[mock wait=400]"}, Deaf()))["state"] == "succeeded"

    in_tools(run, test)


def test_a_beat_that_fails_is_not_the_last(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    states, reads = tools_module._states, []

    def stumbling(public_ids: list[str]) -> str:
        reads.append(1)
        if len(reads) == 1:
            raise OperationalError("database is locked")
        return states(public_ids)

    monkeypatch.setattr(tools_module, "PROGRESS_EVERY_S", 0.1)
    monkeypatch.setattr(tools_module, "_states", stumbling)

    async def test(tools: WorkerTools) -> None:
        caller = Caller()
        await tools.delegate({"task": "[mock wait=1000]"}, caller)
        assert caller.told and len(reads) > 1

    in_tools(run, test)


@pytest.mark.parametrize("purpose", [True, False])
def test_a_call_that_is_cancelled_takes_its_workers_along_only_on_purpose(run: Any, purpose: bool) -> None:
    async def test(tools: WorkerTools) -> None:
        tasks = [{"task": "[mock wait=2000]"}] * 2
        call = asyncio.create_task(tools.parallel({"workers": tasks}, Caller(purpose=purpose)))
        await until_states("running", "running")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until_states(*["cancelled" if purpose else "succeeded"] * 2)

    in_tools(run, test)


@pytest.mark.parametrize("tool", ["run", "delegate", "parallel"])
def test_a_call_that_is_taken_back_before_its_worker_is_queued_leaves_none_behind(run: Any, tool: str) -> None:
    async def test(tools: WorkerTools) -> None:
        task = {"task": "[mock wait=60000]"}
        handler = getattr(tools, tool)
        call = asyncio.create_task(handler({"workers": [task]} if tool == "parallel" else task, Caller()))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until_states("cancelled")

    in_tools(run, test)


def test_a_call_that_is_refused_while_it_is_taken_back_is_simply_over(run: Any) -> None:
    async def test(tools: WorkerTools) -> None:
        call = asyncio.create_task(tools.delegate({"task": "x", "provider": "nobody"}, Caller()))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.sleep(0.2)
        assert await in_db(states) == []

    in_tools(run, test)


def test_the_budget_of_all_ends_with_the_last_of_them(run: Any) -> None:
    async def test(tools: WorkerTools) -> None:
        begun = time.monotonic()
        arguments = {"workers": [{"task": "quick"}], "aggregateTimeoutMs": 600_000}
        assert (await tools.parallel(arguments, Caller()))["succeeded"] == 1
        assert time.monotonic() - begun < 10
        assert not [
            task for task in asyncio.all_tasks() if task.get_name() == "expire-workers" and not task.done()
        ] or (await _none_left())

    async def _none_left() -> bool:
        await asyncio.sleep(0.5)
        return not [task for task in asyncio.all_tasks() if task.get_name() == "expire-workers"]

    in_tools(run, test)


def test_a_process_that_closes_takes_no_more_starts_but_answers(run: Any) -> None:
    async def test(tools: WorkerTools) -> None:
        worker = await tools.delegate({"task": "quick"}, Caller())
        tools.pool.close("A newer version migrated the database.")
        for handler, arguments in ((tools.run, {"task": "x"}), (tools.parallel, {"workers": [{"task": "x"}]})):
            with pytest.raises(MeahError, match="newer version") as caught:
                await handler(arguments, Caller())
            assert caught.value.code == "E_UNAVAILABLE"
        assert (await tools.get({"workerId": worker["workerId"]}, Caller()))["state"] == "succeeded"
        assert len((await tools.list_agents({}, Caller()))["workers"]) == 1

    in_tools(run, test)


def test_a_cancel_with_a_clean_up_does_both_through_the_gate(run: Any, home: Any) -> None:
    async def test(tools: WorkerTools) -> None:
        worker = await tools.run({"task": "[mock wait=60000]", "permissionProfile": "read-only"}, Caller())
        path = home.path / "workspaces" / worker["workerId"]
        deadline = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        ended = await tools.cancel({"workerId": worker["workerId"], "cleanupWorkspace": True}, Caller())
        assert ended["state"] == "cancelled" and not path.exists()
        calls = await in_db(lambda: list(Call.objects.values_list("tool", "state")))
        assert ("meah_cleanup_workspace", "done") in calls

    in_tools(run, test)


def test_a_worker_that_does_not_end_in_time_is_told_to_stop_and_says_so(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools_module, "CANCELLED_WITHIN_S", 0.2)

    async def test(tools: WorkerTools) -> None:
        worker = await in_db(lambda: make_worker(state="running", owner="p_other"))
        told = await tools.cancel({"workerId": worker.public_id, "cleanupWorkspace": True}, Caller())
        assert told["state"] == "running" and "cleanupWorkspace was not done" in told["next"]

    in_tools(run, test)


@pytest.mark.parametrize(
    ("lengths", "limit"),
    [
        ([], MAX_PAGE_CHARS),
        ([5, 10], MAX_PAGE_CHARS),
        ([MAX_PAGE_CHARS + 1], MAX_PAGE_CHARS),
        ([50_000, 50_000], 20_000),
        ([10_000, 50_000, 50_000], 15_000),
        ([50_000] * 16, 2_500),
    ],
)
def test_results_share_one_page(lengths: list[int], limit: int) -> None:
    assert _fair_limit(lengths) == limit
    assert sum(min(length, limit) for length in lengths) <= MAX_PAGE_CHARS


def test_a_clean_up_that_is_taken_back_is_done_all_the_same_and_recorded_so(run: Any) -> None:
    async def test(tools: WorkerTools) -> None:
        worker = await tools.delegate({"task": "quick"}, Caller())
        call = asyncio.create_task(tools.clean_up({"workerId": worker["workerId"]}, Caller()))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        deadline = time.monotonic() + PATIENCE_S
        while await in_db(lambda: Call.objects.filter(tool="meah_cleanup_workspace", state="done").count()) != 1:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)

    in_tools(run, test)
