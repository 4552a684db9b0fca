"""Fixtures shared by all tests.

Three kinds of test: pure ones without a database; `db` ones, which call services inline inside a transaction that is
rolled back; and `home` ones, for whatever crosses a thread or a process: each gets a MEAH_HOME of its own with a copy
of the migrated database (flush would meet the append-only triggers, and a test's open transaction would lock out the
database thread).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.test.utils import setup_databases, teardown_databases

ROOT = Path(__file__).resolve().parent.parent


# A shell starts what runs in its background with SIGINT ignored, and children inherit that: Ctrl-C would end nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def is_postgres() -> bool:
    return "postgresql" in settings.DATABASES["default"]["ENGINE"]


def compiled_environ() -> dict[str, str]:
    """The environment for a child of this process: with bytecode it starts in a fifth of the time."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Home:
    """A MEAH_HOME with a database of its own, which this process and its children use."""

    def __init__(self, path: Path, database: str, database_url: str) -> None:
        self.path = path
        self.database = database
        self.database_url = database_url

    @property
    def environ(self) -> dict[str, str]:
        """Environment of a child process that is to live in this home."""
        kept = {name: value for name, value in compiled_environ().items() if not name.startswith(("MEAH_", "DJANGO_"))}
        return kept | {
            "MEAH_HOME": str(self.path),
            "MEAH_ENV_FILE": "",
            "DATABASE_URL": self.database_url,
        }


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None, django_db_modify_db_settings: None, django_db_blocker: Any
) -> Iterator[None]:
    """The migrated database, whichever tests run; pytest-django makes one only where its own fixtures are used."""
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=0, interactive=False)
    yield
    with django_db_blocker.unblock():
        _close_everywhere()
        teardown_databases(made, verbosity=0)


@pytest.fixture
def home(django_db_setup: None, django_db_blocker: Any, tmp_path: Path, monkeypatch: Any) -> Iterator[Home]:
    """The whole product in a directory of this test's own; the ORM of this process points there too."""
    default = connections.databases["default"]
    template = default["NAME"]
    with made_home(tmp_path / "home") as made, django_db_blocker.unblock():
        default["NAME"] = connections["default"].settings_dict["NAME"] = made.database
        monkeypatch.setattr(settings, "MEAH_HOME", made.path)
        try:
            yield made
        finally:
            _close_everywhere()
            default["NAME"] = connections["default"].settings_dict["NAME"] = template


@pytest.fixture(scope="module")
def shared_home(django_db_setup: None, tmp_path_factory: Any) -> Iterator[Home]:
    """A home for a server that all tests of a module talk to; the ORM of this process does not see it."""
    with made_home(tmp_path_factory.mktemp("shared") / "home") as made:
        yield made


@contextlib.contextmanager
def made_home(path: Path) -> Iterator[Home]:
    path.mkdir(mode=0o700)
    _close_everywhere()
    template = connections.databases["default"]["NAME"]
    if not is_postgres():
        yield Home(path, *_copy_sqlite(Path(template), path))
        return
    name, url = _copy_postgres(template, path)
    try:
        yield Home(path, name, url)
    finally:
        _close_everywhere()
        _postgres(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _close_everywhere() -> None:
    from audit import dbthread

    dbthread.shutdown()
    connections.close_all()


def _copy_sqlite(template: Path, path: Path) -> tuple[str, str]:
    with sqlite3.connect(template) as source:
        source.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    source.close()
    copy = path / "db.sqlite3"
    shutil.copyfile(template, copy)
    return str(copy), f"sqlite:///{copy}"


def _copy_postgres(template: str, path: Path) -> tuple[str, str]:
    name = f"meah_{os.getpid()}_{abs(hash(path)) % 10**12}"
    _postgres(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    _postgres(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    base = os.environ["DATABASE_URL"].rsplit("/", 1)[0]
    return name, f"{base}/{name}"


def _postgres(statement: str) -> None:
    import psycopg

    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(statement)


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine to its end, in at most a minute."""

    def runner(coroutine: Coroutine[Any, Any, Any], *, within_s: float = 60) -> Any:
        return asyncio.run(asyncio.wait_for(coroutine, within_s))

    return runner


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the figures of tests that count things, though they have passed: `record_property("figures", line)`."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    lines = [value for report in reports for name, value in report.user_properties if name == "figures"]
    if lines:
        terminalreporter.section("figures")
        for line in sorted(set(lines)):
            terminalreporter.write_line(line)
