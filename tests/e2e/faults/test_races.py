"""Fifty approvals of one request at the same moment, from several processes: one winner, one send."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.conftest import is_postgres
from tests.e2e.faults.bench import Bench
from tests.e2e.faults.conftest import Tell
from tests.e2e.faults.test_kills import ended

pytestmark = pytest.mark.skipif(is_postgres(), reason="the lab has databases of its own")

APPROVERS = ("ann", "ben", "ann", "ben", "ann")
EACH = 10


@pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True
)
def test_fifty_approvals_of_one_request_have_one_winner_and_one_send(
    tmp_path: Path, database_url: str, tell: Tell
) -> None:
    async def main() -> dict[str, object]:
        async with Bench(tmp_path, database_url) as bench, bench.process() as agent, AsyncExitStack() as stack:
            approvers = [
                await stack.enter_async_context(bench.process(role="approver", token_of=name)) for name in APPROVERS
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
            assert len(winners) == 1 and len(losers) == len(APPROVERS) * EACH - 1
            first = winners[0]["data"]["decidedBy"][0]
            assert all(first.removeprefix("user:") in error["message"] for error in losers), losers[0]
            assert (await ended(agent, approval_id))["status"] == "done"
            # Whoever thinks that it is theirs to run has had the time to do it.
            await asyncio.sleep(1.5)
            assert bench.count("race") == 1
            decided = bench.rows("SELECT payload FROM audit_entry WHERE kind = 'approval.decided'")
            assert len(decided) == 1 and first in json.dumps(json.loads(bytes(decided[0][0])))
            sent = bench.rows("SELECT 1 FROM audit_entry WHERE kind = 'call.sent'")
            assert len(sent) == len(bench.rows("SELECT 1 FROM approvals_decision")) == 1
            await bench.chain_is_whole()
            return {"approvals": len(answers), "winners": len(winners), "decisions": len(decided), "sends": len(sent)}

    figures = asyncio.run(main())
    tell(f"parallel approvals on {database_url.partition(':')[0]}", figures)
