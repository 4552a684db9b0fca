from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.bell import MAX_PATH_BYTES, Bell, ring, socket_path

ROOT = Path(__file__).resolve().parents[2]
PROCESS_ID = "p_" + "0" * 20

LISTENER = """
import select, sys
from pathlib import Path
from core.bell import Bell
bell = Bell(Path(sys.argv[1]), sys.argv[2])
bell.open()
print("open", flush=True)
for line in sys.stdin:
    ready, _, _ = select.select([bell], [], [], float(line))
    print("rung" if bell.drain() else "silent", flush=True)
bell.close()
"""


@pytest.fixture(params=["short", "long"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A home whose sockets fit beside it, and one whose path is too long for that."""
    path = tmp_path / "h" if request.param == "short" else tmp_path / ("long-" * 20)
    path.mkdir()
    if request.param == "short" and len(os.fsencode(path / "run" / f"{PROCESS_ID}.sock")) > MAX_PATH_BYTES:
        path = Path("/tmp") / f"meah-test-{os.getpid()}"
        path.mkdir()
    yield path
    shutil.rmtree(socket_path(path, PROCESS_ID).parent, ignore_errors=True)
    shutil.rmtree(path)


def _listener(home: Path, process_id: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LISTENER, str(home), process_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def _ask(listener: subprocess.Popen[str], seconds: float) -> str:
    assert listener.stdin is not None
    assert listener.stdout is not None
    listener.stdin.write(f"{seconds}\n")
    listener.stdin.flush()
    return listener.stdout.readline().strip()


def test_one_ring_reaches_every_process(home: Path) -> None:
    own = Bell(home, PROCESS_ID)
    own.open()
    listeners = [_listener(home, f"p_{number:020}") for number in (1, 2)]
    try:
        for listener in listeners:
            assert listener.stdout is not None
            assert listener.stdout.readline() == "open\n"
        ring(home)
        assert [_ask(listener, 10) for listener in listeners] == ["rung", "rung"]
        assert select.select([own], [], [], 0)[0] == [own]
        assert own.drain()
        assert not own.drain()
        assert [_ask(listener, 0.01) for listener in listeners] == ["silent", "silent"]
    finally:
        for listener in listeners:
            listener.communicate()
        own.close()
    assert list(socket_path(home, PROCESS_ID).parent.glob("*.sock")) == []


def test_the_socket_of_a_killed_process_is_removed_at_the_next_ring(home: Path) -> None:
    listener = _listener(home, PROCESS_ID)
    assert listener.stdout is not None
    assert listener.stdout.readline() == "open\n"
    path = socket_path(home, PROCESS_ID)
    assert path.exists()
    os.kill(listener.pid, signal.SIGKILL)
    listener.communicate()
    assert path.exists()
    ring(home)
    assert not path.exists()


def test_a_bell_that_nobody_hears_does_not_block(home: Path) -> None:
    bell = Bell(home, PROCESS_ID)
    bell.open()
    started = time.monotonic()
    for _ in range(2_000):
        ring(home)
    assert time.monotonic() - started < 20
    assert bell.path.exists()
    assert bell.drain()
    assert not bell.drain()
    bell.close()


def test_the_socket_is_private(home: Path) -> None:
    bell = Bell(home, PROCESS_ID)
    bell.open()
    assert bell.path == socket_path(home, PROCESS_ID)
    assert len(os.fsencode(bell.path)) <= MAX_PATH_BYTES
    assert stat.S_IMODE(bell.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(bell.path.parent.stat().st_mode) == 0o700
    bell.close()
    bell.close()
    assert not bell.path.exists()


def test_opening_again_after_a_crash_takes_the_old_socket_over(home: Path) -> None:
    path = socket_path(home, PROCESS_ID)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left_over:
        left_over.bind(str(path))
    bell = Bell(home, PROCESS_ID)
    bell.open()
    ring(home)
    assert bell.drain()
    bell.close()


def test_a_home_without_processes_can_be_rung(tmp_path: Path) -> None:
    ring(tmp_path)
    ring(tmp_path / "not there")


def test_what_is_no_socket_does_no_harm(home: Path) -> None:
    bell = Bell(home, PROCESS_ID)
    bell.open()
    (bell.path.parent / "a.sock").write_text("a file")
    (bell.path.parent / "b.lock").write_text("")
    ring(home)
    assert bell.drain()
    assert (bell.path.parent / "b.lock").exists()
    bell.close()


def test_a_closed_bell_has_no_descriptor_and_no_rings(tmp_path: Path) -> None:
    bell = Bell(tmp_path, PROCESS_ID)
    assert bell.fileno() == -1
    assert not bell.drain()


def test_two_homes_with_long_paths_have_different_places(tmp_path: Path) -> None:
    first, second = tmp_path / ("a" * 100), tmp_path / ("b" * 100)
    assert socket_path(first, PROCESS_ID).parent != socket_path(second, PROCESS_ID).parent
    assert socket_path(first, PROCESS_ID).parent.name.startswith(f"meah-{os.getuid()}-")


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "run").symlink_to(tmp_path)
    if len(os.fsencode(home / "run" / f"{PROCESS_ID}.sock")) > MAX_PATH_BYTES:
        pytest.skip("the temporary directory's path is too long")
    with pytest.raises(PermissionError):
        Bell(home, PROCESS_ID).open()
