"""kill -9 of the executing process at each point of a call: at most one effect, nothing lost, nothing invented."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import is_postgres
from tests.e2e.faults.bench import Bench, DeadError, Process
from tests.e2e.faults.conftest import Tell
from tests.e2e.faults.crashing import POINTS

pytestmark = pytest.mark.skipif(is_postgres(), reason="the lab has databases of its own")

FEW_ON_POSTGRESQL = pytest.param("postgresql", 2, id="postgresql", marks=[pytest.mark.slow, pytest.mark.postgres])
FULL = pytest.param("sqlite", 20, id="full", marks=pytest.mark.slow)
ONCE_OR_FULL = [pytest.param("sqlite", 1, id="once"), FULL]
WRITES = [*ONCE_OR_FULL, FEW_ON_POSTGRESQL]

# What is known after the kill, and how many effects there may be then.
APPROVED_WRITE: dict[str, tuple[str, set[int]]] = {
    "before_lease": ("done", {1}),
    "after_lease": ("done", {1}),
    "after_marker": ("unknown", {0}),
    "in_sending": ("unknown", {0, 1}),
    "after_sending": ("unknown", {1}),
    "after_answer": ("unknown", {1}),
    "after_result": ("done", {1}),
}
assert tuple(APPROVED_WRITE) == POINTS
# An allowed call has no lease: it is marked as sent in the transaction that decides.
ALLOWED_WRITE = {point: APPROVED_WRITE[point] for point in POINTS[2:]}
APPROVED_READ = {
    "before_lease": "done",
    "after_lease": "done",
    "after_marker": "failed",
    "in_sending": "failed",
    "after_answer": "failed",
    "after_result": "done",
}
# An allowed read is written down with its outcome only.
ALLOWED_READ = {"in_sending": "", "after_answer": "", "after_result": "done"}

HELD_READ = {"name": "held-reads", "effect": "require_approval", "server": "crm", "tool": "get_customer"}


class Seen:
    """What became of each killed call, and the most effects that one of them had."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.most = 0

    def note(self, state: str, effects: int = 0) -> None:
        self.states[state] += 1
        self.most = max(self.most, effects)

    @property
    def figures(self) -> dict[str, object]:
        return {"kills": self.states.total(), "most effects of one call": self.most, **self.states}


@pytest.mark.parametrize(("database_url", "rounds"), WRITES, indirect=["database_url"])
def test_a_kill_while_an_approved_write_runs(tmp_path: Path, database_url: str, rounds: int, tell: Tell) -> None:
    """The survivor runs what was not sent, and sends nothing again that may have been."""
    seen = Seen()

    async def main() -> None:
        async with Bench(tmp_path, database_url) as bench, bench.process() as survivor, approver(bench) as ann:
            for point, (state, effects) in APPROVED_WRITE.items():
                for number in range(rounds):
                    note = f"{point}-{number}"
                    refund = {"customer_id": "C-1", "amount": 1, "reason": note}
                    approval_id = await _approved_in_a_doomed_process(bench, ann, point, "issue_refund", refund)
                    found = await ended(survivor, approval_id)
                    assert found["status"] == state, (point, found)
                    assert bench.count(note) in effects, point
                    again = await survivor.call("issue_refund", **refund)
                    assert _is_replay(again), again
                    seen.note(state, bench.count(note))
            await bench.no_orphan_is_left()
            for point, (_, effects) in APPROVED_WRITE.items():
                for number in range(rounds):
                    assert bench.count(f"{point}-{number}") in effects, f"{point}: sent again"
            await bench.chain_is_whole()

    asyncio.run(main())
    tell(f"approved writes on {_kind(database_url)}", seen.figures)


@pytest.mark.parametrize(("database_url", "rounds"), WRITES, indirect=["database_url"])
def test_a_kill_while_an_allowed_write_runs(tmp_path: Path, database_url: str, rounds: int, tell: Tell) -> None:
    """Its retry, by its step, gets what is known: never a second send."""
    seen = Seen()

    async def main() -> None:
        async with Bench(tmp_path, database_url) as bench, bench.process() as survivor:
            for point, (state, effects) in ALLOWED_WRITE.items():
                for number in range(rounds):
                    note = f"{point}-{number}"
                    comment = {"step": note, "ticket_id": "T-1001", "body": note}
                    await _die(bench, point, "add_comment", comment)
                    await bench.until(lambda note=note: bench.call_state(note) != "sending", f"{point}: never settled")
                    assert bench.call_state(note) == state
                    again = await survivor.call("add_comment", **comment)
                    assert ("error" in again) == (state == "unknown"), again
                    assert bench.count(note) in effects, f"{point}: sent again"
                    seen.note(state, bench.count(note))
            await bench.no_orphan_is_left()
            await bench.chain_is_whole()

    asyncio.run(main())
    tell(f"allowed writes on {_kind(database_url)}", seen.figures)


