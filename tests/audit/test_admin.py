"""The chain in the admin: read, searched, verified; never changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.test import Client

from audit import services
from audit.models import Entry
from audit.services import record
from tests.audit.histories import break_chain, drop_triggers, record_history, sql

pytestmark = pytest.mark.django_db

LIST = "/admin/audit/entry/"
VERIFY = "/admin/audit/entry/verify/"


def page(client: Client, url: str, **query: Any) -> str:
    response = client.get(url, query)
    assert response.status_code == 200
    return response.content.decode()


def test_the_list_shows_entries_newest_first(admin_client: Client) -> None:
    record_history(3)
    html = page(admin_client, LIST)
    assert "call.done" in html
    assert html.index(f"c_{2:020x}") < html.index(f"c_{0:020x}")


def test_the_list_of_a_long_chain_counts_by_the_head(admin_client: Client, django_assert_max_num_queries: Any) -> None:
    record_history(120)
    with django_assert_max_num_queries(20):
        html = page(admin_client, LIST)
    size = services.head().size
    assert f"{size} entries" in html
    assert f"{size - 1}</a>" in html
    assert page(admin_client, LIST, p=3).count("call.done") >= 20


def test_entries_are_found_by_kind_number_principal_and_subject(admin_client: Client) -> None:
    record_history(2)
    record("worker.queued", principal="agent:codex", subject="w_abc")
    assert "w_abc" not in page(admin_client, LIST, kind="call.done")
    assert "w_abc" in page(admin_client, LIST, kind="worker.queued")
    assert "w_abc" in page(admin_client, LIST, q="codex")
    assert "w_abc" in page(admin_client, LIST, q="w_a")
    number = Entry.objects.get(kind="worker.queued").seq
    assert "w_abc" in page(admin_client, LIST, q=str(number))
    assert "w_abc" not in page(admin_client, LIST, q="9" * 40)
    assert "1 entry" in page(admin_client, LIST, q="w_abc")


def test_an_entry_shows_its_payload_with_hidden_characters_made_visible(admin_client: Client) -> None:
    entry = record("call.done", principal="agent:claude", data={"text": "safe \u202egnp.exe <script>alert(1)</script>"})
    html = page(admin_client, f"{LIST}{entry.seq}/change/")
    assert "⟨U+202E⟩gnp.exe" in html
    assert "\u202e" not in html
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;" in html
    assert entry.hash in html
    assert json.loads(entry.payload)["prev"] in html


def test_an_entry_that_was_tampered_with_can_still_be_looked_at(admin_client: Client) -> None:
    entry = record("call.done", principal="agent:claude")
    drop_triggers()
    sql("UPDATE audit_entry SET payload = %s WHERE seq = %s", b"\xff<b>", entry.seq)
    html = page(admin_client, f"{LIST}{entry.seq}/change/")
    assert "\\xff&lt;b&gt;" in html


def test_nothing_can_be_added_changed_or_deleted(admin_client: Client) -> None:
    record_history(2)
    before = list(Entry.objects.values_list("hash", flat=True))
    assert admin_client.get(f"{LIST}add/").status_code == 403
    assert admin_client.post(f"{LIST}add/", {"kind": "x"}).status_code == 403
    assert admin_client.post(f"{LIST}0/change/", {"kind": "x"}).status_code == 403
    assert admin_client.post(f"{LIST}0/delete/", {"post": "yes"}).status_code == 403
    admin_client.post(LIST, {"action": "delete_selected", "_selected_action": ["0"], "post": "yes"})
    assert list(Entry.objects.values_list("hash", flat=True)) == before


def test_the_button_verifies_records_and_tells(admin_client: Client) -> None:
    record_history(3)
    html = page(admin_client, LIST)
    assert f'action="{VERIFY}"' in html
    assert "csrfmiddlewaretoken" in html
    response = admin_client.post(VERIFY, follow=True)
    assert "Whole: 4 entries" in response.content.decode()
    entry = Entry.objects.get(kind="audit.verified")
    assert (entry.principal, entry.subject) == ("user:admin", "whole")


def test_the_button_tells_of_tampering(admin_client: Client) -> None:
    record_history(3)
    drop_triggers()
    sql("UPDATE audit_entry SET subject = 'other' WHERE seq = 2")
    response = admin_client.post(VERIFY, follow=True)
    assert "Tampered: projection_mismatch at entry 2" in response.content.decode()
    assert services.chain_state().verdict == "tampered"


def test_verifying_that_fails_is_told_as_such(admin_client: Client) -> None:
    break_chain()
    response = admin_client.post(VERIFY, follow=True)
    assert "could not be verified" in response.content.decode()


def test_verifying_takes_a_post_with_a_token(admin_user: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    assert client.get(VERIFY).status_code == 405
    assert client.post(VERIFY).status_code == 403
    assert not Entry.objects.filter(kind="audit.verified").exists()


def test_who_may_not_see_the_chain_may_not_verify_it(client: Client) -> None:
    staff = User.objects.create_user("staff", is_staff=True)
    client.force_login(staff)
    assert client.get(LIST).status_code == 403
    assert client.post(VERIFY).status_code == 403
    staff.user_permissions.add(Permission.objects.get(codename="view_entry"))
    assert client.get(LIST).status_code == 200
    assert client.post(VERIFY).status_code == 302


def test_a_stranger_is_sent_to_the_login_page(client: Client) -> None:
    assert client.post(VERIFY).status_code == 302
    with transaction.atomic():
        assert not Entry.objects.filter(kind="audit.verified").exists()
