"""Deletes a directory that a command may have filled: as deep as it likes, and with rights taken away.

Nothing is opened by a path: each name is relative to an open directory, and links are removed, never followed. What
lies deeper is first moved up, so that neither the stack nor the descriptors grow with the depth.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import Final

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(name: str, folder: int) -> None:
    """Delete the directory `name` of the open directory `folder`. Raises OSError, FileNotFoundError for one."""
    _open_up(name, folder)
    top = os.open(name, _DIRECTORY, dir_fd=folder)
    try:
        while entries := _names(top):
            for entry in entries:
                _remove(entry, top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=folder)


def _remove(entry: str, top: int) -> None:
    """A file goes; of a directory all files go, and its directories come up to `top`."""
    if not _is_directory(entry, top):
        os.unlink(entry, dir_fd=top)
        return
    _open_up(entry, top)
    below = os.open(entry, _DIRECTORY, dir_fd=top)
    try:
        for inner in _names(below):
            if _is_directory(inner, below):
                # Moving a directory changes it: to whom it belongs may have taken that right away.
                _open_up(inner, below)
                os.rename(inner, f".meah-{secrets.token_hex(8)}", src_dir_fd=below, dst_dir_fd=top)
            else:
                os.unlink(inner, dir_fd=below)
    finally:
        os.close(below)
    os.rmdir(entry, dir_fd=top)


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _is_directory(name: str, folder: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def _open_up(name: str, folder: int) -> None:
    """Let its owner in again: `chmod 0` is no way to stay, and neither are the read-only caches of build tools."""
    with contextlib.suppress(OSError, NotImplementedError):
        if sys.platform == "linux":
            # Through a descriptor of the name itself, since a name could have become a link meanwhile.
            only_named = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
            try:
                Path(f"/proc/self/fd/{only_named}").chmod(stat.S_IRWXU)
            finally:
                os.close(only_named)
        else:
            os.chmod(name, stat.S_IRWXU, dir_fd=folder, follow_symlinks=False)
