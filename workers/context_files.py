"""Where context items stand in a workspace: `context/<name>`."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import MeahError
from workers.prompt import ContextItem, named
from workers.workspace_names import check_path, folded, shown


def context_paths(items: Sequence[ContextItem]) -> list[tuple[str, ContextItem]]:
    """Each item with its path below the workspace; unnamed ones become `context-N.txt`.

    Raises MeahError: E_PATH_ESCAPE for a name that is no plain relative path, E_INVALID_REQUEST for one used twice.
    """
    seen: set[str] = set()
    placed = []
    for item in named(items):
        path = f"context/{item.name}"
        check_path(path)
        if folded(path) in seen:
            raise MeahError(
                "E_INVALID_REQUEST",
                f"Two context items are named {shown(item.name)}.",
                hint="Give each context item a name of its own.",
            )
        seen.add(folded(path))
        placed.append((path, item))
    return placed
