"""A file that is there whole or not at all, and that only its owner can read."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from core.errors import MeahError


@contextlib.contextmanager
def new_file(path: Path, *, replace: bool) -> Iterator[IO[bytes]]:
    """Write a file (mode 0600) that appears under its name only when the block ends well.

    Raises MeahError E_INVALID_REQUEST when there is such a file and it is not to be replaced, or when it can not
    be written.
    """
    if not replace and os.path.lexists(path):
        raise _exists(path)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with _create(draft) as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        _publish(draft, path, replace=replace)
    except OSError as error:
        raise MeahError("E_INVALID_REQUEST", f"{path} can not be written: {error.strerror}.") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _create(draft: Path) -> IO[bytes]:
    return os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _publish(draft: Path, path: Path, *, replace: bool) -> None:
    if replace:
        draft.replace(path)
        return
    try:
        # A link, unlike a rename, fails when somebody made the file meanwhile.
        path.hardlink_to(draft)
    except FileExistsError:
        raise _exists(path) from None


def _exists(path: Path) -> MeahError:
    return MeahError(
        "E_INVALID_REQUEST", f"{path} is already there.", hint="Choose another name, or replace it with --force."
    )
