"""Django's SQLite backend, with a fair queue of writers.

SQLite's busy handler sleeps and tries again, so a writer can starve under a few busy ones. Here each outermost
transaction (all of them are IMMEDIATE, so all of them write) first takes an flock on `<database>.lock`, which the
kernel hands out fairly.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

from django.db import OperationalError
from django.db.backends.sqlite3 import base


class DatabaseWrapper(base.DatabaseWrapper):
    """One connection; the lock's file is opened at its first transaction and closed with it."""

    _lock_fd: int | None = None

    def _start_transaction_under_autocommit(self) -> None:
        self._take_turn()
        try:
            super()._start_transaction_under_autocommit()  # type: ignore[misc]
        except BaseException:
            self._end_turn()
            raise

    def _commit(self) -> None:
        try:
            super()._commit()  # type: ignore[misc]
        finally:
            self._end_turn()

    def _rollback(self) -> None:
        try:
            super()._rollback()  # type: ignore[misc]
        finally:
            self._end_turn()

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]
        finally:
            if self._lock_fd is not None:
                os.close(self._lock_fd)
                self._lock_fd = None

    def _take_turn(self) -> None:
        if self._lock_fd is None:
            self._lock_fd = self._open_lock()
        if self._lock_fd is not None:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX)

    def _end_turn(self) -> None:
        if self._lock_fd is not None:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def _open_lock(self) -> int | None:
        name: Any = self.settings_dict["NAME"]
        if self.is_in_memory_db():
            return None
        path = Path(name).with_suffix(".lock")
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OperationalError(f"{path} can not be opened: {error.strerror}") from error
