"""Whether the database's schema is ours, older or newer: by names of migrations, without loading any of them."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import connection

from core.errors import MeahError

APPS: Final = {
    "audit": "audit",
    "approvals": "approvals",
    "gateway": "gateway",
    "workers": "workers",
    "auth": "django.contrib.auth",
    "contenttypes": "django.contrib.contenttypes",
    "sessions": "django.contrib.sessions",
    "admin": "django.contrib.admin",
}
OURS: Final = ("audit", "approvals", "gateway", "workers")
TABLE: Final = "django_migrations"


@cache
def known() -> frozenset[tuple[str, str]]:
    """The migrations of the code that runs, as (app, name): read once, for the checkout may be updated meanwhile."""
    return frozenset((label, name) for label, package in APPS.items() for name in _names(package))


def applied() -> set[tuple[str, str]]:
    """The migrations that the database has; none where it is empty."""
    with connection.cursor() as cursor:
        if TABLE not in connection.introspection.table_names(cursor):
            return set()
        cursor.execute(f"SELECT app, name FROM {TABLE}")  # noqa: S608 - a constant
        return {(app, name) for app, name in cursor.fetchall() if app in APPS}


def needs_migration() -> bool:
    return bool(known() - applied())


def schema_is_newer() -> bool:
    """Whether another version of MEAH has migrated the database past this one."""
    return any(app in OURS for app, _ in applied() - known())


def refuse_newer() -> None:
    """Raises MeahError E_CONFIG when the database belongs to a later version of MEAH."""
    if schema_is_newer():
        raise MeahError(
            "E_CONFIG",
            "The database was migrated by a newer version of MEAH.",
            hint="Start that version, or update this checkout; MEAH_HOME and DATABASE_URL say which database it is.",
            reason="schema_is_newer",
        )


@contextlib.contextmanager
def migration_turn() -> Iterator[None]:
    """One process of this MEAH_HOME migrates at a time; the others wait, and find it done."""
    with (Path(settings.MEAH_HOME) / "migrate.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _names(package: str) -> list[str]:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(next(iter(spec.submodule_search_locations))) / "migrations"
    return [path.stem for path in folder.glob("[0-9]*.py")]
