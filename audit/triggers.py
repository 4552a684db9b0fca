"""Database triggers that refuse changes of the chain.

A guard rail against accidents, no proof: who owns the database can switch them off, and a table rebuild on SQLite
drops them without a word. So they are looked for by a system check and by `doctor`, and put back after `migrate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connection as default_connection

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

REFUSAL = "the audit chain is append-only"

_SQLITE = {
    name: f"CREATE TRIGGER {name} BEFORE {when} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    for name, when in {
        "audit_entry_no_update": "UPDATE ON audit_entry",
        "audit_entry_no_delete": "DELETE ON audit_entry",
        "audit_head_no_delete": "DELETE ON audit_head",
        "audit_head_only_grows": (
            "UPDATE ON audit_head WHEN NEW.id <> OLD.id OR NEW.log <> OLD.log OR NEW.size <= OLD.size"
        ),
    }.items()
}

_POSTGRESQL_FUNCTION = (
    "CREATE OR REPLACE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$"
)
_POSTGRESQL = {
    name: f"CREATE TRIGGER {name} BEFORE {when} EXECUTE FUNCTION audit_refuse()"
    for name, when in {
        "audit_entry_no_change": "UPDATE OR DELETE ON audit_entry FOR EACH ROW",
        "audit_entry_no_truncate": "TRUNCATE ON audit_entry FOR EACH STATEMENT",
        "audit_head_no_delete": "DELETE ON audit_head FOR EACH ROW",
        "audit_head_no_truncate": "TRUNCATE ON audit_head FOR EACH STATEMENT",
        "audit_head_only_grows": (
            "UPDATE ON audit_head FOR EACH ROW"
            " WHEN (NEW.id <> OLD.id OR NEW.log <> OLD.log OR NEW.size <= OLD.size)"
        ),
    }.items()
}

# A trigger that is there but switched off (tgenabled D) does not guard, so it counts as missing.
_PRESENT = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": (
        "SELECT tgname FROM pg_trigger WHERE tgenabled <> 'D'"
        " AND tgrelid IN (to_regclass('audit_entry'), to_regclass('audit_head'))"
    ),
}


def _wanted(connection: BaseDatabaseWrapper) -> dict[str, str]:
    return {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}.get(connection.vendor, {})


def missing(connection: BaseDatabaseWrapper = default_connection) -> list[str]:  # type: ignore[assignment]
    """Names of the triggers that should guard the chain in this database and do not."""
    wanted = _wanted(connection)
    if not wanted:
        return [f"triggers for {connection.vendor}"]
    with connection.cursor() as cursor:
        cursor.execute(_PRESENT[connection.vendor])
        present = {row[0] for row in cursor.fetchall()}
    return [name for name in wanted if name not in present]


def install(connection: Any) -> list[str]:
    """Create the triggers that are missing; returns their names."""
    wanted = _wanted(connection)
    names = [name for name in missing(connection) if name in wanted]
    with connection.cursor() as cursor:
        if names and connection.vendor == "postgresql":
            cursor.execute(_POSTGRESQL_FUNCTION)
        for name in names:
            if connection.vendor == "postgresql":
                table = "audit_head" if name.startswith("audit_head") else "audit_entry"
                cursor.execute(f"DROP TRIGGER IF EXISTS {name} ON {table}")
            cursor.execute(wanted[name])
    return names
