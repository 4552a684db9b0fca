"""Many workers at once through gate, rows, pool and HTTP client, against a provider that takes a second."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.machine import ROOT
from benchmarks.measure import Aim, Measure

TITLE = "workers through the pool"
MOST_PER_CALL: Final = 16


def measure(home: Path, *, workers: int = 200, concurrency: int = 50, delay_s: float = 1.0, rounds: int = 3) -> Measure:
    with slow_provider(delay_s) as base_url, configured(base_url, concurrency):
        took = [
            (asyncio.run(_bare(base_url, workers, concurrency)), *asyncio.run(_delegated(workers)))
            for _ in range(rounds)
        ]
    bare, wall, cpu = zip(*took, strict=True)
    ideal_s = math.ceil(workers / concurrency) * delay_s
    return Measure(
        "delegation",
        f"{workers} {TITLE} at concurrency {concurrency}, each answered after {delay_s:g} s",
        median(wall),
        "s",
        Aim("ratio", "at most", 1.2),
        yardstick=ideal_s,
        yardstick_title="the ideal: nothing but the provider's own time",
        notes=(
            f"From the first call to the last result, starts included; median of {rounds}, quickest {min(wall):.2f} s. "
            f"httpx alone, without rows or pool, in turns: {median(bare):.2f} s, quickest {min(bare):.2f} s.",
            f"CPU of the process meanwhile: {min(cpu):.2f} s, {min(cpu) / workers * 1000:.1f} ms a worker.",
        ),
    )


@contextmanager
def slow_provider(delay_s: float) -> Iterator[str]:
    """Its base URL; it runs in a process of its own."""
    command = [sys.executable, str(ROOT / "benchmarks" / "slow_server.py"), str(delay_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        process.stdin.close()


@contextmanager
def configured(base_url: str, concurrency: int) -> Iterator[None]:
    """The only provider, by the environment, as a person would set it."""
    mine = {
        "MEAH_PROVIDER_SLOW_BASE_URL": base_url,
        "MEAH_PROVIDER_SLOW_MODEL": "slow",
        "MEAH_MAX_CONCURRENT": str(concurrency),
    }
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            del os.environ[name]


class Caller:
    """The client's side of a call."""

    principal = "agent:benchmark"
    role = "agent"
    user_id = None
    run = step = ""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    async def progress(self, message: str) -> None:
        return None

    def cancelled_on_purpose(self) -> bool:
        return False


async def _delegated(workers: int) -> tuple[float, float]:
    """Seconds of wall time, and of this process's CPU."""
    from approvals.models import Process
    from meah_site.engine import Engine
    from workers.tools import WorkerTools

    engine = Engine(Process.Kind.RUNMCP)
    await engine.start()
    try:
        tools, caller = WorkerTools(engine.pool), Caller(engine.membership.public_id)
        begun, cpu = time.perf_counter(), time.process_time()
        answers = await asyncio.gather(*(tools.parallel(call, caller) for call in _calls(workers)))
        wall_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    finally:
        await engine.stop("the benchmark is over")
    succeeded = sum(answer["succeeded"] for answer in answers)
    if succeeded != workers:
        raise RuntimeError(f"{succeeded} of {workers} workers succeeded: {answers[0]['results'][0]}")
    return wall_s, cpu_s


def _calls(workers: int) -> Iterator[dict[str, Any]]:
    """As many calls of `meah_parallel_agents` as it takes."""
    left = workers
    while left > 0:
        size = min(left, MOST_PER_CALL)
        task = {"task": "Say that it is done.", "context": [{"name": "notes.txt", "content": "x" * 1_000}]}
        yield {"workers": [task] * size, "waitMs": 120_000}
        left -= size


async def _bare(base_url: str, requests: int, concurrency: int) -> float:
    """The same number of requests by the HTTP client alone."""
    import httpx

    body = {"model": "slow", "messages": [{"role": "user", "content": "Say that it is done."}], "stream": True}
    room = asyncio.Semaphore(concurrency)
    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:

        async def one() -> None:
            async with room:
                (await client.post(f"{base_url}/chat/completions", json=body)).raise_for_status()

        begun = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(requests)))
        return time.perf_counter() - begun
