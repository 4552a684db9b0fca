"""The SQLite backend: writers take turns, and give the turn back whatever happens."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from core.locks import is_held
from tests.conftest import Home, is_postgres
from workers.models import Provider

pytestmark = [
    pytest.mark.usefixtures("home"),
    pytest.mark.skipif(is_postgres(), reason="this is about SQLite"),
]


@pytest.fixture
def lock(home: Home) -> Path:
    return home.path / "db.lock"


def pragma(name: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {name}")
        return cursor.fetchone()[0]


def test_the_database_is_durable_and_strict() -> None:
    assert pragma("journal_mode") == "wal" and pragma("synchronous") == 2 and pragma("foreign_keys") == 1
    assert pragma("busy_timeout") == 20_000


def test_the_outermost_transaction_holds_the_turn_to_its_end(lock: Path) -> None:
    with transaction.atomic():
        assert is_held(lock)
        with transaction.atomic():
            Provider.objects.create(name="inner")
        assert is_held(lock)
    assert not is_held(lock)
    assert Provider.objects.exists() and not is_held(lock)


def test_the_turn_is_given_back_by_a_rollback(lock: Path) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Provider.objects.create(name="lost")
        raise ZeroDivisionError
    assert not is_held(lock) and not Provider.objects.exists()


def test_the_turn_is_given_back_by_a_connection_that_closes_in_the_middle(lock: Path) -> None:
    connection.ensure_connection()
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    assert is_held(lock)
    connection.close()
    assert not is_held(lock)


def test_the_turn_is_given_back_where_the_transaction_can_not_begin(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OperationalError("disk I/O error")

    monkeypatch.setattr("django.db.backends.sqlite3.base.DatabaseWrapper._start_transaction_under_autocommit", refuse)
    with pytest.raises(OperationalError), transaction.atomic():
        pass
    assert not is_held(lock)


def test_a_lock_that_can_not_be_opened_is_an_error_of_the_database(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection.close()
    lock.unlink(missing_ok=True)
    lock.mkdir()
    with pytest.raises(OperationalError), transaction.atomic():
        pass


def test_a_second_writer_waits_for_the_first_and_then_writes(lock: Path) -> None:
    held, go_on, waited = threading.Event(), threading.Event(), []

    def first() -> None:
        with transaction.atomic():
            held.set()
            assert go_on.wait(20)
            Provider.objects.create(name="first")
        connections.close_all()

    thread = threading.Thread(target=first)
    thread.start()
    assert held.wait(20)
    threading.Timer(0.3, go_on.set).start()
    begun = time.monotonic()
    with transaction.atomic():
        waited.append(time.monotonic() - begun)
        assert list(Provider.objects.values_list("name", flat=True)) == ["first"]
    thread.join(20)
    assert waited[0] > 0.2


def test_reading_takes_no_turn(lock: Path) -> None:
    with transaction.atomic():
        seen: list[int] = []
        thread = threading.Thread(target=lambda: (seen.append(Provider.objects.count()), connections.close_all()))
        thread.start()
        thread.join(20)
    assert seen == [0]
