"""Fifty approvals of one request at the same moment, from several processes: one winner, one send."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.conftest import is_postgres
from tests.e2e.faults.bench import Bench, tell

pytestmark = pytest.mark.skipif(is_postgres(), reason="the lab has a database of its own, on SQLite")

PROCESSES, EACH = 5, 10


def test_fifty_approvals_of_one_request_have_one_winner_and_one_send(tmp_path: Path) -> None:
    async def main() -> None:
        async with Bench(tmp_path) as bench, bench.process() as agent, AsyncExitStack() as stack:
            approvers = [
                await stack.enter_async_context(bench.process(role="approver", token_of=name))
                for name in ("ann", "ben", "ann", "ben", "ann")[:PROCESSES]
            ]
            held = await agent.call("issue_refund", customer_id="C-1", amount=5, reason="race")
            approval_id = held["data"]["approvalId"]
            answers = await asyncio.gather(
                *(
                    approver.call("approve", approvalId=approval_id, note=f"{number}")
                    for number in range(EACH)
                    for approver in approvers
                )
            )
            winners = [answer for answer in answers if answer["ok"]]
            losers = [answer["error"] for answer in answers if not answer["ok"]]
            assert len(winners) == 1 and len(losers) == PROCESSES * EACH - 1
            first = winners[0]["data"]["decidedBy"][0]
            assert all(first.removeprefix("user:") in error["message"] for error in losers), losers[0]
            found = await agent.call("approval_status", approvalId=approval_id, waitMs=20_000)
            while found["data"]["status"] != "done":
                found = await agent.call("approval_status", approvalId=approval_id, waitMs=20_000)
            await asyncio.sleep(1.5)
            assert bench.count("race") == 1
            decided = bench.rows("SELECT payload FROM audit_entry WHERE kind = 'approval.decided'")
            assert len(decided) == 1 and first in json.dumps(json.loads(decided[0][0]))
            assert len(bench.rows("SELECT 1 FROM approvals_decision")) == 1
            await bench.chain_is_whole()
        tell("parallel approvals", {"approvals": len(answers), "winners": len(winners), "sends": 1})

    asyncio.run(main())
