"""Database triggers that refuse changes of the chain.

A guard rail against accidents, no proof: who owns the database can switch them off, and a table rebuild on SQLite
drops them without a word. So a system check and `doctor` look for them, and `migrate` puts them back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from django.db import connections

from core.logs import event

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

log = logging.getLogger("meah.audit")

REFUSAL: Final = "the audit chain is append-only"
_TABLES: Final = ("audit_entry", "audit_head")
_HEAD_MOVES_BACK: Final = "NEW.id <> OLD.id OR NEW.log <> OLD.log OR NEW.size <= OLD.size"

_SQLITE: Final = {
    name: f"CREATE TRIGGER {name} BEFORE {when} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    for name, when in {
        "audit_entry_no_update": "UPDATE ON audit_entry",
        "audit_entry_no_delete": "DELETE ON audit_entry",
        "audit_head_no_delete": "DELETE ON audit_head",
        "audit_head_only_grows": f"UPDATE ON audit_head WHEN {_HEAD_MOVES_BACK}",
    }.items()
}

_FUNCTION: Final = (
    "CREATE OR REPLACE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$"
)
_POSTGRESQL: Final = {
    name: f"CREATE OR REPLACE TRIGGER {name} BEFORE {when} EXECUTE FUNCTION audit_refuse()"
    for name, when in {
        "audit_entry_no_change": "UPDATE OR DELETE ON audit_entry FOR EACH ROW",
        "audit_entry_no_truncate": "TRUNCATE ON audit_entry FOR EACH STATEMENT",
        "audit_head_no_delete": "DELETE ON audit_head FOR EACH ROW",
        "audit_head_no_truncate": "TRUNCATE ON audit_head FOR EACH STATEMENT",
        "audit_head_only_grows": f"UPDATE ON audit_head FOR EACH ROW WHEN ({_HEAD_MOVES_BACK})",
    }.items()
}
_WANTED: Final = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}

# A trigger that is there but switched off (tgenabled D) guards nothing.
_PRESENT: Final = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": (
        "SELECT tgname FROM pg_trigger WHERE tgenabled <> 'D'"
        " AND tgrelid IN (to_regclass('audit_entry'), to_regclass('audit_head'))"
    ),
}


def triggers_present() -> bool:
    """Whether every trigger that guards the chain is in the database; False before the first `migrate` too."""
    connection = connections["default"]
    return _has_tables(connection) and not missing(connection)


def missing(connection: BaseDatabaseWrapper) -> list[str]:
    """Names of the triggers that should guard the chain in this database and do not; none while it has no chain."""
    if not _has_tables(connection):
        return []
    with connection.cursor() as cursor:
        cursor.execute(_PRESENT[connection.vendor])
        present = {row[0] for row in cursor.fetchall()}
    return [name for name in _WANTED[connection.vendor] if name not in present]


def _has_tables(connection: BaseDatabaseWrapper) -> bool:
    return set(_TABLES) <= set(connection.introspection.table_names())


def install(connection: BaseDatabaseWrapper) -> list[str]:
    """Create the triggers that are missing; returns their names."""
    names = missing(connection)
    with connection.cursor() as cursor:
        if names and connection.vendor == "postgresql":
            cursor.execute(_FUNCTION)
        for name in names:
            cursor.execute(_WANTED[connection.vendor][name])
    return names


def restore(using: str, **_signal: Any) -> None:
    """After `migrate`: put back what a table rebuild has dropped, and say so."""
    if names := install(connections[using]):
        event(log, "audit_triggers_restored", level="warn", names=names)
