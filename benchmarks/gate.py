"""What the gate costs: calls through MEAH, straight to the child, and through fastmcp's proxy, which asks nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from benchmarks.client import Spawned, runmcp, spawned
from benchmarks.machine import ROOT
from benchmarks.measure import Aim, Measure, Outcome, Skipped
from benchmarks.scratch import environment

FASTMCP: Final = "fastmcp==4.2.3"
ECHO: Final = ROOT / "benchmarks" / "echo_server.py"
CHILDREN: Final = ("echo", "second", "third")
IN_FLIGHT: Final = 20
INSTALL_S: Final = 300
POLICY: Final = """
version: 1
rules:
  - {name: bench-put, effect: allow, server: "*", tool: put}
"""


@dataclass(frozen=True)
class Figures:
    """Milliseconds of single calls one after another, and calls a second with twenty in flight."""

    p50: float
    p99: float
    per_second: float

    def __str__(self) -> str:
        return f"p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms, {self.per_second:,.0f} calls/s at {IN_FLIGHT} in flight"


def measure_read(home: Path, *, calls: int = 500) -> Outcome:
    title = "a governed read over stdio, and the same through fastmcp's proxy"
    return _beside_fastmcp(home, "gate-read", title, "echo", calls)


def measure_write(home: Path, *, calls: int = 500) -> Outcome:
    title = "a governed allowed write (two rows and two entries more), and the same through fastmcp's proxy"
    return _beside_fastmcp(home, "gate-write", title, "put", calls)


def _beside_fastmcp(home: Path, name: str, title: str, tool: str, calls: int) -> Outcome:
    try:
        proxy = _fastmcp_python()
    except (subprocess.SubprocessError, OSError) as error:
        return Skipped(name, title, f"{FASTMCP} can not be installed here: {error}")
    child = [sys.executable, str(ECHO)]
    with _imported(home):
        governed = _figures(runmcp(), home, f"echo__{tool}", calls)
    direct = _figures(child, home, tool, calls)
    ungoverned = _figures([proxy, str(ROOT / "benchmarks" / "fastmcp_proxy.py"), *child], home, tool, calls)
    return Measure(
        name,
        title,
        governed.p50,
        "ms",
        # A write is recorded before and after, on a disk that is asked to keep it: it may cost what that costs.
        Aim("ratio", "at most", 1.0) if tool == "echo" else Aim("value", "at most", 25),
        yardstick=ungoverned.p50,
        yardstick_title="fastmcp's proxy, which asks no policy and keeps no record",
        notes=(
            f"MEAH: {governed}.",
            f"fastmcp's proxy: {ungoverned}.",
            f"straight to the child: {direct}.",
            f"{calls} calls one after another and as many with {IN_FLIGHT} in flight, over stdio, SQLite.",
        ),
    )


def measure_approval(home: Path, *, rounds: int = 20) -> Measure:
    """From the commit of a person's approval, in this process, to the stored result in the process that runs it."""
    with _imported(home), spawned(runmcp(), environment(home)) as server:
        took = [_approved_ms(server, number) for number in range(rounds)]
    return Measure(
        "approve-to-executed",
        "from an approval in one process to the call's stored result in another",
        median(took),
        "ms",
        Aim("value", "at most", 500),
        notes=(f"Median of {rounds}; the slowest {max(took):.0f} ms. The agent was waiting in approval_status.",),
    )


def _approved_ms(server: Spawned, number: int) -> float:
    from django.contrib.auth import get_user_model

    from approvals import services

    user, _ = get_user_model().objects.get_or_create(username="bench", defaults={"is_superuser": True})
    held = server.call("echo__hold", {"text": f"please {number}"})
    approval_id = held["structuredContent"]["data"]["approvalId"]
    waiting = server.begin("approval_status", {"approvalId": approval_id, "waitMs": 20_000})
    services.approve(services.get(approval_id), user=user, note="yes", door="bench")
    begun = time.perf_counter()
    while True:
        status = server.answer(waiting)["structuredContent"]["data"]["status"]
        if status == "done":
            return (time.perf_counter() - begun) * 1000
        waiting = server.begin("approval_status", {"approvalId": approval_id, "waitMs": 20_000})


def measure_memory(home: Path) -> Measure:
    """Of `runmcp` alone, while it keeps three children."""
    with _imported(home), spawned(runmcp(), environment(home)) as server:
        for name in CHILDREN:
            server.call(f"{name}__echo", {"text": "hi"})
        used = server.rss_mb()
    return Measure(
        "gate-memory",
        "resident memory of `runmcp` with three children",
        used,
        "MB",
        Aim("value", "at most", 120),
        notes=("Without the children's own, which is theirs whoever starts them.",),
    )


def _figures(command: list[str], home: Path, tool: str, calls: int) -> Figures:
    with spawned(command, environment(home)) as server:
        one = _caller(server, tool)
        for _ in range(10):
            one()
        took = []
        for _ in range(calls):
            begun = time.perf_counter()
            one()
            took.append((time.perf_counter() - begun) * 1000)
        begun = time.perf_counter()
        server.pipelined(tool, {"text": "hi"}, calls, in_flight=IN_FLIGHT)
        per_second = calls / (time.perf_counter() - begun)
    return Figures(median(took), quantiles(took, n=100)[98], per_second)


def _caller(server: Spawned, tool: str) -> Callable[[], None]:
    def one() -> None:
        answer = server.call(tool, {"text": "hi"})
        if answer["content"][0]["text"] != "hi":
            raise RuntimeError(f"{tool} answered {answer}")

    return one


@contextmanager
def _imported(home: Path) -> Iterator[None]:
    """The echo servers and the rule that allows their write, in the home; as an operator does it, once."""
    marker = home / "imported"
    if not marker.exists():
        config, policy = home / "echo.mcp.json", home / "policy.yaml"
        entry = {"command": sys.executable, "args": [str(ECHO)]}
        config.write_text(json.dumps({"mcpServers": dict.fromkeys(CHILDREN, entry)}))
        policy.write_text(POLICY)
        _manage(home, "servers", "import", str(config), "--yes", "--exposure", "direct")
        _manage(home, "policy", "import", str(policy), "--yes")
        marker.touch()
    yield


def _manage(home: Path, *words: str) -> None:
    command = [sys.executable, str(ROOT / "manage.py"), *words]
    subprocess.run(command, env=environment(home), check=True, stdout=subprocess.DEVNULL, timeout=120)


@cache
def _fastmcp_python() -> str:
    """The Python of an environment with fastmcp in it, made once under `var/`."""
    place = ROOT / "var" / f"bench-{FASTMCP.replace('==', '-')}"
    python = place / "bin" / "python"
    if not (place / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=INSTALL_S)
        pip = [os.fspath(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", FASTMCP]
        subprocess.run(pip, check=True, timeout=INSTALL_S)
        (place / "installed").touch()
    return os.fspath(python)
