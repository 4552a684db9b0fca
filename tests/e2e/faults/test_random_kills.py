"""kill -9 at random moments under load: what was acknowledged is there, and nothing happened twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import is_postgres
from tests.e2e.faults.bench import Bench, DeadError, Process, tell

pytestmark = pytest.mark.skipif(is_postgres(), reason="the lab has a database of its own, on SQLite")

AGENTS = 4
SEED = 20_261_201


class Ledger:
    """What agents asked for, and what they were told: by note, the tool and the answer that came."""

    def __init__(self) -> None:
        self.asked: dict[str, str] = {}
        self.acknowledged: set[str] = set()
        self.kills = 0


@pytest.mark.parametrize("kills", [pytest.param(6, id="some"), pytest.param(200, id="full", marks=pytest.mark.slow)])
def test_random_kills_under_load_lose_nothing_and_double_nothing(tmp_path: Path, kills: int) -> None:
    ledger, dice = Ledger(), random.Random(SEED)

    async def main() -> None:
        async with Bench(tmp_path) as bench, bench.process(role="approver", token_of="ann") as ann:
            over = asyncio.Event()
            working = [
                asyncio.create_task(_live_and_die(bench, ledger, dice, number, kills, over)) for number in range(AGENTS)
            ]
            deciding = asyncio.create_task(_approve_everything(ann, over))
            await asyncio.gather(*working)
            over.set()
            await deciding
            async with bench.process():
                await bench.until(lambda: not _open(bench), "calls that nobody settled")
                _check(bench, ledger)
                await bench.chain_is_whole()
            await bench.no_orphan_is_left(living=1)
        states = Counter(row[0] for row in bench.rows("SELECT state FROM approvals_call"))
        figures = {"kills": ledger.kills, "asked": len(ledger.asked), "acknowledged": len(ledger.acknowledged)}
        tell("random kills", {**figures, "lost": 0, "doubled": 0, **{f"calls {key}": n for key, n in states.items()}})

    asyncio.run(main())


async def _live_and_die(
    bench: Bench, ledger: Ledger, dice: random.Random, number: int, kills: int, over: asyncio.Event
) -> None:
    """An agent whose process is killed again and again while it works."""
    life = 0
    while ledger.kills < kills:
        life += 1
        async with bench.process() as process:
            work = asyncio.create_task(_work(process, ledger, f"{number}-{life}"))
            await asyncio.sleep(dice.uniform(0.05, 2.5))
            if ledger.kills >= kills:
                work.cancel()
                return
            process.kill()
            ledger.kills += 1
            await asyncio.wait([work], timeout=30)


async def _work(process: Process, ledger: Ledger, life: str) -> None:
    for turn in range(10_000):
        note = f"<{life}-{turn}>"
        try:
            if turn % 3 == 2:
                ledger.asked[note] = "issue_refund"
                await process.call("issue_refund", customer_id="C-1", amount=1, reason=note)
                continue
            ledger.asked[note] = "add_comment"
            answer = await process.call("add_comment", ticket_id="T-1001", body=note)
        except DeadError:
            return
        if "error" not in answer:
            ledger.acknowledged.add(note)


async def _approve_everything(ann: Process, over: asyncio.Event) -> None:
    while not over.is_set():
        pending = (await ann.call("list_pending", limit=100))["data"]["pending"]
        for request in pending:
            await ann.call("approve", approvalId=request["approvalId"], note="load")
        await asyncio.sleep(0.1)


def _open(bench: Bench) -> list[object]:
    """Approved calls and those being sent; what still waits for a person may wait."""
    sql = (
        "SELECT c.public_id FROM approvals_call c LEFT JOIN approvals_approval a ON a.call_id = c.id "
        "WHERE c.state = 'sending' OR (c.state = 'held' AND a.state = 'approved')"
    )
    return bench.rows(sql)


def _check(bench: Bench, ledger: Ledger) -> None:
    done = Counter(
        str(effect["arguments"].get("body") or effect["arguments"].get("reason")) for effect in bench.effects()
    )
    doubled = {note: count for note, count in done.items() if count > 1}
    lost = {note for note in ledger.acknowledged if not done[note]}
    assert not doubled, doubled
    assert not lost, lost
    assert set(done) <= set(ledger.asked), "the CRM did what nobody asked for"
    states = dict(bench.rows("SELECT arguments, state FROM approvals_call WHERE arguments != ''"))
    for arguments, state in states.items():
        note = next((note for note in ledger.asked if note in arguments), None)
        assert note is not None
        if state == "done":
            assert done[note] == 1, (note, "called done, and never was")
        if state in ("failed", "cancelled", "held"):
            assert done[note] == 0, (note, state, "was done all the same")
