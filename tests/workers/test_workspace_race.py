"""A directory that is swapped with a link while files in it are read and written: nothing outside is met.

The same is done by a naive reader and writer that look first and open then. They are led out, which shows that the test
bites.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.errors import MeahError
from core.ids import WORKER, new_id
from workers.workspace import Workspace

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="swapping in one step is Linux's")
INSIDE, OUTSIDE = b"inside", b"outside"
# linux/fcntl.h and linux/fs.h.
AT_FDCWD, RENAME_EXCHANGE = -100, 2
# Until the naive version has been led out, at most.
PATIENCE_S = 60.0


class Naive:
    """Resolves, checks that it is inside, and opens the path: what it checked may be another thing by then."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def read(self, relative: str) -> bytes:
        return self._checked(relative).read_bytes()

    def write(self, relative: str, data: bytes) -> None:
        self._checked(relative).write_bytes(data)

    def _checked(self, relative: str) -> Path:
        path = self.root / relative
        if not path.resolve().is_relative_to(self.root):
            raise MeahError("E_PATH_ESCAPE")
        return path


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path / "workspaces", new_id(WORKER))
    made.create()
    made.write("folder/file", INSIDE)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(OUTSIDE)
    return made


@contextmanager
def swapping(folder: Path, outside: Path) -> Iterator[list[int]]:
    """The directory, a link in its place, and the directory again: in one step each, as quickly as it goes.

    What each swap answered, 0 where it was done.
    """
    stop = threading.Event()
    link = folder.with_name("link")
    link.symlink_to(outside)
    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    swaps: list[int] = []

    def swap() -> None:
        while not stop.is_set():
            swaps.append(renameat2(AT_FDCWD, bytes(folder), AT_FDCWD, bytes(link), RENAME_EXCHANGE))
            time.sleep(0)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        yield swaps
    finally:
        stop.set()
        swapper.join(10)
    assert swaps and not any(swaps)


def raced(
    read: Callable[[], bytes], write: Callable[[], None], outside: Path, enough: Callable[[int], bool]
) -> tuple[int, int, int]:
    """Reads and writes until it is enough: how many were done, refused, and led out."""
    done = refused = escaped = 0
    while not enough(escaped):
        for act in (read, write):
            try:
                escaped += act() == OUTSIDE
                done += 1
            except (MeahError, OSError):
                refused += 1
        found = {path.name: path.read_bytes() for path in outside.iterdir()}
        if found != {"file": OUTSIDE}:
            escaped += 1
            for path in outside.iterdir():
                path.unlink()
            (outside / "file").write_bytes(OUTSIDE)
    return done, refused, escaped


@pytest.mark.parametrize(
    "seconds", [pytest.param(1, id="a second"), pytest.param(10, id="ten seconds", marks=pytest.mark.slow)]
)
def test_a_directory_swapped_with_a_link_never_leads_out(workspace: Workspace, tmp_path: Path, seconds: int) -> None:
    outside = tmp_path / "outside"
    until = time.monotonic() + seconds
    with swapping(workspace.path / "folder", outside) as swaps:
        done, refused, escaped = raced(
            lambda: workspace.read("folder/file"),
            lambda: workspace.write("folder/file", INSIDE),
            outside,
            lambda _: time.monotonic() > until,
        )
    print(f"{done} done, {refused} refused, {escaped} led out in {seconds} s")
    assert escaped == 0 and done and refused and len(swaps) > 100


def test_the_naive_version_is_led_out(workspace: Workspace, tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    outside, naive = tmp_path / "outside", Naive(workspace.path)
    until = time.monotonic() + PATIENCE_S
    with swapping(workspace.path / "folder", outside):
        done, refused, escaped = raced(
            lambda: naive.read("folder/file"),
            lambda: naive.write("folder/file", INSIDE),
            outside,
            lambda escaped: escaped > 0 or time.monotonic() > until,
        )
    print(f"{done} done, {refused} refused, {escaped} led out")
    assert escaped
