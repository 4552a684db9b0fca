"""What is counted while a command runs: its processes, the memory of all of them, and what it fills the disk with.

The kernel's own limits hold for one process or one file; these hold for the command as a whole.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from workers.workspace_names import MAX_DEPTH

from .sandbox import Limits

EVERY_S: Final = 0.05
MEMORY_EVERY: Final = 4
DISK_EVERY: Final = 10
# So much of the disk stays free, or half of what was free at the beginning where that is less.
DISK_FREE_BYTES: Final = 2**30
MEBIBYTE: Final = 2**20


async def too_much(pid: int, folder: int, limits: Limits) -> str:
    """Returns once the command of process `pid` has to be ended, and says why. `folder` is its workspace, open."""
    least_free = min(DISK_FREE_BYTES, _free_bytes(folder) // 2)
    for turn in range(1, 2**63):
        await asyncio.sleep(EVERY_S)
        # The kernel refuses more; this says so, and is a second line where it does not.
        running = descendants(pid, at_most=limits.processes + 3)
        if len(running) > limits.processes + 2:
            return f"it started more than {limits.processes} processes"
        if turn % MEMORY_EVERY == 0 and sum(map(_memory_bytes, running)) > limits.memory_in_all_bytes:
            return f"it took more than {limits.memory_in_all_bytes // MEBIBYTE:,} MiB of memory"
        if turn % DISK_EVERY == 0:
            if _free_bytes(folder) < least_free:
                return f"less than {least_free // MEBIBYTE:,} MiB of the disk were left"
            if await asyncio.to_thread(_overfull, folder, limits):
                files, mebibytes = limits.workspace_files, limits.workspace_bytes // MEBIBYTE
                return f"its workspace held more than {files:,} files or {mebibytes:,} MiB"
    raise AssertionError


def descendants(pid: int, *, at_most: int = 100_000) -> list[int]:
    """Process ids of children, and of theirs; of a thread's too."""
    found: list[int] = []
    queue = [pid]
    while queue and len(found) < at_most:
        children = _children(queue.pop())
        found += children
        queue += children
    return found


def _children(parent: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in Path(f"/proc/{parent}/task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    except OSError:
        # It has ended meanwhile.
        pass
    return children


def _memory_bytes(pid: int) -> int:
    """What is its own: pages of files and of libraries are shared and can be dropped."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def _free_bytes(folder: int) -> int:
    found = os.fstatvfs(folder)
    return found.f_bavail * found.f_frsize


def _overfull(folder: int, limits: Limits) -> bool:
    """Counted no further than the limit, and no deeper than a workspace may be: the free disk is looked at as well."""
    count = size_bytes = 0
    for path, folders, names, descriptor in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        count += len(folders) + len(names)
        if path.count("/") >= MAX_DEPTH:
            folders.clear()
        for name in names:
            size_bytes += _bytes_of(name, descriptor)
            if count > limits.workspace_files or size_bytes > limits.workspace_bytes:
                return True
        if count > limits.workspace_files:
            return True
    return False


def _bytes_of(name: str, folder: int) -> int:
    try:
        # Blocks, not length: a file with holes takes no more than it has.
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_blocks * 512
    except OSError:
        return 0
