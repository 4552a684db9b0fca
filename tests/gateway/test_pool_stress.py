"""The pool under stress: more servers than may run, callers at random, children killed at random.

Every call gets one answer, nothing is sent twice, what was answered was sent, nobody is left behind, memory stays flat.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from approvals import governor
from approvals.models import Call, Rule
from approvals.targets import CallRequest
from audit.dbthread import in_db
from audit.services import verify
from core.errors import MeahError
from gateway.models import Exposure, Server
from gateway.runtime import Gateway
from tests.gateway.support import accept_everything, alive, gateway, make_server, raw, recorded

CLIENTS = 8
TOOLS = [{"name": "seen", "inputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}}}]
# Of the whole test process, with its database thread and all that it has cached.
GROWTH_MB = 40

reasons: Counter[str] = Counter()


@pytest.mark.parametrize(
    ("servers", "at_once", "calls"),
    [(6, 3, 60), pytest.param(50, 20, 2_000, marks=pytest.mark.slow)],
)
def test_a_pool_under_stress_loses_and_repeats_nothing(
    home: Any, run: Any, tmp_path: Path, servers: int, at_once: int, calls: int
) -> None:
    names = [f"server-{number}" for number in range(servers)]
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    run(stressed(home, names, tmp_path, at_once, calls), within_s=900)


async def stressed(home: Any, names: list[str], directory: Path, at_once: int, calls: int) -> None:
    await in_db(_make, names, directory)
    answers: dict[int, str] = {}
    pids: set[int] = set()
    rng = random.Random(20261201)
    async with gateway() as running:
        running.pool.slots.at_once = at_once
        await _learn(running, names)
        numbers = iter(range(calls))
        killer = asyncio.create_task(_kill_at_random(home.path / "run", rng, pids))
        half = asyncio.create_task(_memory_after(answers, calls // 2))
        await asyncio.gather(*(_client(numbers, names, answers, rng) for _ in range(CLIENTS)))
        killer.cancel()
        before, after = await half, _memory_mb()
        assert len(recorded(home.path / "run")) <= at_once
    sent = _sent(directory)
    outcome = Counter(answers.values())
    assert len(answers) == calls, "every call has an answer"
    assert max(sent.values()) == 1, "no call was sent twice"
    assert all(sent[number] == 1 for number, answer in answers.items() if answer == "done")
    assert all(sent[number] == 0 for number, answer in answers.items() if answer == "not sent")
    assert outcome["done"] > calls // 2 and pids, (outcome, reasons, pids)
    assert not any("downstream_error" in reason for reason in reasons), "an end is no word of the server's"
    states = await in_db(lambda: Counter(Call.objects.values_list("state", flat=True)))
    assert states["sending"] == states["held"] == 0 and sum(states.values()) == calls
    assert states["done"] == outcome["done"]
    assert recorded(home.path / "run") == [] and not any(map(alive, pids)), "nobody is left behind"
    assert after - before < GROWTH_MB, (before, after)
    assert (await in_db(verify)).whole
    told = f"{calls} calls: {dict(outcome)} {dict(reasons)}, {len(pids)} children killed"
    print(f"{told}, {before:.0f} to {after:.0f} MB", file=sys.stderr)


def _make(names: list[str], directory: Path) -> None:
    for name in names:
        launch = raw(name, "--tools", str(directory / "tools.json"), "--log", str(directory / f"{name}.log"))
        make_server(launch, exposure=Exposure.LAZY)
    Rule.objects.create(name="all", server="*", tool="*", effect="allow")


async def _learn(running: Gateway, names: list[str]) -> None:
    for name in names:
        launch = await in_db(lambda name=name: Server.objects.get(name=name).launch())
        async with running.pool.use(launch) as connection:
            await connection.open()
        await in_db(accept_everything, name)


async def _client(numbers: Any, names: list[str], answers: dict[int, str], rng: random.Random) -> None:
    for number in numbers:
        request = CallRequest("agent:test", rng.choice(names), "seen", {"id": number}, "mcp")
        try:
            result = (await asyncio.wait_for(governor.submit(request), 120)).result
            assert result["structuredContent"]["arguments"] == {"id": number}, "the answer is that of this call"
            answer = "done"
        except MeahError as error:
            answer = "not sent" if error.details.get("sent") is False else "unknown"
            reasons[f"{error.code} {error.reason}"] += 1
        assert number not in answers
        answers[number] = answer


async def _kill_at_random(directory: Path, rng: random.Random, pids: set[int]) -> None:
    while True:
        await asyncio.sleep(rng.uniform(0.3, 0.9))
        groups = recorded(directory)
        if groups:
            pid = int(rng.choice(groups)["pgid"])
            pids.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _sent(directory: Path) -> Counter[int]:
    lines = [line for log in directory.glob("*.log") for line in log.read_text().splitlines() if line.startswith("{")]
    messages = [json.loads(line) for line in lines]
    return Counter(one["params"]["arguments"]["id"] for one in messages if one.get("method") == "tools/call")


async def _memory_after(answers: dict[int, str], count: int) -> float:
    while len(answers) < count:
        await asyncio.sleep(0.1)
    return _memory_mb()


def _memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
