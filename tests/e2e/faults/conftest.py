"""Databases that the labs of these tests may use, and the figures that they tell."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from uuid import uuid4

import pytest

from tests.conftest import ROOT

SQLITE = "sqlite:///db.sqlite3"
SERVERS = ("postgresql://postgres@127.0.0.1:5432/postgres", "postgresql://root@127.0.0.1:5432/postgres")
FIGURES = ROOT / "benchmarks" / "results" / "faults.txt"

Tell = Callable[[str, Mapping[str, object]], None]


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """Tell the figures of a test: pytest's summary shows them, and `make test-all` keeps them."""

    def teller(name: str, figures: Mapping[str, object]) -> None:
        line = f"faults {name}: " + ", ".join(f"{key} {value}" for key, value in figures.items())
        record_property("figures", line)
        if os.environ.get("KEEP_FAULT_FIGURES"):
            with FIGURES.open("a") as file:
                file.write(line + "\n")

    return teller


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a database for one lab: `sqlite`, or `postgresql` where a server answers."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield SQLITE
        return
    import psycopg

    server = _postgresql()
    name = f"meah_faults_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield f"{server.rpartition('/')[0]}/{name}"
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _postgresql() -> str:
    import psycopg

    servers = [named] if (named := os.environ.get("MEAH_TEST_POSTGRES_URL")) else SERVERS
    for server in servers:
        try:
            psycopg.connect(server, connect_timeout=3).close()
        except psycopg.OperationalError:
            continue
        return server
    pytest.skip("no PostgreSQL server answers")
