"""The database's own guards, and that their absence is noticed."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import checks
from django.core.management import call_command
from django.db import Error as DatabaseError
from django.db import connection, transaction

from audit import services, triggers
from tests.audit.histories import drop_triggers, record_history, sql

pytestmark = pytest.mark.django_db

STATEMENTS = [
    "UPDATE audit_entry SET kind = 'x' WHERE seq = 0",
    "DELETE FROM audit_entry WHERE seq = 0",
    "UPDATE audit_head SET size = size",
    "UPDATE audit_head SET size = 0",
    "UPDATE audit_head SET size = size + 1, log = 'x'",
    "DELETE FROM audit_head",
    "INSERT INTO audit_head (id, log, size, last_hash) VALUES (2, 'x', 0, 'x')",
]
if connection.vendor == "postgresql":
    STATEMENTS += ["TRUNCATE audit_entry", "TRUNCATE audit_head"]


def warnings() -> list[str]:
    return [str(found.id) for found in checks.run_checks(tags=[checks.Tags.database], databases=["default"])]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_database_refuses_to_change_the_chain(statement: str) -> None:
    record_history(2)
    with pytest.raises(DatabaseError), transaction.atomic():
        sql(statement)
    assert services.verify().whole


def test_missing_triggers_are_noticed() -> None:
    assert triggers.triggers_present()
    assert "audit.W001" not in warnings()
    drop_triggers()
    assert not triggers.triggers_present()
    assert "audit.W001" in warnings()


def test_one_missing_trigger_is_named() -> None:
    on = " ON audit_head" if connection.vendor == "postgresql" else ""
    sql(f"DROP TRIGGER audit_head_only_grows{on}")
    assert triggers.missing(connection) == ["audit_head_only_grows"]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite's triggers can not be switched off")
def test_a_trigger_that_is_switched_off_counts_as_missing() -> None:
    sql("ALTER TABLE audit_entry DISABLE TRIGGER audit_entry_no_truncate")
    assert triggers.missing(connection) == ["audit_entry_no_truncate"]


def test_the_check_asks_no_database_unless_told_to(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        checks.run_checks(tags=[checks.Tags.database], databases=[])


def test_migrate_puts_the_triggers_back() -> None:
    drop_triggers()
    call_command("migrate", verbosity=0)
    assert triggers.triggers_present()
