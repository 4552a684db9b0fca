"""Logins on the chain; failed ones by source and minute, none lost, no flood."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from audit import logins, services
from audit.models import Entry, LoginFailure
from core.errors import MeahError
from tests.audit.histories import break_chain

pytestmark = pytest.mark.django_db

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
LOGIN = "/admin/login/"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def failures() -> list[tuple[str, int]]:
    found = Entry.objects.filter(kind="user.login_failed")
    return [(entry.subject, json.loads(entry.payload)["data"]["count"]) for entry in found]


def pending() -> int:
    return sum(LoginFailure.objects.values_list("unrecorded", flat=True))


@pytest.fixture
def alice(db: None) -> User:
    return User.objects.create_superuser("alice", password="right-pass-phrase")


def test_logins_and_logouts_are_recorded(client: Client, alice: User) -> None:
    client.post(LOGIN, {"username": "alice", "password": "right-pass-phrase"})
    client.post("/admin/logout/")
    found = [(entry.kind, entry.principal, entry.subject) for entry in Entry.objects.all()]
    assert found == [
        ("user.logged_in", "user:alice", "alice"),
        ("user.logged_out", "user:alice", "alice"),
    ]
    assert json.loads(Entry.objects.get(seq=0).payload)["data"] == {"source": "127.0.0.1"}


def test_a_failed_login_is_recorded_at_once_and_not_by_the_name_that_was_tried(client: Client, alice: User) -> None:
    client.post(LOGIN, {"username": "my-secret-password", "password": "alice"})
    assert failures() == [("127.0.0.1", 1)]
    assert b"my-secret" not in bytes(Entry.objects.get().payload)


def test_a_login_that_can_not_be_recorded_does_not_happen(client: Client, alice: User) -> None:
    break_chain()
    with pytest.raises(MeahError, match="E_AUDIT"):
        client.post(LOGIN, {"username": "alice", "password": "right-pass-phrase"})
    assert client.get("/admin/").status_code == 302
    assert "_auth_user_id" not in client.session


def test_a_logout_happens_even_if_it_can_not_be_recorded(client: Client, alice: User) -> None:
    client.force_login(alice)
    break_chain()
    client.post("/admin/logout/")
    assert "_auth_user_id" not in client.session


def test_a_failure_that_can_not_be_recorded_is_still_a_failed_login(client: Client, alice: User) -> None:
    break_chain()
    response = client.post(LOGIN, {"username": "alice", "password": "wrong"})
    assert response.status_code == 200
    assert b"Please enter the correct" in response.content


def test_the_failures_of_a_minute_are_one_entry_and_the_rest_is_in_the_next() -> None:
    for second in range(50):
        logins.count_failure("10.0.0.1", now=at(second))
    assert failures() == [("10.0.0.1", 1)]
    logins.count_failure("10.0.0.1", now=at(61))
    assert failures() == [("10.0.0.1", 1), ("10.0.0.1", 50)]
    assert pending() == 0
    data = json.loads(Entry.objects.get(seq=1).payload)["data"]
    assert data == {"count": 50, "first": "2026-11-30T12:00:01.000000Z", "last": "2026-11-30T12:01:01.000000Z"}


def test_sources_are_counted_apart() -> None:
    for source in ("10.0.0.1", "10.0.0.2", "10.0.0.1"):
        logins.count_failure(source, now=at(0))
    assert failures() == [("10.0.0.1", 1), ("10.0.0.2", 1)]
    assert pending() == 1


def test_what_is_only_counted_is_recorded_without_another_failure_from_there() -> None:
    for second in range(3):
        logins.count_failure("10.0.0.1", now=at(second))
    logins.record_due(now=at(30))
    assert failures() == [("10.0.0.1", 1)]
    logins.record_due(now=at(70))
    assert failures() == [("10.0.0.1", 1), ("10.0.0.1", 2)]
    logins.count_failure("10.0.0.1", now=at(80))
    assert failures() == [("10.0.0.1", 1), ("10.0.0.1", 2)], "one entry per source and minute"
    logins.count_failure("10.0.0.2", now=at(130))
    assert failures()[2:] == [("10.0.0.1", 1), ("10.0.0.2", 1)]


def test_a_login_records_what_is_due(client: Client, alice: User) -> None:
    for second in range(3):
        logins.count_failure("10.0.0.1", now=at(second))
    client.force_login(alice)
    assert failures() == [("10.0.0.1", 1), ("10.0.0.1", 2)]


def test_no_failure_is_lost_and_no_source_has_two_entries_in_a_minute(monkeypatch: Any) -> None:
    for n in range(150):
        monkeypatch.setattr(timezone, "now", lambda n=n: at(n * 3.4))
        logins.count_failure(f"10.0.0.{n % 7}")
    assert sum(count for _source, count in failures()) + pending() == 150
    minutes = [(entry.subject, entry.at.replace(second=0, microsecond=0)) for entry in Entry.objects.all()]
    assert len(minutes) == len(set(minutes)) > 50
    assert services.verify().whole


def test_rows_of_quiet_sources_go() -> None:
    logins.count_failure("10.0.0.1", now=at(0))
    logins.count_failure("10.0.0.2", now=at(120))
    assert [row.source for row in LoginFailure.objects.all()] == ["10.0.0.2"]


def test_a_flood_from_many_sources_is_bounded_and_counted() -> None:
    for n in range(200):
        logins.count_failure(f"10.0.{n}.1", now=at(n / 10))
    assert len(failures()) == logins.MAX_SOURCES + 1
    assert LoginFailure.objects.count() == logins.MAX_SOURCES + 1
    assert sum(count for _source, count in failures()) + pending() == 200
    logins.record_due(now=at(90))
    assert failures()[-1] == (logins.MANY, 200 - logins.MAX_SOURCES - 1)


def test_a_failure_that_can_not_be_recorded_stays_uncounted_as_a_whole() -> None:
    logins.count_failure("10.0.0.1", now=at(0))
    break_chain()
    with pytest.raises(MeahError, match="E_AUDIT"):
        logins.count_failure("10.0.0.1", now=at(60))
    assert pending() == 0


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", "unknown"),
        (None, "unknown"),
        ("<script>", "unknown"),
    ],
)
def test_a_source_is_an_address_or_its_network(address: Any, source: str) -> None:
    assert logins.source_of(address) == source
