"""From the spawn of `manage.py runmcp` to the answer to `tools/list`, beside a bare server with the same tools."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from benchmarks.client import bare_server, runmcp, spawned
from benchmarks.measure import Aim, Measure
from benchmarks.scratch import environment

TITLE = "spawn to tools/list answered, `runmcp`"


def measure(home: Path, *, rounds: int = 15) -> Measure:
    """Both in turns, so that a change of the machine's load meets both; one warm-up each."""
    environ = environment(home)
    tools = listed_tools(home)
    commands = {"runmcp": runmcp(), "bare": bare_server(tools)}
    took: dict[str, list[float]] = {name: [] for name in commands}
    cpu: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            with spawned(command, environ) as server:
                took[name].append(server.took_s * 1000)
                cpu[name].append(server.cpu_ms())
    ours, bare = took["runmcp"][1:], took["bare"][1:]
    return Measure(
        "startup",
        TITLE,
        median(ours),
        "ms",
        Aim("ratio", "at most", 1.1),
        yardstick=median(bare),
        yardstick_title="a bare SDK low-level server with the same tools",
        notes=(
            f"Medians of {rounds} starts each, in turns, bytecode compiled on both sides, a 2025-era client. "
            f"Quickest: {min(ours):.0f} ms against {min(bare):.0f} ms. "
            f"CPU time, medians: {median(cpu['runmcp'][1:]):.0f} ms against {median(cpu['bare'][1:]):.0f} ms.",
        ),
    )


def listed_tools(home: Path) -> Path:
    """What `runmcp` lists, in a file for whoever needs the same."""
    path = home / "tools.json"
    with spawned(runmcp(), environment(home)) as server:
        path.write_text(json.dumps(server.tools))
    return path
