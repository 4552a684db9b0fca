"""Processes that run an engine: how one makes itself known, and how the others see that it has died.

On SQLite a process lives as long as it holds the flock of `$MEAH_HOME/run/<id>.lock`: the kernel lets go of it
whatever the ending. On PostgreSQL, where processes may be on other hosts, it lives as long as its heartbeat is fresh.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection, connections, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from approvals.models import Process, new_process_id
from core.bell import ring
from core.errors import MeahError
from core.locks import Held, hold, is_held
from core.logs import event
from core.secrets import secret_values

log = logging.getLogger("meah.processes")

HEARTBEAT_EVERY_S: Final = 2.0
DEAD_AFTER_S: Final = 8.0


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
        self._principal = ""
        self._published: list[str] = []
        self._lock: Held | None = None
        self._heart: threading.Thread | None = None
        self._left = threading.Event()

    def join(self) -> None:
        """Take the lock first, so that nobody sees the row without it; then the row, then the heartbeat.

        Raises MeahError E_CONFIG when the lock's file can not be made.
        """
        self._lock = self._locked()
        self._write_row()
        if connection.vendor == "postgresql":
            self._heart = threading.Thread(target=self._beat, name="meah-heartbeat", daemon=True)
            self._heart.start()

    def leave(self) -> None:
        """Say goodbye: the row goes, and whatever it still owns is settled by the others as of a dead process."""
        self._left.set()
        if self._heart is not None:
            self._heart.join(timeout=HEARTBEAT_EVERY_S)
        try:
            with transaction.atomic():
                Process.objects.filter(public_id=self.public_id).delete()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock_path.unlink(missing_ok=True)

    def update(self, *, principal: str = "") -> None:
        """Publish what may have changed: for whom it speaks, which key variables it has. Cheap when nothing has."""
        keys = sorted(secret_values())
        principal = principal or self._principal
        if (keys, principal) == (self._published, self._principal):
            return
        with transaction.atomic():
            Process.objects.filter(public_id=self.public_id).update(key_variables=keys, principal=principal)
        self._published, self._principal = keys, principal

    def _write_row(self) -> None:
        self._published = sorted(secret_values())
        with transaction.atomic():
            Process.objects.create(
                public_id=self.public_id,
                kind=self.kind,
                host=socket.gethostname(),
                pid=os.getpid(),
                principal=self._principal,
                version=self.version,
                key_variables=self._published,
            )

    def _locked(self) -> Held:
        try:
            held = hold(self._lock_path)
        except OSError as error:
            raise MeahError(
                "E_CONFIG",
                f"{error.filename or 'A file of MEAH_HOME'} can not be used: {error.strerror}.",
                hint="Make MEAH_HOME a directory that this user may write.",
            ) from error
        # The id is new: nobody else can have the lock.
        assert held is not None
        return held

    @property
    def _lock_path(self) -> Path:
        return lock_path(self.public_id)

    def _beat(self) -> None:
        """On a connection of its own: a busy database thread must not look like a death."""
        while not self._left.wait(HEARTBEAT_EVERY_S):
            try:
                self._beat_once()
            except DatabaseError as error:
                event(log, "heartbeat_missed", level="warn", exc_info=error)
                connections.close_all()
        connections.close_all()

    def _beat_once(self) -> None:
        """A process that slept too long was taken for dead, and its row removed: it joins again."""
        if not Process.objects.filter(public_id=self.public_id).update(heartbeat_at=Now()) and not self._left.is_set():
            self._write_row()


def lock_path(public_id: str) -> Path:
    return run_directory() / f"{public_id}.lock"


def is_alive(process: Process) -> bool:
    return bool(_alive(Process.objects.filter(pk=process.pk)))


def living() -> list[Process]:
    """The processes that are alive, the last one to start first."""
    return _alive(Process.objects.all())


def dead_among(public_ids: Iterable[str]) -> set[str]:
    """Which of these processes have died.

    Ask for the ids of owners found in rows: a process joins before it owns anything, so one that is not there
    now is gone. The other way round (rows not owned by a list of the living) would hit one that has just joined.
    """
    wanted = set(public_ids)
    return wanted - {process.public_id for process in _alive(Process.objects.filter(public_id__in=wanted))}


def forget_dead() -> None:
    """Remove the rows of dead processes, once what they owned is settled."""
    alive = {process.pk for process in living()}
    for process in Process.objects.exclude(pk__in=alive):
        # It may have joined after the first look, or have come back.
        if not is_alive(process):
            with transaction.atomic():
                process.delete()
            lock_path(process.public_id).unlink(missing_ok=True)


def _alive(processes: QuerySet[Process]) -> list[Process]:
    if connection.vendor == "postgresql":
        # By the database's clock, which is the one that wrote the heartbeats.
        return list(processes.filter(heartbeat_at__gt=Now() - timedelta(seconds=DEAD_AFTER_S)))
    return [process for process in processes if is_held(lock_path(process.public_id))]
