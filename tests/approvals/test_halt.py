"""The one switch: what it stops, and what slips through in the very moment in which it is thrown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from approvals import executor, governor, services
from approvals.governor import submit
from approvals.models import Approval, Call, CallState, Halt, Rule
from approvals.outcomes import status_of
from approvals.targets import CallContext
from audit.dbthread import in_db
from audit.models import Entry
from audit.services import verify
from core.errors import MeahError
from tests.approvals.requests import held, registered_box
from tests.approvals.targets import CountingTarget
from tests.approvals.test_gate import request
from tests.conftest import Home

BACK = {"tool": "get", "arguments": {"id": "id"}, "expect": {"status": {"argument": "status"}}}


@pytest.fixture
def box(home: Home) -> Iterator[CountingTarget]:
    with registered_box() as target:
        yield target


async def halted() -> None:
    await in_db(lambda: services.halt(principal="user:boss", reason="enough"))


async def until_sent(count: int = 1) -> None:
    while await in_db(Call.objects.filter(state=CallState.SENDING).count) < count:
        await asyncio.sleep(0.01)


async def outcome_of(call: asyncio.Task[Any]) -> MeahError:
    with pytest.raises(MeahError) as caught:
        await asyncio.wait_for(call, 2)
    return caught.value


@pytest.mark.parametrize(("tool", "state"), [("put", "unknown"), ("get", "failed")])
def test_what_runs_is_cancelled_settled_and_answered(box: CountingTarget, run: Any, tool: str, state: str) -> None:
    Rule.objects.create(name="all", effect="allow", server="box")
    box.hang_s = 30.0

    async def main() -> MeahError:
        call = asyncio.create_task(submit(request(tool), CallContext(timeout_s=30)))
        while not box.began:
            await asyncio.sleep(0.01)
        await halted()
        began = time.monotonic()
        await executor.Executor("p_mine").look()
        error = await outcome_of(call)
        assert time.monotonic() - began < 2
        return error

    error = run(main())
    assert error.code == "E_CANCELLED" and "halted" in error.message
    assert Call.objects.get().state == state
    assert verify().whole


def test_what_was_decided_before_the_halt_and_begins_after_it_is_cancelled_too(box: CountingTarget, run: Any) -> None:
    """Between its verdict and its first step a call is in nobody's list: the next look finds it."""
    Rule.objects.create(name="all", effect="allow", server="box")
    box.hang_s = 30.0

    async def main() -> MeahError:
        decision = await in_db(governor.decide, request())
        await halted()
        looking = executor.Executor("p_mine")
        await looking.look()
        call = asyncio.create_task(governor.execute(decision, CallContext(timeout_s=30)))
        await asyncio.sleep(0.1)
        await looking.look()
        return await outcome_of(call)

    assert run(main()).code == "E_CANCELLED"
    assert Call.objects.get().state == CallState.UNKNOWN


def test_a_call_that_cleans_up_after_the_halt_is_not_disturbed_again(box: CountingTarget, run: Any) -> None:
    Rule.objects.create(name="all", effect="allow", server="box")
    box.hang_s = 30.0
    box.clean_up_s = 0.3

    async def main() -> None:
        call = asyncio.create_task(submit(request(), CallContext(timeout_s=30)))
        await until_sent()
        await halted()
        looking = executor.Executor("p_mine")
        for _ in range(10):
            await looking.look()
            await asyncio.sleep(0.01)
        await outcome_of(call)

    run(main())
    assert box.cleaned_up == 1


def test_a_read_back_that_is_cut_short_leaves_the_write_done(box: CountingTarget, run: Any) -> None:
    Rule.objects.create(name="all", effect="allow", server="box", tool="put", verification=BACK)
    box.read_hang_s = 30.0

    async def main() -> Any:
        call = asyncio.create_task(submit(request(status="closed")))
        while not box.reads:
            await asyncio.sleep(0.01)
        await halted()
        await executor.Executor("p_mine").look()
        return await asyncio.wait_for(call, 2)

    assert run(main()).status == "done"
    call = Call.objects.get()
    assert (call.state, call.verification) == (CallState.DONE, "unverified") and call.result


def test_a_caller_that_goes_away_during_the_read_back_leaves_the_write_done(box: CountingTarget, run: Any) -> None:
    Rule.objects.create(name="all", effect="allow", server="box", tool="put", verification=BACK)
    box.read_hang_s = 30.0

    async def main() -> None:
        call = asyncio.create_task(submit(request(status="closed")))
        while not box.reads:
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while await in_db(Call.objects.filter(state=CallState.SENDING).exists):
            await asyncio.sleep(0.01)

    run(main())
    assert (Call.objects.get().state, Call.objects.get().verification) == (CallState.DONE, "unverified")


def test_a_request_that_opens_in_the_moment_of_the_halt_becomes_void(box: CountingTarget, run: Any) -> None:
    approval = held()
    services.halt(principal="user:boss", reason="")
    # As a transaction leaves it that had looked at the switch before.
    Approval.objects.update(state="pending", outcome_note="")
    Call.objects.update(state=CallState.HELD, finished_at=None)
    run(executor.Executor("p_mine").look())
    assert status_of(services.get(approval.public_id)) == "void"


def test_what_a_sync_door_left_unsent_does_not_run_after_the_halt(box: CountingTarget, run: Any) -> None:
    Rule.objects.create(name="all", effect="allow", server="box")
    governor.decide_now(request())
    assert services.halt(principal="user:boss", reason="") == 1
    services.resume(principal="user:boss")
    run(executor.Executor("p_mine").look())
    assert Call.objects.get().state == CallState.CANCELLED and box.effects == []
    assert "call.cancelled" in Entry.objects.values_list("kind", flat=True)


def test_every_claim_reads_the_switch(box: CountingTarget, run: Any) -> None:
    Rule.objects.create(name="all", effect="allow", server="box")
    governor.decide_now(request())
    [call_id] = executor.claim("p_mine")
    Halt.objects.update_or_create(pk=1, defaults={"engaged": True, "changed_by": "user:boss"})
    assert executor.start(call_id, "p_mine") is None
    assert Call.objects.get().state == CallState.CANCELLED and box.effects == []
