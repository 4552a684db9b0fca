"""Whether the database is ours, older or newer."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from core.errors import MeahError
from meah_site import schema
from meah_site.schema import applied, known, migration_turn, needs_migration, refuse_newer, schema_is_newer
from tests.conftest import Home

pytestmark = pytest.mark.usefixtures("home")


def add_migration(app: str, name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, CURRENT_TIMESTAMP)", [app, name]
        )


def test_a_migrated_database_is_ours() -> None:
    assert known() <= applied()
    assert not needs_migration() and not schema_is_newer()
    refuse_newer()


def test_every_installed_app_with_migrations_is_looked_at() -> None:
    from django.apps import apps
    from django.db.migrations.loader import MigrationLoader

    there = {label for label, _ in MigrationLoader(None).disk_migrations}
    assert there == set(schema.APPS) and {config.label for config in apps.get_app_configs()} >= there


def test_a_missing_migration_makes_it_older() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'workers'")
    assert needs_migration() and not schema_is_newer()


def test_an_empty_database_is_older_and_no_error() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE django_migrations")
    assert applied() == set() and needs_migration() and not schema_is_newer()


def test_a_migration_that_we_do_not_know_makes_it_newer() -> None:
    add_migration("workers", "9999_later")
    assert schema_is_newer() and not needs_migration()
    with pytest.raises(MeahError) as caught:
        refuse_newer()
    assert caught.value.code == "E_CONFIG" and "newer" in caught.value.message


def test_migrations_of_others_are_their_own_affair() -> None:
    add_migration("auth", "9999_of_a_newer_django")
    add_migration("somebody_elses_app", "0001_initial")
    assert not schema_is_newer()


def test_a_checkout_that_is_updated_while_we_run_does_not_make_us_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    before = known()
    monkeypatch.setattr(schema, "_names", lambda package: ["0001_initial", "9999_later"])
    add_migration("workers", "9999_later")
    assert known() == before and schema_is_newer()


def test_one_migrates_at_a_time(home: Home) -> None:
    from core.locks import is_held

    with migration_turn():
        assert is_held(home.path / "migrate.lock")
    assert not is_held(home.path / "migrate.lock")


def test_a_database_that_does_not_answer_is_an_error_and_not_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def gone(*_: Any, **__: Any) -> Any:
        raise OperationalError("gone")

    monkeypatch.setattr(connection.introspection, "table_names", gone)
    with pytest.raises(OperationalError):
        needs_migration()
