"""Whether the database's schema is ours, older or newer: by names of migrations, without loading any of them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from django.db import connection
from django.db.utils import DatabaseError

APPS = {
    "audit": "audit",
    "approvals": "approvals",
    "workers": "workers",
    "auth": "django.contrib.auth",
    "contenttypes": "django.contrib.contenttypes",
    "sessions": "django.contrib.sessions",
    "admin": "django.contrib.admin",
}
OURS = ("audit", "approvals", "workers")


def known() -> set[tuple[str, str]]:
    """The migrations of this checkout, as (app, name)."""
    return {(label, name) for label, package in APPS.items() for name in _names(package)}


def applied() -> set[tuple[str, str]]:
    """The migrations that the database has; none where it is empty."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT app, name FROM django_migrations")
            return {(app, name) for app, name in cursor.fetchall() if app in APPS}
    except DatabaseError:
        connection.close()
        return set()


def needs_migration() -> bool:
    return bool(known() - applied())


def schema_is_newer() -> bool:
    """Whether another version of MEAH has migrated the database past this one."""
    return any(app in OURS for app, _ in applied() - known())


def _names(package: str) -> list[str]:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(next(iter(spec.submodule_search_locations))) / "migrations"
    return [path.stem for path in folder.glob("[0-9]*.py")]
