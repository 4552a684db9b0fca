"""Processes and calls in the admin: read, and what could not be known resolved by a person."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from approvals.models import Call, CallState, Process
from tests.approvals.requests import ended, held, payload, person, registered_box
from tests.approvals.targets import CountingTarget
from tests.rows import SHOWN_SPOOF, SPOOF, living_console, make_call, make_worker, page, posted, staff_client

pytestmark = pytest.mark.django_db

CALLS = "/admin/approvals/call/"
PROCESSES = "/admin/approvals/process/"
RESOLVE = "approvals.resolve_call"


@pytest.fixture(autouse=True)
def box() -> Iterator[CountingTarget]:
    with registered_box() as target:
        yield target


# -- calls


def test_calls_are_listed_found_and_opened(admin_client: Client) -> None:
    assert "Nothing was called yet" in page(admin_client, CALLS)
    call = make_call(tool="meah_cancel_agent", state="failed", error={"code": "E_NOT_FOUND", "message": "No such."})
    make_call(tool="meah_run_agent")
    html = page(admin_client, CALLS, q="cancel")
    assert call.public_id in html
    assert "meah/meah_run_agent" not in html
    for key in (call.pk, call.public_id):
        assert "No such." in page(admin_client, f"{CALLS}{key}/change/")


def test_a_call_leads_to_the_workers_that_it_started(admin_client: Client) -> None:
    worker = make_worker()
    html = page(admin_client, f"{CALLS}{worker.call.pk}/change/")
    assert f"/admin/workers/worker/{worker.pk}/change/" in html
    assert worker.public_id in html


def test_a_call_shows_what_was_sent_what_came_and_what_was_read_back(admin_client: Client) -> None:
    result = {
        "content": [{"type": "text", "text": "Saved."}, {"type": "image", "mimeType": "image/png", "data": "A" * 400}],
        "structuredContent": {"saved": True},
    }
    call = make_call(
        server="crm",
        arguments='{"id":"T-1001"}',
        result=json.dumps(result),
        result_bytes=500,
        verification="verified",
        run="night",
        step="close",
        verdict={"effect": "allow", "rule": "crm-writes", "policy": "x"},
    )
    html = page(admin_client, f"{CALLS}{call.pk}/change/")
    for shown in (
        "T-1001",
        "Saved.",
        "image image/png 300 bytes",
        "&quot;saved&quot;: true",
        "Read back",
        "crm-writes",
    ):
        assert shown in html
    assert "gets the stored outcome, marked as a replay, for good" in html
    assert "verified" in page(admin_client, CALLS)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"effect_class": "read"}, "Results of reads are not kept"),
        ({"result_bytes": 2_000_000, "result_digest": "abcd"}, "too large to keep"),
        ({"result_bytes": 20, "purged_at": timezone.now()}, "The result was purged"),
        ({"state": "sending"}, "there is no answer yet"),
    ],
)
def test_a_call_without_a_stored_result_says_why(admin_client: Client, values: dict[str, object], told: str) -> None:
    assert told in page(admin_client, f"{CALLS}{make_call(**values).pk}/change/")


def test_foreign_text_is_escaped_and_its_hidden_characters_are_shown(admin_client: Client) -> None:
    call = make_call(
        principal=SPOOF,
        server=SPOOF,
        tool=SPOOF,
        run=SPOOF,
        step=SPOOF,
        error={"code": SPOOF, "message": SPOOF, "hint": SPOOF, "details": {SPOOF: SPOOF}},
        arguments=json.dumps({SPOOF: SPOOF}),
        result=json.dumps({"content": [{"type": "text", "text": SPOOF}, {"type": SPOOF, "uri": SPOOF}], SPOOF: SPOOF}),
    )
    process = Process.objects.create(kind="runmcp", host="here", pid=1, version="1", principal=SPOOF)
    for url in (CALLS, PROCESSES, f"{PROCESSES}{process.pk}/change/", f"{CALLS}{call.pk}/change/"):
        html = page(admin_client, url)
        assert SHOWN_SPOOF in html
        assert "<script>alert" not in html
        assert "\u202e" not in html


# -- unknown calls


def unknown() -> Call:
    call: Call = ended(held(), CallState.UNKNOWN, sending_at=timezone.now(), finished_at=timezone.now()).call
    return call


@pytest.mark.parametrize(("said", "state"), [("yes", "done"), ("no", "failed")])
def test_a_person_says_whether_an_unknown_call_happened(admin_client: Client, said: str, state: str) -> None:
    call = unknown()
    assert "may or may not have happened" in page(admin_client, CALLS)
    assert "Say what happened" in page(admin_client, f"{CALLS}{call.pk}/change/")
    html = page(admin_client, f"{CALLS}{call.public_id}/resolve/")
    assert "It did not happen" in html
    posted(admin_client, f"{CALLS}{call.public_id}/resolve/", happened=said, note="I looked at the ticket.")
    call.refresh_from_db()
    assert call.state == state
    data = payload("call.resolved")["data"]
    assert data["happened"] is (said == "yes")
    assert data["note"] == "I looked at the ticket."


@pytest.mark.parametrize(
    "data", [{"happened": "yes", "note": ""}, {"note": "seen"}, {"happened": "maybe", "note": "x"}]
)
def test_without_a_note_or_an_answer_it_stays_unknown(admin_client: Client, data: dict[str, str]) -> None:
    call = unknown()
    assert "It did not happen" in posted(admin_client, f"{CALLS}{call.public_id}/resolve/", **data)
    call.refresh_from_db()
    assert call.state == "unknown"


def test_what_is_known_is_not_resolved(admin_client: Client) -> None:
    call = make_call()
    html = posted(admin_client, f"{CALLS}{call.public_id}/resolve/", happened="no", note="I do not like it.")
    assert "not unknown" in html
    call.refresh_from_db()
    assert call.state == "done"


def test_resolving_is_a_right_of_its_own() -> None:
    call = unknown()
    looker = staff_client("approvals.view_call")
    assert looker.post(f"{CALLS}{call.public_id}/resolve/", {"happened": "no", "note": "x"}).status_code == 403
    assert "Say what happened" not in page(looker, f"{CALLS}{call.pk}/change/")
    _, resolver = person("resolver", RESOLVE)
    assert "Say what happened" in page(resolver, f"{CALLS}{call.pk}/change/")
    call.refresh_from_db()
    assert call.state == "unknown"


# -- processes


def test_a_process_is_shown_alive_only_while_it_lives(admin_client: Client) -> None:
    with living_console():
        assert "alive" in page(admin_client, PROCESSES)
        Process.objects.update(public_id="p_gone", heartbeat_at=timezone.now() - timedelta(minutes=1))
        assert "ended" in page(admin_client, PROCESSES)


@pytest.mark.parametrize(("model", "url"), [(Call, CALLS), (Process, PROCESSES)])
def test_nobody_adds_changes_or_deletes_by_hand(admin_client: Client, model: Any, url: str) -> None:
    row = make_call() if model is Call else Process.objects.create(kind="runmcp", host="here", pid=1, version="1")
    assert admin_client.get(f"{url}add/").status_code == 403
    assert admin_client.post(f"{url}{row.pk}/change/", {"principal": "forged"}).status_code == 403
    assert admin_client.post(f"{url}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert model.objects.count() == 1


def test_looking_needs_the_right_to_look() -> None:
    client = staff_client("workers.view_worker")
    assert client.get(CALLS).status_code == 403
    assert client.get(PROCESSES).status_code == 403
