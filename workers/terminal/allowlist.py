"""What stands on the allowlist has to be there, and out of reach of what workers write."""

from __future__ import annotations

import os
from pathlib import Path

from core.errors import MeahError
from core.text import one_line


def require_usable(executable: str, *, workspaces: Path) -> None:
    """Raises MeahError E_CONFIG where it can not be run, or lies below `workspaces`, wherever links lead."""
    path = Path(executable).resolve()
    if path.is_relative_to(workspaces.resolve()):
        raise _wrong(f"{one_line(executable, 200)} lies within the workspaces: a worker could have written it")
    if not path.is_file() or not os.access(path, os.X_OK):
        raise _wrong(f"{one_line(executable, 200)} is not there or can not be executed")


def _wrong(what: str) -> MeahError:
    return MeahError(
        "E_CONFIG",
        f"The allowlist of commands does not hold: {what}.",
        hint="Correct terminal.allowlist: absolute paths of executables outside of workspaceRoot.",
        reason="allowlist",
    )
