"""kill -9 of the executing process at each point of a call: at most one effect, nothing lost, nothing invented."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import is_postgres
from tests.e2e.faults.bench import Bench, DeadError, Process, tell
from tests.e2e.faults.crashing import POINTS

pytestmark = pytest.mark.skipif(is_postgres(), reason="the lab has a database of its own, on SQLite")

ROUNDS = [pytest.param(1, id="once"), pytest.param(20, id="full", marks=pytest.mark.slow)]
# What is known after the kill, and how many effects there are then.
APPROVED = {
    "before_lease": ("done", 1),
    "after_lease": ("done", 1),
    "after_marker": ("unknown", 0),
    "after_sending": ("unknown", 1),
    "after_answer": ("unknown", 1),
    "after_result": ("done", 1),
}
ALLOWED = {point: APPROVED[point] for point in POINTS[2:]}


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_kill_while_an_approved_call_runs(tmp_path: Path, rounds: int) -> None:
    """The survivor runs what was not sent, and sends nothing again that may have been."""

    async def main() -> None:
        seen: Counter[str] = Counter()
        async with Bench(tmp_path) as bench, bench.process() as survivor, approver(bench) as ann:
            for point, (state, effects) in APPROVED.items():
                for number in range(rounds):
                    note = f"{point}-{number}"
                    approval_id = await _approved_in_a_doomed_process(bench, ann, point, note)
                    found = await _ended(survivor, approval_id)
                    assert found["status"] == state, (point, found)
                    assert bench.count(note) == effects, point
                    again = await survivor.call("issue_refund", customer_id="C-1", amount=1, reason=note)
                    assert _replayed(again), again
                    assert bench.count(note) == effects, f"{point}: sent again"
                    seen[state] += 1
            # The approver's process may have run some of them too.
            await bench.no_orphan_is_left(living=2)
            await bench.chain_is_whole()
        tell("approved calls", {"kills": rounds * len(APPROVED), "effects above one": 0, **seen})

    asyncio.run(main())


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_kill_while_an_allowed_call_runs(tmp_path: Path, rounds: int) -> None:
    """Its retry, by its step, gets what is known: never a second send."""

    async def main() -> None:
        seen: Counter[str] = Counter()
        async with Bench(tmp_path) as bench, bench.process() as survivor:
            for point, (state, effects) in ALLOWED.items():
                for number in range(rounds):
                    note = f"{point}-{number}"
                    async with bench.process(crash_at=point) as doomed:
                        with pytest.raises(DeadError):
                            await doomed.call("add_comment", step=note, ticket_id="T-1001", body=note)
                    await bench.until(lambda note=note: bench.call_state(note) != "sending", f"{point}: never settled")
                    assert bench.call_state(note) == state
                    again = await survivor.call("add_comment", step=note, ticket_id="T-1001", body=note)
                    assert ("error" in again) == (state == "unknown"), again
                    assert bench.count(note) == effects, f"{point}: sent again"
                    seen[state] += 1
            await bench.no_orphan_is_left(living=1)
            await bench.chain_is_whole()
        tell("allowed calls", {"kills": rounds * len(ALLOWED), "effects above one": 0, **seen})

    asyncio.run(main())


def approver(bench: Bench):  # type: ignore[no-untyped-def]
    return bench.process(role="approver", token_of="ann")


async def _approved_in_a_doomed_process(bench: Bench, ann: Process, point: str, note: str) -> str:
    async with bench.process(crash_at=point) as doomed:
        held = await doomed.call("issue_refund", customer_id="C-1", amount=1, reason=note)
        approval_id = str(held["data"]["approvalId"])
        assert bench.count(note) == 0
        answer = await ann.call("approve", approvalId=approval_id, note="fine")
        assert answer["ok"], answer
        await doomed.gone()
    return approval_id


async def _ended(survivor: Process, approval_id: str) -> dict[str, object]:
    while True:
        answer = await survivor.call("approval_status", approvalId=approval_id, waitMs=20_000)
        found = answer["data"]
        if found["status"] not in ("pending_approval", "approved", "executing"):
            return dict(found)


def _replayed(answer: dict[str, object]) -> bool:
    """The stored result as it was, or the stored error: both say what is known."""
    if "error" in answer:
        return answer["error"]["details"]["replay"] is True  # type: ignore[index]
    return "balance" in answer or "refund" in str(answer)
