"""kill -9 of the only MEAH process there is: the next one to start recovers by itself, and ends what was left."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.conftest import is_postgres
from tests.e2e.faults.bench import Bench
from tests.e2e.faults.conftest import Tell
from tests.e2e.faults.crashing import POINTS
from tests.e2e.faults.test_kills import APPROVED_WRITE, Seen, ended

pytestmark = pytest.mark.skipif(is_postgres(), reason="the lab has databases of its own")

# The requirement: what a killed process has left behind is gone so soon after the next one has started.
GONE_WITHIN_S = 10.0


COUNTS = [
    pytest.param(("after_lease", "after_sending"), 1, id="some"),
    pytest.param(POINTS, 5, id="full", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("points", "rounds"), COUNTS)
def test_the_next_process_goes_on_after_a_kill_of_the_only_one(
    tmp_path: Path, points: tuple[str, ...], rounds: int, tell: Tell
) -> None:
    seen, slowest, left_behind = Seen(), 0.0, 0

    async def main() -> None:
        nonlocal slowest, left_behind
        async with Bench(tmp_path) as bench:
            for point in points:
                state, effects = APPROVED_WRITE[point]
                for number in range(rounds):
                    note = f"{point}-{number}"
                    async with bench.process(crash_at=point, crash_on="issue_refund") as doomed:
                        held = await doomed.call("issue_refund", customer_id="C-1", amount=1, reason=note)
                        approval_id = held["data"]["approvalId"]
                        await bench.manage("approvals", "approve", approval_id, "--note", "go", token_of="ann")
                        await doomed.gone()
                    left_behind += len(bench.orphans())
                    begun = time.monotonic()
                    async with bench.process() as heir:
                        await bench.no_orphan_is_left(within_s=GONE_WITHIN_S)
                        slowest = max(slowest, time.monotonic() - begun)
                        found = await ended(heir, approval_id)
                        assert found["status"] == state, (point, found)
                        assert bench.count(note) in effects, point
                        seen.note(state, bench.count(note))
            await bench.chain_is_whole()

    asyncio.run(main())
    assert left_behind, "nothing was left behind: the test does not bite"
    tell("restarts", {**seen.figures, "left behind": left_behind, "slowest clean-up in s": round(slowest, 1)})
