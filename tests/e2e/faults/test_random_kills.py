"""kill -9 at random moments under load: what was acknowledged is there, and nothing happened twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import is_postgres
from tests.e2e.faults.bench import Bench, DeadError, Process
from tests.e2e.faults.conftest import Tell

pytestmark = pytest.mark.skipif(is_postgres(), reason="the lab has databases of its own")

AGENTS = 4
SEED = 20_261_201
Work = Callable[[Process, str], Awaitable[None]]


class Ledger:
    """What was asked for, by note, and what agents and the approver were told before their process died."""

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.done: set[str] = set()
        self.held: dict[str, str] = {}
        self.approved: set[str] = set()
        self.kills = 0


@pytest.mark.parametrize("kills", [pytest.param(10, id="some"), pytest.param(200, id="full", marks=pytest.mark.slow)])
def test_random_kills_under_load_lose_nothing_and_double_nothing(tmp_path: Path, kills: int, tell: Tell) -> None:
    ledger, dice = Ledger(), random.Random(SEED)

    async def main() -> dict[str, object]:
        async with Bench(tmp_path) as bench:
            agents = [
                _live_and_die(bench, ledger, dice, kills, _asking(ledger), name=f"{number}") for number in range(AGENTS)
            ]
            ann = _live_and_die(bench, ledger, dice, kills, _approving(ledger), role="approver", token_of="ann")
            await asyncio.gather(*agents, ann)
            async with bench.process():
                await bench.until(lambda: not _open(bench), "calls that nobody settled")
                await bench.no_orphan_is_left()
                figures = _checked(bench, ledger)
                await bench.chain_is_whole()
            await bench.until(lambda: not bench.orphans(), "an orphan is left at the end", 5)
            return figures

    tell("random kills", asyncio.run(main()))


async def _live_and_die(
    bench: Bench, ledger: Ledger, dice: random.Random, kills: int, work: Work, *, name: str = "", **options: str
) -> None:
    """A client whose process is killed again and again while it works."""
    life = 0
    while ledger.kills < kills:
        life += 1
        async with bench.process(**options) as process:
            working = asyncio.create_task(_until_dead(work, process, f"{name}-{life}"))
            await asyncio.sleep(dice.uniform(0.05, 2.5))
            if ledger.kills < kills:
                ledger.kills += 1
                process.kill()
            else:
                working.cancel()
            await asyncio.wait([working], timeout=30)
            assert working.done()
            if not working.cancelled():
                working.result()


async def _until_dead(work: Work, process: Process, life: str) -> None:
    try:
        await work(process, life)
    except DeadError:
        return


def _asking(ledger: Ledger) -> Work:
    """Two allowed comments, then a refund that needs a person, and so on."""

    async def work(process: Process, life: str) -> None:
        for turn in range(10_000):
            note = f"<{life}-{turn}>"
            ledger.asked.add(note)
            if turn % 3 == 2:
                answer = await process.call("issue_refund", customer_id="C-1", amount=1, reason=note)
                if answer.get("ok"):
                    ledger.held[note] = answer["data"]["approvalId"]
                else:
                    assert answer["error"]["code"] == "E_DENIED", answer  # too many open holds
                    await asyncio.sleep(0.1)
                continue
            answer = await process.call("add_comment", ticket_id="T-1001", body=note)
            if "error" not in answer:
                ledger.done.add(note)

    return work


def _approving(ledger: Ledger) -> Work:
    async def work(process: Process, life: str) -> None:
        while True:
            pending = (await process.call("list_pending", limit=100))["data"]["pending"]
            for request in pending:
                answer = await process.call("approve", approvalId=request["approvalId"], note="load")
                if answer["ok"]:
                    ledger.approved.add(request["approvalId"])
            await asyncio.sleep(0.05)

    return work


def _open(bench: Bench) -> list[Any]:
    """Approved calls and those being sent; what still waits for a person may wait."""
    sql = (
        "SELECT c.public_id FROM approvals_call c LEFT JOIN approvals_approval a ON a.call_id = c.id "
        "WHERE c.state = 'sending' OR (c.state = 'held' AND a.state = 'approved')"
    )
    return bench.rows(sql)


def _checked(bench: Bench, ledger: Ledger) -> dict[str, object]:
    effects = Counter(
        str(effect["arguments"].get("body") or effect["arguments"].get("reason")) for effect in bench.effects()
    )
    states = _states(bench, ledger)
    approvals = dict(bench.rows("SELECT public_id, state FROM approvals_approval"))
    doubled = sorted(note for note, count in effects.items() if count > 1)
    lost = [
        *(note for note in ledger.done if not effects[note] or states.get(note) != "done"),
        *(note for note, approval_id in ledger.held.items() if approval_id not in approvals or note not in states),
        *(approval_id for approval_id in ledger.approved if approvals.get(approval_id) != "approved"),
    ]
    assert not doubled, doubled
    assert not lost, lost
    assert set(effects) <= ledger.asked, "the CRM did what nobody asked for"
    for note, state in states.items():
        if state == "done":
            assert effects[note] == 1, (note, "called done, and never was")
        elif state != "unknown":
            assert effects[note] == 0, (note, state, "was done all the same")
    assert _ended_without_an_entry(bench) == []
    return {
        "kills": ledger.kills,
        "asked": len(ledger.asked),
        "told done": len(ledger.done),
        "told held": len(ledger.held),
        "told approved": len(ledger.approved),
        "lost": len(lost),
        "doubled": len(doubled),
        **{f"calls {state}": count for state, count in sorted(Counter(states.values()).items())},
    }


def _states(bench: Bench, ledger: Ledger) -> dict[str, str]:
    """By note; each note was asked for once, and has one row at most."""
    found: dict[str, str] = {}
    for arguments, state in bench.rows("SELECT arguments, state FROM approvals_call"):
        note = next(note for note in ledger.asked if note in arguments)
        assert note not in found, note
        found[note] = state
    return found


def _ended_without_an_entry(bench: Bench) -> list[Any]:
    sql = (
        "SELECT c.public_id, c.state FROM approvals_call c WHERE c.state IN ('done', 'failed', 'unknown', 'cancelled') "
        "AND NOT EXISTS (SELECT 1 FROM audit_entry e WHERE e.subject = c.public_id AND e.kind = 'call.' || c.state)"
    )
    return bench.rows(sql)
