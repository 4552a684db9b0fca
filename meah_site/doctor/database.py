"""The database: which one, whether it answers, how safely it writes, whether its schema is ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection

from core.redaction import redact
from core.text import one_line
from meah_site.doctor.findings import Finding, Group, examined, ok, problem, warning
from meah_site.schema import applied, known, needs_migration, schema_is_newer

SYNCHRONOUS: Final = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
MIGRATE: Final = "Run `manage.py migrate`, or start MEAH: `make run` and `manage.py runmcp` both migrate."


def examine() -> tuple[Group, bool]:
    """What there is to say, and whether the rest of the report can use the database."""
    state = {"usable": False}

    def reachable() -> Iterator[Finding]:
        if _is_missing():
            yield warning("database", f"there is none yet at {_where()}", MIGRATE)
            return
        try:
            shown = _first_answer()
        except DatabaseError as error:
            yield problem("database", f"{_where()} does not answer: {one_line(redact(str(error)), 200)}", _fix())
            return
        state["usable"] = True
        yield ok("database", f"{shown} at {_where()}")

    def rest() -> Iterator[Finding]:
        if not state["usable"]:
            return
        yield from _durability()
        yield from _schema()
        state["usable"] = not (needs_migration() or schema_is_newer())

    return examined("Database", ("database", reachable), ("database", rest)), state["usable"]


def _is_sqlite() -> bool:
    return connection.vendor == "sqlite"


def _is_missing() -> bool:
    """A look must not create the file."""
    name = str(connection.settings_dict["NAME"])
    return _is_sqlite() and not name.startswith("file:") and not Path(name).exists()


def _where() -> str:
    options: dict[str, Any] = connection.settings_dict
    if _is_sqlite():
        return str(options["NAME"])
    return f"{options['HOST'] or 'the local socket'}:{options['PORT'] or 5432}/{options['NAME']}"


def _fix() -> str:
    if _is_sqlite():
        return (
            f"Check that the disk is not full and that {settings.MEAH_HOME} can be written; if the file is damaged, "
            "put a backup in its place."
        )
    return "Check DATABASE_URL (host, port, user, password, name) and that the server runs."


def _first_answer() -> str:
    if not _is_sqlite():
        (server,) = _one("SHOW server_version")
        return f"PostgreSQL {str(server).split()[0]}"
    # Reads the file itself: connecting alone does not notice that it is no database.
    _one("SELECT count(*) FROM sqlite_master")
    return "SQLite"


def _durability() -> Iterator[Finding]:
    if not _is_sqlite():
        (mode,) = _one("SHOW synchronous_commit")
        if mode == "off":
            fix = "Switch it on for this database: an entry of the audit chain must not get lost after it was answered."
            yield warning("durability", "synchronous_commit is off", fix)
        else:
            yield ok("durability", f"synchronous_commit {mode}")
        return
    journal, level = str(_one("PRAGMA journal_mode")[0]), SYNCHRONOUS.get(int(_one("PRAGMA synchronous")[0]), "?")
    if journal != "wal":
        fix = "Put MEAH_HOME on a local disk: network file systems have no WAL."
        yield problem("durability", f"journal_mode is {journal}, not wal", fix)
    elif level not in ("FULL", "EXTRA"):
        fix = "Remove what changes the connection's init_command."
        yield problem("durability", f"synchronous is {level}: a power cut may lose entries", fix)
    else:
        yield ok("durability", f"WAL, synchronous={level}")


def _schema() -> Iterator[Finding]:
    wanted, there = known(), applied()
    if schema_is_newer():
        fix = "Update this checkout, or put back a backup that fits it."
        yield problem("schema", "another, newer version of MEAH has migrated this database", fix)
    elif missing := sorted(wanted - there):
        names = ", ".join(f"{app}.{name}" for app, name in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        text = "empty: nothing is migrated yet" if not there else f"not current: {names}{more} to be applied"
        yield warning("schema", text, MIGRATE)
    else:
        yield ok("schema", f"current, {len(there)} migrations")


def _one(statement: str) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row: tuple[Any, ...] = cursor.fetchone()
    return row
