"""The benchmarks run, at tiny sizes; how quick things are is for `make bench` to say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import audit_append, audit_verify, delegation, lazy_surface, memory, startup, tokens
from benchmarks.__main__ import BENCHMARKS, RESULTS
from benchmarks.machine import described
from benchmarks.measure import Aim, Measure, Skipped, report
from tests.conftest import ROOT, Home, is_postgres

on_files = pytest.mark.skipif(is_postgres(), reason="the benchmarks measure SQLite")


def measure(value: float, aim: Aim, *, yardstick: float | None = None) -> Measure:
    return Measure("it", "what it is", value, "ms", aim, yardstick=yardstick, yardstick_title="something else")


@on_files
def test_startup_measures_both_servers_in_turns(home: Home) -> None:
    found = startup.measure(home.path, rounds=1)
    assert found.value > 0
    assert found.ratio is not None
    assert {tool["name"] for tool in json.loads((home.path / "tools.json").read_text())} >= {"meah_delegate_task"}


@on_files
def test_the_search_of_the_lazy_surface_is_measured(home: Home) -> None:
    found = lazy_surface.measure_search(home.path, tools=200, queries=5)
    assert isinstance(found, Measure) and found.value > 0


@on_files
def test_memory_is_that_of_the_server(home: Home) -> None:
    found = memory.measure(home.path, rounds=1, idle_s=0.1)
    assert 10 < found.value < 1_000
    assert found.yardstick is not None


@on_files
def test_every_delegated_worker_has_to_succeed(home: Home) -> None:
    found = delegation.measure(home.path, workers=18, concurrency=9, delay_s=0.05, rounds=1)
    assert found.yardstick == pytest.approx(0.1)
    assert found.value >= 0.1


@on_files
def test_the_chain_is_appended_to_and_verified(home: Home) -> None:
    assert audit_append.measure(home.path, appends=5).value > 0
    assert audit_verify.measure(home.path, entries=30, rounds=1).value > 0
    from audit.services import head

    assert head().size == 30


def test_without_node_tokens_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = tokens.measure(tmp_path)
    assert isinstance(found, Skipped)
    assert "node" in found.why


@on_files
@pytest.mark.skipif(not (tokens.PLACE / "node_modules").exists(), reason="the tokenizer is installed by `make bench`")
def test_tokens_of_the_list_are_counted(home: Home) -> None:
    found = tokens.measure(home.path)
    assert isinstance(found, Measure)
    assert 500 < found.value < 20_000


def test_the_scratch_home_is_whole_and_goes_away() -> None:
    program = (
        "from benchmarks.scratch import scratch_home\nfrom benchmarks import audit_append\n"
        "with scratch_home() as home:\n    print(audit_append.measure(home, appends=3).unit)\nassert not home.exists()"
    )
    child = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert child.stdout.strip() == "appends/s", child.stderr


def test_an_unknown_benchmark_is_refused_with_the_names_there_are() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks", "spped"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert child.returncode == 2
    assert "audit-append" in child.stderr


@pytest.mark.parametrize(
    ("value", "yardstick", "aim", "met"),
    [
        (110.0, 100.0, Aim("ratio", "at most", 1.1), True),
        (111.0, 100.0, Aim("ratio", "at most", 1.1), False),
        (90.0, None, Aim("value", "at most", 90), True),
        (699.0, 10.0, Aim("value", "at least", 700), False),
        (700.0, 10.0, Aim("value", "at least", 700), True),
        (1.0, None, Aim("ratio", "at most", 1.1), False),
    ],
)
def test_an_aim_is_met_or_missed(value: float, yardstick: float | None, aim: Aim, met: bool) -> None:
    found = measure(value, aim, yardstick=yardstick)
    assert found.met is met
    assert found.as_dict()["met"] is met
    assert ("met aim" if met else "MISSED aim") in "\n".join(found.lines())


def test_the_report_names_what_was_missed_and_what_was_skipped() -> None:
    missed = measure(2.0, Aim("value", "at most", 1))
    text = report({"cpu": "one"}, [missed, Skipped("other", "another", "there is no node")])
    assert "0 of 1 aims met; missed: it." in text
    assert "skipped: there is no node" in text


def test_what_is_kept_names_no_path_and_every_benchmark() -> None:
    kept = [path.read_text() for path in (RESULTS / "bench.json", RESULTS / "bench.txt")]
    for text in [*kept, json.dumps(described())]:
        assert not re.search(r"(?<![\w.])/(home|root|work|usr|tmp|var|Users)\b", text)
    assert {item["name"] for item in json.loads(kept[0])["benchmarks"]} == set(BENCHMARKS)
