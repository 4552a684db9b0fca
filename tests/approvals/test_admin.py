"""Processes and calls in the admin: read, never written."""

from __future__ import annotations

import pytest
from django.test import Client

from approvals.models import Call, Process
from tests.rows import SHOWN_SPOOF, SPOOF, living_console, make_call, make_worker, page, staff_client

pytestmark = pytest.mark.django_db

CALLS = "/admin/approvals/call/"
PROCESSES = "/admin/approvals/process/"


def test_calls_are_listed_found_and_opened(admin_client: Client) -> None:
    call = make_call(tool="meah_cancel_agent", state="failed", error={"code": "E_NOT_FOUND", "message": "No such."})
    make_call(tool="meah_run_agent")
    html = page(admin_client, CALLS, q="cancel")
    assert call.public_id in html
    assert "meah / meah_run_agent" not in html
    assert "No such." in page(admin_client, f"{CALLS}{call.pk}/change/")


def test_a_call_leads_to_the_workers_that_it_started(admin_client: Client) -> None:
    worker = make_worker()
    html = page(admin_client, f"{CALLS}{worker.call.pk}/change/")
    assert f"/admin/workers/worker/{worker.pk}/change/" in html
    assert worker.public_id in html


def test_a_process_is_shown_alive_only_while_it_lives(admin_client: Client) -> None:
    with living_console():
        assert "alive" in page(admin_client, PROCESSES)
        Process.objects.update(public_id="p_gone")
        assert "ended" in page(admin_client, PROCESSES)


def test_foreign_text_is_escaped_and_its_hidden_characters_are_shown(admin_client: Client) -> None:
    call = make_call(principal=SPOOF, server=SPOOF, tool=SPOOF, run=SPOOF, error={"message": SPOOF})
    process = Process.objects.create(kind="runmcp", host="here", pid=1, version="1", principal=SPOOF)
    for url in (CALLS, PROCESSES, f"{PROCESSES}{process.pk}/change/"):
        html = page(admin_client, url)
        assert SHOWN_SPOOF in html
        assert "<script>alert" not in html
    html = page(admin_client, f"{CALLS}{call.pk}/change/")
    assert SHOWN_SPOOF in html
    assert "\u202e" not in html


@pytest.mark.parametrize(("model", "url"), [(Call, CALLS), (Process, PROCESSES)])
def test_nobody_adds_changes_or_deletes_by_hand(admin_client: Client, model: type, url: str) -> None:
    row = make_call() if model is Call else Process.objects.create(kind="runmcp", host="here", pid=1, version="1")
    assert admin_client.get(f"{url}add/").status_code == 403
    assert admin_client.post(f"{url}{row.pk}/change/", {"principal": "forged"}).status_code == 403
    assert admin_client.post(f"{url}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert model.objects.count() == 1


def test_looking_needs_the_right_to_look() -> None:
    client = staff_client("workers.view_worker")
    assert client.get(CALLS).status_code == 403
    assert client.get(PROCESSES).status_code == 403
