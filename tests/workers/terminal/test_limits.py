"""What a command may take, and how it ends: limits of each process and of all of them, and nobody left behind."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.workers.terminal.escapes import LIBRARY, PYTHON, ran, script
from workers.terminal import execution, sandbox
from workers.terminal.execution import Ran
from workers.terminal.sandbox import Limits

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason=f"no sandbox here: {sandbox.missing()}")
MEBIBYTE = 2**20
RESPONSIVE_S = 2.5


def test_a_flood_is_cut_while_it_is_read(tmp_path: Path) -> None:
    tried = ran(["/usr/bin/yes"], tmp_path, keep_bytes=10_000)
    assert "wrote more than" in tried.ended and tried.status is None
    assert len(tried.output) < 11_000 and "left out" in tried.output


def test_a_key_is_not_cut_before_it_is_recognised(tmp_path: Path) -> None:
    """Wherever the cut falls."""
    key = "sk-ant-api03-" + "a1B2c3D4" * 8
    for keep in range(1_000, 1_100, 7):
        tried = script(f"print('x' * 480 + '{key}' + 'y' * 3000)", tmp_path, keep_bytes=keep)
        assert "a1B2c3D4" not in tried.output


def test_time_is_up_and_everything_is_gone(tmp_path: Path) -> None:
    begun = time.monotonic()
    tried = ran(["/bin/sh", "-c", "trap '' TERM; (setsid sleep 997 &); sleep 998"], tmp_path, timeout_s=0.5)
    assert "took more than" in tried.ended and time.monotonic() - begun < 5
    assert not alive("sleep", "997") and not alive("sleep", "998")


@pytest.mark.parametrize("sandboxed", [True, False])
@pytest.mark.parametrize("rounds", [pytest.param(3, id="some"), pytest.param(50, id="full", marks=pytest.mark.slow)])
def test_a_cancel_ends_the_whole_tree(tmp_path: Path, sandboxed: bool, rounds: int) -> None:
    nested = "trap '' TERM; sleep 3333 & sleep 3333"
    stubborn = f'trap "" TERM; (setsid sh -c "{nested}" &); (setsid setsid sh -c "{nested}" &); sleep 3333'

    async def main() -> None:
        for _ in range(rounds):
            argv = ["/bin/sh", "-c", stubborn]
            running = asyncio.create_task(
                execution.run(
                    argv, workspace=tmp_path, timeout_s=60, keep_bytes=1000, sandboxed=sandboxed, also=LIBRARY
                )
            )
            await asyncio.sleep(0.4)
            begun = time.monotonic()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert time.monotonic() - begun < 3
            assert not alive("3333")

    asyncio.run(main())


def test_a_fork_bomb_is_counted_and_ended(tmp_path: Path) -> None:
    """It may start as many as it likes in a loop, not in a tree: where no limit held, this machine would be gone."""
    bomb = (
        "import os, time\nfor _ in range(500):\n    try:\n        if os.fork() == 0: time.sleep(30); os._exit(0)\n"
        "    except OSError:\n        print('refused', flush=True); break\ntime.sleep(30)"
    )
    begun = time.monotonic()
    tried = script(bomb, tmp_path, timeout_s=3, limits=Limits(processes=30))
    assert "refused" in tried.output or "processes" in tried.ended, tried
    assert time.monotonic() - begun < 8
    assert not alive("os.fork()")


def test_a_spin_and_a_large_file_meet_their_limits(tmp_path: Path) -> None:
    tried = script("while True: pass", tmp_path, limits=Limits(cpu_s=1), timeout_s=20)
    assert tried.ended == "" and tried.status not in (0, None)
    tried = script("open('big', 'wb').write(b'x' * 5_000_000)", tmp_path, limits=Limits(file_bytes=1_000_000))
    assert tried.status != 0 and (tmp_path / "big").stat().st_size <= 1_000_000
    tried = script("x = bytearray(800_000_000); print(len(x))", tmp_path, limits=Limits(memory_bytes=400_000_000))
    assert "800000000" not in tried.output


def test_many_files_are_no_more_than_one_may_be(tmp_path: Path) -> None:
    """Each within the limit of one; it is counted how many they are, and how much in all."""
    many = "import time\nfor n in range(300): open(str(n), 'w').write('x' * 5000)\ntime.sleep(20)"
    tried = script(many, tmp_path, limits=Limits(workspace_files=200))
    assert "more than 200 files" in tried.ended
    large = "import time\nfor n in range(8): open(f'big{n}', 'wb').write(b'x' * 1_000_000)\ntime.sleep(20)"
    tried = script(large, tmp_path, limits=Limits(workspace_bytes=4 * MEBIBYTE))
    assert "4 MiB" in tried.ended


def test_directories_as_deep_as_they_go_do_not_hurt_who_counts_them(tmp_path: Path) -> None:
    deep = "import os, time\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')\nprint('deep', flush=True); "
    deep += "time.sleep(1.5)"
    tried = script(deep, tmp_path)
    assert (tried.status, tried.output) == (0, "deep\n"), tried
    # Deeper than Python 3.11 removes.
    subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


def test_many_processes_have_no_more_memory_than_one_command_may(tmp_path: Path) -> None:
    greedy = (
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n"
        "        x = b'x' * 60_000_000; time.sleep(20); os._exit(0)\ntime.sleep(20)"
    )
    tried = script(greedy, tmp_path, limits=Limits(memory_in_all_bytes=200 * MEBIBYTE))
    assert "200 MiB of memory" in tried.ended


def test_scratch_space_is_memory_and_small(tmp_path: Path) -> None:
    for folder in ("/tmp", "/dev/shm"):
        tried = script(f"open('{folder}/big', 'wb').write(bytes(80 * 2**20))", tmp_path)
        assert "No space left" in tried.output
        assert script(f"open('{folder}/small', 'wb').write(bytes(1000))", tmp_path).status == 0


def test_what_a_command_makes_is_its_owners_alone(tmp_path: Path) -> None:
    assert script("open('made', 'w').write('x')", tmp_path).status == 0
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o600


async def _meanwhile(argv: list[str], workspace: Path, **options: Any) -> tuple[Ran, float]:
    """How it went, and the longest time for which the loop did nothing else."""
    longest = 0.0
    running = asyncio.create_task(execution.run(argv, workspace=workspace, also=LIBRARY, **options))
    while not running.done():
        begun = time.monotonic()
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - begun)
    return await running, longest


@pytest.mark.parametrize(
    ("greedy", "reason"),
    [
        ("for _ in range(1024): print('x' * 2**20)", "wrote more than"),
        ("while True: print('x' * 1000)", "wrote more than"),
        ("while True: pass", "took more than"),
        ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", "more than"),
    ],
    ids=["a gigabyte", "lines without end", "a spin", "a fork bomb"],
)
def test_the_loop_goes_on_and_its_memory_stays(tmp_path: Path, greedy: str, reason: str) -> None:
    execution.hand_over(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    argv = [PYTHON, "-I", "-S", "-c", greedy]
    limits = Limits(processes=30)
    tried, longest = asyncio.run(_meanwhile(argv, tmp_path, timeout_s=2, keep_bytes=65_536, limits=limits))
    assert reason in tried.ended and len(tried.output) < 70_000
    assert longest < RESPONSIVE_S
    # In kilobytes, as Linux counts.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
    assert not alive(PYTHON, "-I", greedy[:20])


def alive(*words: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = path.parent.joinpath("stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if all(word in line for word in words) and state != "Z" and "pytest" not in line:
            found.append(line)
    return found
