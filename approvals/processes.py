"""Processes that run an engine: how one makes itself known, and how the others see that it has died.

On SQLite a process lives as long as it holds the flock of `$MEAH_HOME/run/<id>.lock`: the kernel lets go of it
whatever the ending. On PostgreSQL, where processes may be on other hosts, it lives as long as its heartbeat is fresh.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.db import connection, connections, transaction
from django.db.models.functions import Now
from django.utils import timezone

from core.bell import ring
from core.locks import Held, hold, is_held
from core.secrets import secret_values

from .models import Process, new_process_id

HEARTBEAT_EVERY_S = 2.0
DEAD_AFTER_S = 8.0


def run_directory() -> Path:
    path = Path(settings.MEAH_HOME) / "run"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def ring_after_commit() -> None:
    """Wake every engine and console once the transaction is there to be read."""
    transaction.on_commit(lambda: ring(Path(settings.MEAH_HOME)))


class Membership:
    """This process's row, lock and heartbeat, from `join` to `leave`."""

    def __init__(self, kind: Process.Kind, *, version: str) -> None:
        self.kind = kind
        self.version = version
        self.public_id = new_process_id()
        self._lock: Held | None = None
        self._heart: threading.Thread | None = None
        self._stopped = threading.Event()

    def join(self) -> None:
        """Take the lock first, so that nobody sees the row without it; then the row, then the heartbeat."""
        self._lock = hold(self._lock_path)
        Process.objects.create(
            public_id=self.public_id,
            kind=self.kind,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self.version,
            key_variables=sorted(secret_values()),
        )
        if connection.vendor == "postgresql":
            self._heart = threading.Thread(target=self._beat, name="meah-heartbeat", daemon=True)
            self._heart.start()

    def leave(self) -> None:
        """Say goodbye: the row goes, and whatever it still owns is settled by the others as of a dead process."""
        self._stopped.set()
        Process.objects.filter(public_id=self.public_id).delete()
        if self._lock is not None:
            self._lock.release()
            self._lock_path.unlink(missing_ok=True)

    def update(self, *, principal: str = "") -> None:
        """Publish what may have changed: for whom it speaks, which key variables it has."""
        changed: dict[str, object] = {"key_variables": sorted(secret_values())}
        if principal:
            changed["principal"] = principal
        Process.objects.filter(public_id=self.public_id).update(**changed)

    @property
    def _lock_path(self) -> Path:
        return lock_path(self.public_id)

    def _beat(self) -> None:
        """On a connection of its own: a busy database thread must not look like a death."""
        while not self._stopped.wait(HEARTBEAT_EVERY_S):
            try:
                Process.objects.filter(public_id=self.public_id).update(heartbeat_at=Now())
            except Exception:
                connections.close_all()
        connections.close_all()


def lock_path(public_id: str) -> Path:
    return run_directory() / f"{public_id}.lock"


def is_alive(process: Process) -> bool:
    if connection.vendor == "postgresql":
        return timezone.now() - process.heartbeat_at < timedelta(seconds=DEAD_AFTER_S)
    return is_held(lock_path(process.public_id))


def living() -> list[Process]:
    return [process for process in Process.objects.all() if is_alive(process)]


def dead_among(public_ids: Iterable[str]) -> set[str]:
    """Which of these processes have died.

    Ask for the ids of owners found in rows: a process joins before it owns anything, so one that is not there
    now is gone. The other way round (rows not owned by a list of the living) would hit one that has just joined.
    """
    wanted = set(public_ids)
    alive = {process.public_id for process in Process.objects.filter(public_id__in=wanted) if is_alive(process)}
    return wanted - alive


def forget_dead() -> None:
    """Remove the rows of dead processes, once what they owned is settled."""
    for process in Process.objects.all():
        if not is_alive(process):
            process.delete()
            lock_path(process.public_id).unlink(missing_ok=True)
