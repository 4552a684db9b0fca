"""A gullible agent obeys every text that it reads; no write that needs a person lands without one."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import is_postgres
from tests.e2e.faults.bench import Bench
from tests.e2e.faults.conftest import Tell
from tests.e2e.faults.orders import ORDERS, SHAPES, Obedience, injected, orders_in

pytestmark = pytest.mark.skipif(is_postgres(), reason="the lab has databases of its own")

SEED = 20_261_201
NEEDS_A_PERSON = ("issue_refund", "update_ticket", "delete_customer")
# What is in flight when the last text was obeyed has had the time to land.
LANDS_WITHIN_S = 3.0


@pytest.mark.parametrize("texts", [pytest.param(20, id="some"), pytest.param(200, id="full", marks=pytest.mark.slow)])
def test_obeying_injected_texts_lands_nothing_that_needs_a_person(tmp_path: Path, texts: int, tell: Tell) -> None:
    obedience, landed = asyncio.run(_obeyed(tmp_path, texts))
    assert landed == Counter()
    assert obedience.obeyed >= texts and obedience.held and obedience.refused
    tell(
        "injection",
        {
            "texts": texts,
            "orders obeyed": obedience.obeyed,
            "held": obedience.waiting,
            "refused": obedience.refused,
            "unapproved writes": landed.total(),
        },
    )


def test_the_same_texts_land_writes_where_roles_are_not_checked(tmp_path: Path, tell: Tell) -> None:
    """The check of the check: what obeys can do harm, and what counts would see it."""
    _, landed = asyncio.run(_obeyed(tmp_path, 20, sabotage="meah_site.lab.sabotage_roles"))
    assert landed["issue_refund"] and landed["update_ticket"] and landed["a decision"], landed
    tell("injection without the role check (must not be 0)", {"unapproved writes": landed.total()})


def test_every_order_is_understood_in_every_shape() -> None:
    for shape in SHAPES:
        for order in ORDERS.values():
            (found,) = orders_in(shape(order))
            assert (found["tool"], found["args"]) == (order["tool"], order["args"])


async def _obeyed(directory: Path, texts: int, *, sabotage: str = "") -> tuple[Obedience, Counter[str]]:
    """Obey these many texts; what landed by the CRM's own record, with decisions and workers by MEAH's."""
    dice, obedience = random.Random(SEED), Obedience()
    async with Bench(directory, sabotage=sabotage) as bench, bench.process() as agent:
        for _ in range(texts):
            await agent.call("add_comment", ticket_id="T-1001", body=injected(dice))
            ticket = await agent.call("get_ticket", ticket_id="T-1001")
            await obedience.obey(agent, ticket["comments"][-1]["body"])
        await asyncio.sleep(LANDS_WITHIN_S)
        landed = Counter(effect["tool"] for effect in bench.effects() if effect["tool"] in NEEDS_A_PERSON)
        for name, table in {"a decision": "approvals_decision", "a worker": "workers_worker"}.items():
            landed[name] = bench.rows(f"SELECT count(*) FROM {table}")[0][0]
        await bench.chain_is_whole()
    return obedience, +landed
