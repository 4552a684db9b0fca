"""The bell: a Unix datagram that says "there is something new", to every MEAH process of one home at once.

It carries nothing and promises nothing. Who hears it looks into the database; who misses it looks once a second.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
import stat
from pathlib import Path
from typing import Final

MAX_PATH_BYTES: Final = 100  # the kernel's limit is 108 on Linux and 104 on macOS, with the zero at the end
_SUFFIX: Final = ".sock"
_GONE: Final = frozenset({errno.ECONNREFUSED, errno.ENOENT})


def socket_path(home: Path, process_id: str) -> Path:
    """Where the process with this id listens: below the home, or below /tmp where that path would be too long."""
    near = _near(home) / f"{process_id}{_SUFFIX}"
    if len(os.fsencode(near)) <= MAX_PATH_BYTES:
        return near
    return _far(home) / f"{process_id}{_SUFFIX}"


def ring(home: Path) -> None:
    """Ring every process of the home. Never blocks, never raises; sockets of dead processes are removed."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        for directory in (_near(home), _far(home)):
            _ring_all(sender, directory)


class Bell:
    """The receiving end: one socket of this process, to be watched by its `fileno`."""

    def __init__(self, home: Path, process_id: str) -> None:
        self.path = socket_path(home, process_id)
        self._home = home
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Bind the socket (mode 0600, in a directory of mode 0700); OSError when it cannot be bound."""
        _private_directory(self.path.parent)
        self.path.unlink(missing_ok=True)
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            receiver.setblocking(False)
            # The directory keeps others out until the mode is set.
            receiver.bind(os.fspath(self.path))
            self.path.chmod(0o600)
        except BaseException:
            receiver.close()
            raise
        self._socket = receiver

    def fileno(self) -> int:
        """The descriptor that becomes readable when the bell rings, -1 when it is not open."""
        return -1 if self._socket is None else self._socket.fileno()

    def drain(self) -> bool:
        """Take all rings that wait; True when there was one."""
        rung = False
        while self._socket is not None:
            try:
                self._socket.recv(16)
            except BlockingIOError:
                break
            rung = True
        return rung

    def close(self) -> None:
        """Close and remove the socket; calling it again does nothing."""
        if self._socket is None:
            return
        self._socket.close()
        self._socket = None
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def _near(home: Path) -> Path:
    return home.absolute() / "run"


def _far(home: Path) -> Path:
    name = hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:12]
    return Path("/tmp") / f"meah-{os.getuid()}-{name}"  # noqa: S108  # 0700 and owner are checked when it is made


def _ring_all(sender: socket.socket, directory: Path) -> None:
    try:
        paths = [path for path in directory.iterdir() if path.suffix == _SUFFIX]
    except OSError:
        return
    for path in paths:
        _ring_one(sender, path)


def _ring_one(sender: socket.socket, path: Path) -> None:
    try:
        sender.sendto(b"", os.fspath(path))
    except OSError as error:
        # A full buffer (EAGAIN, ENOBUFS) means that a ring waits there already.
        if error.errno in _GONE:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _private_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to somebody else")
    if stat.S_IMODE(found.st_mode) != 0o700:
        directory.chmod(0o700)
