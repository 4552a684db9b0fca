"""File locks that the kernel gives back when their process dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

_MODE = 0o600


class Held:
    """A lock that this process holds until `release`, or until it ends. Usable in a `with`."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.path = path
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; calling it again does nothing.

        The file stays: were it removed, one process could lock the old file that it has open already while another
        creates and locks a new one of the same name, and both would hold "the" lock.
        """
        if self._descriptor < 0:
            return
        # Unlocked before it is closed: a child that is just being started shares the lock until its exec.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def hold(path: Path) -> Held | None:
    """The lock on that file (created with mode 0600), or None when somebody holds it, this process included.

    OSError when the file cannot be opened. The descriptor is not inherited by programs that this process starts.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return Held(descriptor, path)


def is_held(path: Path) -> bool:
    """Whether any process, this one included, holds the lock; a file that is not there is not held."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # A shared lock: two who ask at once do not take each other for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
