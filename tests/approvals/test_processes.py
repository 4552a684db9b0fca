"""Processes: when one is alive, who is dead, and that a sleeper comes back."""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from approvals import processes
from approvals.models import Process
from approvals.processes import Membership, dead_among, forget_dead, is_alive, living, lock_path
from core.errors import MeahError
from core.locks import hold
from core.secrets import name_secrets
from tests.conftest import Home
from tests.e2e.server import eventually

pytestmark = pytest.mark.usefixtures("home")


def make_dead(public_id: str = "p_dead", **values: Any) -> Process:
    long_ago = timezone.now() - timedelta(minutes=1)
    given = {"kind": "runmcp", "host": "here", "pid": 1, "version": "0", "heartbeat_at": long_ago}
    return Process.objects.create(public_id=public_id, **(given | values))


@pytest.fixture
def member() -> Any:
    joined = Membership(Process.Kind.RUNMCP, version="1.2.3")
    joined.join()
    yield joined
    joined.leave()


def test_a_process_is_alive_from_join_to_leave(home: Home) -> None:
    member = Membership(Process.Kind.RUNMCP, version="1.2.3")
    assert dead_among([member.public_id]) == {member.public_id}
    member.join()
    (row,) = living()
    assert (row.public_id, row.pid, row.host) == (member.public_id, os.getpid(), socket.gethostname())
    assert is_alive(row) and dead_among([member.public_id]) == set()
    member.leave()
    assert living() == [] and dead_among([member.public_id]) == {member.public_id}
    assert list((home.path / "run").iterdir()) == []


def test_what_died_is_forgotten_and_what_lives_is_not(member: Membership) -> None:
    make_dead()
    lock_path("p_dead").touch()
    assert dead_among(["p_dead", member.public_id, "p_never"]) == {"p_dead", "p_never"}
    forget_dead()
    assert [row.public_id for row in Process.objects.all()] == [member.public_id]
    assert not lock_path("p_dead").exists() and lock_path(member.public_id).exists()


def test_on_sqlite_the_lock_is_life_however_old_the_row() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("on PostgreSQL it is the heartbeat")
    row = make_dead()
    held = hold(lock_path("p_dead"))
    assert held is not None and is_alive(row)
    held.release()
    assert not is_alive(row)


def test_on_postgresql_the_heartbeat_is_life_and_a_sleeper_joins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("on SQLite it is the lock")
    monkeypatch.setattr(processes, "HEARTBEAT_EVERY_S", 0.1)
    member = Membership(Process.Kind.RUNMCP, version="1")
    member.join()
    try:
        first = Process.objects.get().heartbeat_at
        eventually(lambda: Process.objects.get().heartbeat_at > first, within_s=20)
        # Others took it for dead while the machine slept.
        Process.objects.all().delete()
        assert eventually(lambda: living(), within_s=20)[0].public_id == member.public_id
    finally:
        member.leave()
    time.sleep(0.3)
    assert not Process.objects.exists()


def test_it_publishes_which_key_variables_it_has_and_for_whom_it_speaks(
    member: Membership, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setenv("MEAH_TEST_PROCESS_KEY", "a-value-that-is-long-enough")
    name_secrets(["MEAH_TEST_PROCESS_KEY", "MEAH_TEST_NOT_SET"])
    member.update(principal="agent:claude")
    row = Process.objects.get()
    assert "MEAH_TEST_PROCESS_KEY" in row.key_variables and "MEAH_TEST_NOT_SET" not in row.key_variables
    assert row.principal == "agent:claude"
    with django_assert_num_queries(0):
        member.update()
    monkeypatch.delenv("MEAH_TEST_PROCESS_KEY")
    member.update()
    row.refresh_from_db()
    assert "MEAH_TEST_PROCESS_KEY" not in row.key_variables and row.principal == "agent:claude"


def test_a_run_directory_that_can_not_be_is_an_error_of_configuration(home: Home) -> None:
    (home.path / "run").write_text("a file in its place")
    with pytest.raises(MeahError, match="run") as caught:
        Membership(Process.Kind.RUNMCP, version="1").join()
    assert caught.value.code == "E_CONFIG"
