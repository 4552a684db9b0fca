"""`python -m benchmarks [NAME…]`: measure, print, and (when all were run) keep the results beside this file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import audit_append, audit_verify, delegation, gate, lazy_surface, memory, startup, tokens
from benchmarks.machine import described
from benchmarks.measure import Outcome, report
from benchmarks.scratch import compile_bytecode, scratch_home

RESULTS: Final = Path(__file__).resolve().parent / "results"
BENCHMARKS: Final[dict[str, Callable[[Path], Outcome]]] = {
    "startup": startup.measure,
    "memory": memory.measure,
    "tokens": tokens.measure,
    "lazy-tokens": lazy_surface.measure_tokens,
    "lazy-search": lazy_surface.measure_search,
    "delegation": delegation.measure,
    "audit-append": audit_append.measure,
    "audit-verify": audit_verify.measure,
    "gate-read": gate.measure_read,
    "gate-write": gate.measure_write,
    "approve-to-executed": gate.measure_approval,
    "gate-memory": gate.measure_memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; default all")
    names = parser.parse_args().names or list(BENCHMARKS)
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    machine = described()
    outcomes = run(names)
    text = report(machine, outcomes)
    print(text, end="")
    if set(names) == set(BENCHMARKS):
        keep(machine, outcomes, text)


def run(names: list[str]) -> list[Outcome]:
    _say("compiling bytecode")
    compile_bytecode()
    with scratch_home() as home:
        outcomes = []
        for name in names:
            _say(name)
            outcomes.append(BENCHMARKS[name](home))
        return outcomes


def keep(machine: dict[str, str], outcomes: list[Outcome], text: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    data = {"machine": machine, "benchmarks": [outcome.as_dict() for outcome in outcomes]}
    (RESULTS / "bench.json").write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    (RESULTS / "bench.txt").write_text(text)


def _say(what: str) -> None:
    print(f"… {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
