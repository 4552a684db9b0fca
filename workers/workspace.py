"""One directory per worker. Every path is walked from an open directory, so no name and no link leads out.

Nothing here ever opens a path by its text: each component is opened relative to the one before it, without
following links, and a file counts only when it is a regular one with a single link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from core.errors import MeahError
from core.ids import WORKER, is_id
from workers.workspace_names import MAX_DEPTH, check_path, collision, escape, folded, shown
from workers.workspace_removal import remove_tree

RESULT_NAME: Final = "result.md"

MAX_READ_BYTES: Final = 16 * 1024 * 1024

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK a FIFO put in a file's place would hold the reader for ever.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Size:
    files: int
    size_bytes: int


@dataclass(frozen=True)
class WorkspaceInfo:
    worker_id: str
    files: int
    size_bytes: int


class Workspace:
    """The directory of one worker under the workspace root. Directories are 0700, files 0600.

    Every method raises MeahError: E_PATH_ESCAPE where a path, a link or a special file leads astray,
    E_NOT_FOUND where nothing is there, E_UNAVAILABLE where the disk refuses.
    """

    def __init__(self, root: Path, worker_id: str) -> None:
        if not is_id(WORKER, worker_id):
            raise escape(worker_id, "is no worker's id", "worker_id")
        self.root = root
        self.worker_id = worker_id

    @property
    def path(self) -> Path:
        """For people to read; nothing is opened by it."""
        return self.root / self.worker_id

    def create(self) -> None:
        """Make the directory; one that is already there stays as it is."""
        with _told(self.worker_id):
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _root(self.root) as root, _told(self.worker_id):
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.worker_id, 0o700, dir_fd=root)
            with _into(root, (self.worker_id,)):
                pass

    def exists(self) -> bool:
        """Whether it is there. A link in its place counts as there, so that it is looked at, not skipped."""
        with contextlib.suppress(OSError):
            (self.root / self.worker_id).lstat()
            return True
        return False

    def write(self, relative: str, data: str | bytes) -> None:
        """Write a whole file, replacing one of that name; its directories are made. Others see old or new."""
        *folders, name = check_path(relative)
        content = data.encode(errors="replace") if isinstance(data, str) else data
        with self._opened(relative, folders, make=True) as folder:
            _refuse_twin(folder, name, relative)
            _refuse_special(folder, name, relative)
            _replace(folder, name, content)

    def read(self, relative: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """A file's content. A file over `max_bytes` is refused with E_INVALID_REQUEST."""
        *folders, name = check_path(relative)
        with self._opened(relative, folders) as folder, _closing(os.open(name, _READ, dir_fd=folder)) as fd:
            found = os.fstat(fd)
            _require_plain(found, relative)
            if found.st_size > max_bytes:
                raise MeahError("E_INVALID_REQUEST", f"{shown(relative)} has more than {max_bytes} bytes.")
            with os.fdopen(fd, "rb", closefd=False) as file:
                return file.read(max_bytes)

    def size(self) -> Size:
        """Number and bytes of its files; links are neither followed nor counted."""
        with self._opened("", ()) as folder:
            return _measure(folder)

    def remove(self) -> bool:
        """Delete it with everything in it. False when it was not there."""
        return remove(self.root, self.worker_id)

    @contextlib.contextmanager
    def _opened(self, relative: str, folders: Sequence[str], *, make: bool = False) -> Iterator[int]:
        """A descriptor of a directory inside, reached component by component."""
        with (
            _root(self.root) as root,
            _told(relative or self.worker_id),
            _into(root, (self.worker_id,)) as own,
            _into(own, folders, make=make) as folder,
        ):
            yield folder


def all_workspaces(root: Path) -> list[WorkspaceInfo]:
    """Every worker's directory under the root with its size, sorted by id; other things are left out."""
    if not root.is_dir():
        return []
    with _root(root) as descriptor:
        names = sorted(entry.name for entry in os.scandir(descriptor) if _is_workspace(entry))
    return [
        WorkspaceInfo(name, size.files, size.size_bytes)
        for name in names
        if (size := _size_of(Workspace(root, name))) is not None
    ]


def remove(root: Path, worker_id: str) -> bool:
    """Delete one worker's directory. False when it was not there; a link in its place is refused."""
    name = Workspace(root, worker_id).worker_id
    if not root.is_dir():
        return False
    with _root(root) as descriptor, _told(name):
        try:
            with _into(descriptor, (name,)):
                pass
            remove_tree(name, descriptor)
        except FileNotFoundError:
            return False
    return True


def _size_of(workspace: Workspace) -> Size | None:
    """Its size, or None when it went away or lost its rights in the meantime."""
    try:
        return workspace.size()
    except MeahError:
        return None


def _is_workspace(entry: os.DirEntry[str]) -> bool:
    return is_id(WORKER, entry.name) and entry.is_dir(follow_symlinks=False)


@contextlib.contextmanager
def _root(root: Path) -> Iterator[int]:
    """The root's descriptor. The operator chose this path, so it alone may lead over links."""
    with _told(root.name):
        opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with _closing(opened) as descriptor:
        yield descriptor


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _into(start: int, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """Walk down from an open directory, one component at a time, following no link."""
    descriptor = os.dup(start)
    try:
        for part in parts:
            if make:
                _make(descriptor, part)
            below = os.open(part, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _make(folder: int, name: str) -> None:
    with contextlib.suppress(FileExistsError):
        _refuse_twin(folder, name, name)
        os.mkdir(name, 0o700, dir_fd=folder)


def _replace(folder: int, name: str, content: bytes) -> None:
    draft = f".meah-{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(draft, _CREATE, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise


def _refuse_twin(folder: int, name: str, relative: str) -> None:
    """Where a file system ignores case or composition, a second spelling would be the first one's file."""
    wanted = folded(name)
    for other in os.listdir(folder):
        if other != name and folded(other) == wanted:
            raise collision(relative, other)


def _refuse_special(folder: int, name: str, relative: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        _require_plain(os.stat(name, dir_fd=folder, follow_symlinks=False), relative)


def _require_plain(found: os.stat_result, relative: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise escape(relative, "is no regular file", "not_regular")
    if found.st_nlink != 1:
        raise escape(relative, "has more than one link", "hard_link")


def _measure(folder: int) -> Size:
    files = size_bytes = 0
    for path, folders, names, descriptor in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        if path.count("/") >= MAX_DEPTH:
            folders.clear()
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                files += stat.S_ISREG(found.st_mode)
                size_bytes += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return Size(files, size_bytes)


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Turn what the system says about a path into an error for people, without paths of this machine."""
    try:
        yield
    except OSError as error:
        raise _system_error(path, error) from None


def _system_error(path: str, error: OSError) -> MeahError:
    if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EMLINK}:
        return escape(path, "meets a link, a special file or a file in a directory's place", "link")
    if error.errno == errno.ENOENT:
        return MeahError("E_NOT_FOUND", f"There is no {shown(path)} in the workspace.")
    return MeahError(
        "E_UNAVAILABLE",
        f"The workspace could not be used at {shown(path)}: {os.strerror(error.errno or errno.EIO)}.",
        hint="Check the rights and the free space of workspaceRoot; `manage.py doctor` shows where it is.",
        reason="workspace",
    )
