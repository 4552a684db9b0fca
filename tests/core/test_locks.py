from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.locks import hold, is_held

ROOT = Path(__file__).resolve().parents[2]

HOLDER = """
import sys, time
from pathlib import Path
from core.locks import hold
held = hold(Path(sys.argv[1]))
print("held" if held else "refused", flush=True)
sys.stdin.read()
"""

PARENT = """
import subprocess, sys
from pathlib import Path
from core.locks import hold
held = hold(Path(sys.argv[1]))
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], close_fds=False)
print(child.pid, flush=True)
sys.stdin.read()
"""


def _holder(path: Path, program: str = HOLDER) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def _becomes(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.02)
    return False


def test_a_lock_is_held_once_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    assert not is_held(path)
    assert not path.exists()
    held = hold(path)
    assert held is not None
    assert is_held(path)
    assert hold(path) is None
    held.release()
    held.release()
    assert not is_held(path)
    with hold(path) as again:
        assert again.path == path
        assert is_held(path)
    assert not is_held(path)


def test_the_file_is_private_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    held = hold(path)
    assert held is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    held.release()
    assert path.exists()


def test_a_lock_of_another_process_is_seen_and_its_end_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with _holder(path) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        assert is_held(path)
        assert hold(path) is None
        child.communicate()
        assert child.returncode == 0
    assert not is_held(path)


def test_kill_9_frees_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with _holder(path) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(timeout=10) == -signal.SIGKILL
    assert _becomes(lambda: not is_held(path))
    held = hold(path)
    assert held is not None
    held.release()


def test_a_program_that_the_holder_started_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with _holder(path, PARENT) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert is_held(path)
        os.kill(child.pid, signal.SIGKILL)
        child.wait(timeout=10)
        assert _becomes(lambda: not is_held(path))
        os.kill(grandchild, 0)
        child.communicate()


def test_a_released_lock_is_free_while_programs_are_being_started(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    for _ in range(20):
        held = hold(path)
        assert held is not None
        with subprocess.Popen(["/bin/sh", "-c", "read x"], stdin=subprocess.PIPE, close_fds=False) as child:
            held.release()
            assert not is_held(path)
            child.communicate(b"\n")


def test_asking_never_takes_a_lock_away(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.touch()
    probe = f"""
import sys; from pathlib import Path; from core.locks import is_held
for _ in range(3000): is_held(Path({str(path)!r}))
"""
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    probes = [subprocess.Popen([sys.executable, "-c", probe], env=environ) for _ in range(2)]
    seen_held = False
    while any(process.poll() is None for process in probes):
        # Nobody holds it: those who ask must not take each other for the holder.
        seen_held = seen_held or is_held(path)
    assert not seen_held
    assert [process.returncode for process in probes] == [0, 0]


def test_a_file_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"."):
        hold(tmp_path / "no" / "a.lock")
