"""The one-time login link: shown by GET, used by POST, once."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client
from django.utils import timezone

from audit.models import Entry
from core.errors import MeahError
from meah_site import login_link
from meah_site.login_link import make_link, user_of

BASE = "http://127.0.0.1:7817"


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest) -> None:
    """Either a transaction of the test, or a home with a database of its own."""
    if "home" not in request.fixturenames:
        request.getfixturevalue("db")


def link() -> str:
    made = make_link(BASE)
    assert made.startswith(f"{BASE}/login/")
    return made.removeprefix(BASE)


def logged_in(client: Client) -> bool:
    return client.get("/admin/").status_code == 200


def kinds() -> list[str]:
    return list(Entry.objects.order_by("seq").values_list("kind", flat=True))


def test_the_first_link_makes_the_superuser_admin_without_a_password() -> None:
    make_link(BASE)
    make_link(BASE)
    user = User.objects.get()
    assert (user.username, user.is_superuser, user.is_staff) == ("admin", True, True)
    assert not user.has_usable_password()
    assert kinds().count("user.added") == 1


def test_looking_at_a_link_uses_nothing_up(client: Client) -> None:
    url = link()
    for _ in range(3):
        html = client.get(url).content.decode()
        assert "Log in as admin" in html
    assert not logged_in(client)


def test_a_link_logs_in_once_and_leads_to_setting_a_password(client: Client) -> None:
    url = link()
    response = client.post(url)
    assert (response.status_code, response.url) == (302, "/admin/set-password/")
    assert logged_in(client)
    entry = Entry.objects.get(kind="user.logged_in")
    assert json.loads(bytes(entry.payload))["principal"] == "user:admin"
    second = Client()
    assert second.post(url).status_code == 410
    assert second.get(url).status_code == 410
    assert not logged_in(second)


def test_a_used_link_says_how_to_get_another(client: Client) -> None:
    url = link()
    client.post(url)
    html = Client().get(url).content.decode()
    assert "manage.py login_link" in html
    assert "does not work any more" in html


def test_using_one_link_kills_all_others(client: Client) -> None:
    first, second = link(), link()
    client.post(first)
    assert Client().post(second).status_code == 410


def test_a_login_by_password_and_a_new_password_kill_a_link(client: Client) -> None:
    make_link(BASE)
    user = User.objects.get()
    user.set_password("a long pass phrase")
    user.save()
    before = link()
    assert client.login(username="admin", password="a long pass phrase")
    assert Client().post(before).status_code == 410
    before = link()
    user.refresh_from_db()
    user.set_password("another pass phrase")
    user.save()
    assert Client().post(before).status_code == 410


def test_a_link_expires_after_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    token = link().removeprefix("/login/").rstrip("/")
    made_at = time.time()
    monkeypatch.setattr("time.time", lambda: made_at + 9 * 60)
    assert user_of(token) is not None
    monkeypatch.setattr("time.time", lambda: made_at + 10 * 60 + 5)
    assert user_of(token) is None


@pytest.mark.parametrize("change", ["cut", "one letter", "another user", "nothing"])
def test_a_changed_token_logs_nobody_in(client: Client, change: str) -> None:
    make_link(BASE)
    other = User.objects.create_superuser("eve")
    token = link().removeprefix("/login/").rstrip("/")
    forged = {
        "cut": token[:-4],
        "one letter": token[:-1] + ("A" if token[-1] != "A" else "B"),
        "another user": f"{other.pk}.{token.partition('.')[2]}",
        "nothing": "x",
    }[change]
    assert client.post(f"/login/{forged}/").status_code == 410
    assert not logged_in(client)


def test_the_post_is_checked_against_forgery() -> None:
    url = link()
    strict = Client(enforce_csrf_checks=True)
    assert strict.post(url).status_code == 403
    strict.get(url)
    token = strict.cookies["meah_csrf"].value
    assert strict.post(url, {"csrfmiddlewaretoken": token}).status_code == 302


def test_the_page_keeps_the_token_to_itself(client: Client) -> None:
    response = client.get(link())
    assert response.headers["Referrer-Policy"] == "same-origin"
    assert "no-store" in response.headers["Cache-Control"]
    assert "http://" not in response.content.decode().replace("http://www.w3.org", "")
    assert "https://" not in response.content.decode()


def test_a_person_who_is_barred_meanwhile_is_not_let_in(client: Client) -> None:
    url = link()
    User.objects.update(is_active=False)
    assert client.post(url).status_code == 410


def test_without_admin_the_superuser_seen_last_is_logged_in() -> None:
    now = timezone.now()
    User.objects.create_superuser("old", password="x", last_login=now - timedelta(days=9))
    User.objects.create_superuser("fresh", password="x", last_login=now)
    User.objects.create_user("plain", password="x", is_staff=True)
    token = link().removeprefix("/login/").rstrip("/")
    user = user_of(token)
    assert user is not None
    assert user.username == "fresh"
    assert not User.objects.filter(username="admin").exists()


def test_a_barred_admin_without_any_other_superuser_is_not_let_back_in() -> None:
    make_link(BASE)
    User.objects.update(is_active=False)
    with pytest.raises(MeahError) as caught:
        make_link(BASE)
    assert caught.value.code == "E_CONFIG"
    assert "createsuperuser" in caught.value.hint
    with pytest.raises(CommandError, match="createsuperuser"):
        call_command("login_link", stdout=StringIO(), stderr=StringIO())


def test_two_posts_at_once_let_one_in(home: Any) -> None:
    token = link().removeprefix("/login/").rstrip("/")
    start, winners = threading.Barrier(4), []

    def use() -> None:
        try:
            start.wait(10)
            if login_link.consume(token):
                winners.append(1)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert winners == [1]


def test_a_password_is_set_once_and_recorded_without_it(client: Client) -> None:
    client.post(link())
    assert "Set a password" in client.get("/admin/").content.decode()
    weak = client.post("/admin/set-password/", {"new_password1": "short", "new_password2": "short"})
    assert "too short" in weak.content.decode()
    good = {"new_password1": "correct horse battery", "new_password2": "correct horse battery"}
    assert client.post("/admin/set-password/", good).status_code == 302
    assert logged_in(client)
    assert "Set a password" not in client.get("/admin/").content.decode()
    assert client.get("/admin/set-password/").url == "/admin/password_change/"
    assert Client().login(username="admin", password="correct horse battery")
    assert kinds().count("user.password_set") == 1
    assert not any(b"correct horse" in bytes(entry.payload) for entry in Entry.objects.all())


def test_a_changed_password_is_recorded(client: Client) -> None:
    user = User.objects.create_superuser("ann", password="correct horse battery")
    client.force_login(user)
    passwords = {
        "old_password": "correct horse battery",
        "new_password1": "staple battery horse",
        "new_password2": "staple battery horse",
    }
    client.post("/admin/password_change/", passwords | {"old_password": "wrong"})
    assert "user.password_set" not in kinds()
    client.post("/admin/password_change/", passwords)
    assert kinds().count("user.password_set") == 1


@pytest.mark.parametrize(
    ("options", "beginning"),
    [
        ({}, "http://127.0.0.1:7817/login/"),
        ({"port": 9}, "http://127.0.0.1:9/login/"),
        ({"base_url": "https://meah.example.com/"}, "https://meah.example.com/login/"),
    ],
)
def test_the_command_prints_one_link(options: dict[str, Any], beginning: str) -> None:
    out = StringIO()
    call_command("login_link", stdout=out, stderr=StringIO(), **options)
    (line,) = out.getvalue().split()
    assert line.startswith(beginning)
    assert user_of(line.removeprefix(beginning).rstrip("/")) is not None


def test_the_command_refuses_an_address_without_a_scheme() -> None:
    with pytest.raises(CommandError, match="http://meah"):
        call_command("login_link", base_url="meah.example.com")
