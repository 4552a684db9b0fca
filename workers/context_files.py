"""Where context items stand in a workspace: `context/<name>`."""

from __future__ import annotations

from collections.abc import Sequence

from workers import workspace_names
from workers.prompt import ContextItem, named


def context_paths(items: Sequence[ContextItem]) -> list[tuple[str, ContextItem]]:
    """Each item with its path below the workspace; unnamed ones become `context-N.txt`.

    Raises MeahError: E_PATH_ESCAPE for a name that is no plain relative path, E_INVALID_REQUEST for two names that
    would meet on disk.
    """
    placed = named(items)
    return list(zip(workspace_names.context_paths([item.name for item in placed]), placed, strict=True))