@pytest.mark.parametrize(("database_url", "rounds"), ONCE_OR_FULL, indirect=["database_url"])
def test_a_kill_while_an_approved_read_runs(tmp_path: Path, database_url: str, rounds: int, tell: Tell) -> None:
    """A read that was being sent has failed, and may simply be asked for again."""
    seen = Seen()

    async def main() -> None:
        async with Bench(tmp_path, database_url) as bench:
            await bench.judge_by(HELD_READ)
            async with bench.process() as survivor, approver(bench) as ann:
                for point, state in APPROVED_READ.items():
                    for _ in range(rounds):
                        which = {"customer_id": "C-1"}
                        approval_id = await _approved_in_a_doomed_process(bench, ann, point, "get_customer", which)
                        found = await ended(survivor, approval_id)
                        assert found["status"] == state, (point, found)
                        assert state == "done" or found["error"]["retryable"] is True
                        seen.note(state)
                await bench.no_orphan_is_left()
                await bench.chain_is_whole()
                assert bench.effects() == []

    asyncio.run(main())
    tell("approved reads", seen.figures)


@pytest.mark.parametrize(("database_url", "rounds"), ONCE_OR_FULL, indirect=["database_url"])
def test_a_kill_while_an_allowed_read_runs(tmp_path: Path, database_url: str, rounds: int, tell: Tell) -> None:
    """It leaves the row of its outcome or none, and whoever asks again is answered."""
    seen = Seen()

    async def main() -> None:
        async with Bench(tmp_path, database_url) as bench, bench.process() as survivor:
            for point, state in ALLOWED_READ.items():
                for _ in range(rounds):
                    before = len(_reads(bench))
                    await _die(bench, point, "get_ticket", {"ticket_id": "T-1001"})
                    assert [row[0] for row in _reads(bench)[before:]] == ([state] if state else [])
                    again = await survivor.call("get_ticket", ticket_id="T-1001")
                    assert again["ticket_id"] == "T-1001"
                    seen.note(state or "no row")
            await bench.no_orphan_is_left()
            await bench.chain_is_whole()

    asyncio.run(main())
    tell("allowed reads", seen.figures)


@pytest.mark.parametrize(("database_url", "rounds"), ONCE_OR_FULL, indirect=["database_url"])
def test_what_a_read_back_can_see_is_known_after_a_kill(
    tmp_path: Path, database_url: str, rounds: int, tell: Tell
) -> None:
    """The survivor looks by itself: what is there is done; what is not there stays unknown, and is not sent again."""
    seen = Seen()
    expected = {"after_marker": ("unknown", 0), "after_sending": ("done", 1), "after_answer": ("done", 1)}

    async def main() -> None:
        async with Bench(tmp_path, database_url) as bench, bench.process() as survivor, approver(bench) as ann:
            for point, (state, effects) in expected.items():
                for number in range(rounds):
                    note = f"{point}-{number}"
                    update = {"ticket_id": "T-1001", "assignee": note}
                    await _approved_in_a_doomed_process(bench, ann, point, "update_ticket", update)
                    await bench.until(lambda note=note: _is_read_back(bench, note), f"{note}: never read back")
                    assert bench.call_state(note) == state
                    assert bench.count(note) == effects
                    seen.note(state, effects)
            assert (await survivor.call("list_pending"))["data"]["pending"] == []
            await bench.no_orphan_is_left()
            await bench.chain_is_whole()

    asyncio.run(main())
    tell("writes that are read back", seen.figures)


def approver(bench: Bench) -> Any:
    return bench.process(role="approver", token_of="ann")


async def ended(process: Process, approval_id: str) -> dict[str, Any]:
    """The request once it has ended."""
    while True:
        answer = await process.call("approval_status", approvalId=approval_id, waitMs=20_000)
        found = answer["data"]
        if found["status"] not in ("pending_approval", "approved", "executing"):
            return dict(found)


async def _approved_in_a_doomed_process(
    bench: Bench, ann: Process, point: str, tool: str, arguments: dict[str, Any]
) -> str:
    async with bench.process(crash_at=point, crash_on=tool) as doomed:
        before = len(bench.effects())
        held = await doomed.call(tool, **arguments)
        approval_id = str(held["data"]["approvalId"])
        assert len(bench.effects()) == before
        answer = await ann.call("approve", approvalId=approval_id, note="fine")
        assert answer["ok"], answer
        await doomed.gone()
    return approval_id


async def _die(bench: Bench, point: str, tool: str, arguments: dict[str, Any]) -> None:
    async with bench.process(crash_at=point, crash_on=tool) as doomed:
        with pytest.raises(DeadError):
            await doomed.call(tool, **arguments)
        await doomed.gone()


def _is_replay(answer: dict[str, Any]) -> bool:
    """The stored result as it was, or the stored error: both say what is known."""
    if "error" in answer:
        return answer["error"]["details"]["replay"] is True
    return "balance" in answer


def _is_read_back(bench: Bench, note: str) -> bool:
    sql = "SELECT 1 FROM approvals_call WHERE arguments LIKE ? AND state != 'sending' AND verification != 'none'"
    return bool(bench.rows(sql, f"%{note}%"))


def _reads(bench: Bench) -> list[Any]:
    return bench.rows("SELECT state FROM approvals_call WHERE tool = 'get_ticket' ORDER BY id")


def _kind(database_url: str) -> str:
    return database_url.partition(":")[0]
