"""The system check of the chain's triggers.

It asks the database, so it runs with `check --database` and `migrate` only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core import checks
from django.db import Error as DatabaseError
from django.db import connections

from audit import triggers


@checks.register(checks.Tags.database)
def check_triggers(databases: Sequence[str] | None = None, **_options: Any) -> list[checks.CheckMessage]:
    return [warning for alias in databases or () for warning in _missing_on(alias)]


def _missing_on(alias: str) -> list[checks.CheckMessage]:
    try:
        names = triggers.missing(connections[alias])
    except DatabaseError:
        # Whoever needs the database says that it does not answer.
        return []
    if not names:
        return []
    return [
        checks.Warning(
            f"The audit chain is not guarded: missing {', '.join(names)}.",
            hint="Run `manage.py migrate`: it puts the triggers back.",
            id="audit.W001",
        )
    ]
