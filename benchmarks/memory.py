"""Resident memory of an idle `runmcp`, beside that of a bare server."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from benchmarks.client import bare_server, runmcp, spawned
from benchmarks.measure import Aim, Measure
from benchmarks.scratch import environment
from benchmarks.startup import listed_tools

TITLE = "resident memory of an idle `runmcp`"


def measure(home: Path, *, rounds: int = 3, idle_s: float = 5.0) -> Measure:
    """After `tools/list` and some sweeps of its engine."""
    commands = {"runmcp": runmcp(), "bare": bare_server(listed_tools(home))}
    used = {name: [_idle(command, home, idle_s) for _ in range(rounds)] for name, command in commands.items()}
    return Measure(
        "memory",
        TITLE,
        median(used["runmcp"]),
        "MB",
        Aim("value", "at most", 90),
        yardstick=median(used["bare"]),
        yardstick_title="a bare SDK low-level server with the same tools",
        notes=(f"RSS (in 10^6 bytes) {idle_s:.0f} s after tools/list was answered, medians of {rounds}.",),
    )


def _idle(command: list[str], home: Path, idle_s: float) -> float:
    with spawned(command, environment(home)) as server:
        time.sleep(idle_s)
        return server.rss_mb()
