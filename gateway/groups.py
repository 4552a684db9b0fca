"""Process groups of children: who belongs to one, how it is ended, and how a dead MEAH's are found and ended.

Each child leads a session of its own. What it starts stays in that session, unless it leaves it on purpose; on Linux
those are found by a marker that every child inherits in its environment.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from core.errors import MeahError
from core.locks import Held, hold
from core.logs import event

log = logging.getLogger("meah.gateway")

# Not a setting: MEAH sets it for its children, and reads it to know them again.
MARKER: Final = "_MEAH_CHILD"
TERM_TO_KILL_S: Final = 2.0
_PREFIX: Final = "children-"
_LINUX: Final = sys.platform == "linux"


@dataclass(frozen=True)
class Group:
    """A child that leads its own session: `started` tells it from a later process with the same number."""

    pgid: int
    started: str
    server: str
    mark: str


@dataclass(frozen=True)
class _Process:
    pid: int
    pgid: int
    session: int
    state: str
    started: str


def home_mark(home: Path) -> str:
    return hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]


def refuse_loop(home: Path, environ: Mapping[str, str] | None = None) -> None:
    """Raise MeahError E_CONFIG when this process is, through whatever commands, a child of MEAH with the same home."""
    marker = (os.environ if environ is None else environ).get(MARKER, "")
    if marker.partition("-")[0] == home_mark(home):
        raise MeahError(
            "E_CONFIG",
            "This MEAH was started as a downstream server of itself.",
            hint="Remove the server whose command leads to `manage.py runmcp` from the gateway's configuration.",
            reason="loop",
        )


class Ledger:
    """The groups of this process, in a file whose lock is held as long as the process lives."""

    def __init__(self, directory: Path, home: Path) -> None:
        self.marker = f"{home_mark(home)}-{secrets.token_hex(8)}"
        self._path = directory / f"{_PREFIX}{self.marker}.json"
        self._lock_path = self._path.with_suffix(".lock")
        self._lock: Held | None = None
        self._groups: dict[int, Group] = {}
        self._children = 0

    def open(self) -> None:
        """Before the first child: the marker alone is enough to find one that was not written down any more."""
        self._lock = hold(self._lock_path)
        self._write()

    def next_mark(self) -> str:
        """What the next child carries in its environment, and whatever it starts with it."""
        self._children += 1
        return f"{self.marker}.{self._children}"

    def add(self, pid: int, server: str, mark: str) -> Group:
        found = _one(pid)
        group = Group(pid, found.started if found else "", server, mark)
        self._groups[pid] = group
        self._write()
        return group

    def remove(self, group: Group) -> None:
        if self._groups.pop(group.pgid, None) is not None:
            self._write()

    def close(self) -> None:
        """When all children have ended."""
        if self._lock is None:
            return
        self._path.unlink(missing_ok=True)
        self._lock_path.unlink(missing_ok=True)
        self._lock.release()
        self._lock = None

    def _write(self) -> None:
        draft = self._path.with_suffix(".draft")
        text = json.dumps({"marker": self.marker, "groups": [asdict(group) for group in self._groups.values()]})
        draft.touch(mode=0o600)
        draft.write_text(text)
        draft.replace(self._path)


def members(group: Group) -> list[int]:
    """Living processes of the group and its session, and on Linux those that left it but carry its mark."""
    return [process.pid for process in _processes() if process.state != "Z" and _belongs(process, group)]


def _belongs(process: _Process, group: Group) -> bool:
    return group.pgid in (process.pgid, process.session) or _carries(process.pid, f"{group.mark}\0")


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_groups_of_the_dead(directory: Path) -> int:
    """End what MEAH processes have left behind that could not do it themselves. Returns how many processes it was.

    Blocks for at most about two seconds, and only where there is something to end.
    """
    ended = 0
    for path in sorted(directory.glob(f"{_PREFIX}*.json")):
        lock = hold(path.with_suffix(".lock"))
        if lock is None:
            continue
        with lock:
            ended += _end_recorded(path)
            path.unlink(missing_ok=True)
            path.with_suffix(".draft").unlink(missing_ok=True)
            path.with_suffix(".lock").unlink(missing_ok=True)
    return ended


def _end_recorded(path: Path) -> int:
    try:
        record = json.loads(path.read_text())
        marker, groups = str(record["marker"]), [Group(**group) for group in record["groups"]]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    left = _left_behind(marker, groups)
    if not left:
        return 0
    event(log, "orphans_ended", level="warn", processes=len(left), servers=sorted({group.server for group in groups}))
    send(left, signal.SIGTERM)
    deadline = time.monotonic() + TERM_TO_KILL_S
    while _left_behind(marker, groups) and time.monotonic() < deadline:
        time.sleep(0.05)
    send(_left_behind(marker, groups), signal.SIGKILL)
    return len(left)


def _left_behind(marker: str, groups: list[Group]) -> list[int]:
    """A number may have been given to a stranger meanwhile: a group counts when something proves that it is ours."""
    living = [process for process in _processes() if process.state != "Z"]
    marked = {process.pid for process in living if marker and _carries(process.pid, f"{marker}.")}
    found = set(marked)
    for group in groups:
        inside = [process for process in living if group.pgid in (process.pgid, process.session)]
        if _is_ours(group, inside, marked):
            found.update(process.pid for process in inside)
    found.discard(os.getpid())
    return sorted(found)


def _is_ours(group: Group, inside: list[_Process], marked: set[int]) -> bool:
    leader = next((process for process in inside if process.pid == group.pgid), None)
    if leader is not None:
        return bool(group.started) and leader.started == group.started
    return not _LINUX or any(process.pid in marked for process in inside)


def _processes() -> Iterator[_Process]:
    if not _LINUX:
        yield from _processes_by_ps()
        return
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (process := _one(int(entry.name))):
            yield process


def _one(pid: int) -> _Process | None:
    if not _LINUX:
        return next((process for process in _processes_by_ps() if process.pid == pid), None)
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return _Process(pid, int(fields[2]), int(fields[3]), fields[0].decode(), fields[19].decode())


def _processes_by_ps() -> Iterator[_Process]:
    listing = subprocess.run(
        ["ps", "-axo", "pid=,pgid=,stat=,lstart="], capture_output=True, text=True, check=False
    ).stdout
    for line in listing.splitlines():
        pid, pgid, state, started = line.split(None, 3)
        yield _Process(int(pid), int(pgid), int(pgid), state[:1], started.strip())


def _carries(pid: int, mark: str) -> bool:
    if not _LINUX:
        return False
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"\0{MARKER}={mark}".encode() in b"\0" + environ + b"\0"
