"""Requests in the admin: found, read whole, approved and rejected by who may."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from approvals import services
from approvals.models import Approval, Call, CallState, Decision, Rule
from tests.approvals.requests import AGENT, DECIDE, ended, held, payload, person, registered_box
from tests.approvals.targets import CountingTarget
from tests.rows import SHOWN_SPOOF, SPOOF, page, posted, staff_client

pytestmark = pytest.mark.django_db

LIST = "/admin/approvals/approval/"


@pytest.fixture(autouse=True)
def box() -> Iterator[CountingTarget]:
    with registered_box() as target:
        yield target


def url(approval: Approval, rest: str = "change/") -> str:
    return f"{LIST}{approval.public_id}/{rest}"


def state_of(approval: Approval) -> str:
    return str(Approval.objects.get(pk=approval.pk).state)


# -- the list


def test_an_empty_queue_says_what_will_come(admin_client: Client) -> None:
    html = page(admin_client, LIST)
    assert "Nothing was ever held" in html
    assert "/admin/approvals/rule/try/" in html


def test_what_waits_is_listed_first_and_what_was_decided_on_demand(admin_client: Client, admin_user: Any) -> None:
    waiting, decided = held(id="waits"), held(id="decided")
    services.reject(decided, user=admin_user, note="no", door="mcp")
    html = page(admin_client, LIST)
    assert waiting.public_id in html
    assert decided.public_id not in html
    assert "yours to decide" in html
    assert decided.public_id in page(admin_client, LIST, status="rejected")
    assert waiting.public_id not in page(admin_client, LIST, status="rejected")
    everything = page(admin_client, LIST, status="all")
    assert waiting.public_id in everything
    assert "reject by admin" in everything


def test_a_search_finds_decided_requests_too(admin_client: Client, admin_user: Any) -> None:
    decided = held()
    services.reject(decided, user=admin_user, note="no", door="mcp")
    assert "Nothing waits for a person" in page(admin_client, LIST)
    assert decided.public_id in page(admin_client, LIST, q=decided.public_id)


def test_the_list_marks_what_the_one_who_looks_may_decide() -> None:
    Rule.objects.create(name="two-eyes", effect="require_approval", server="box", tool="drop", group="finance")
    asker, client = person("asker", DECIDE)
    person("other", DECIDE)
    held(id="mine", user=asker)
    held("drop", id="b")
    theirs = held(id="theirs")
    html = page(client, LIST)
    assert html.count("yours to decide") == 1
    assert "Who asked can not decide" in html
    assert "It waits for somebody of the group finance" in html
    row = html[html.index(theirs.public_id) :]
    assert "yours to decide" in row[: row.index("</tr>")]


def test_the_list_asks_few_questions_however_long_it_is(
    admin_client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(40):
        held(id=f"n{number}", principal=f"agent:{number}")
    with django_assert_max_num_queries(20):
        html = page(admin_client, LIST)
    assert "40 approvals" in html


# -- one request


def test_the_page_shows_exactly_what_will_be_sent_and_why_it_waits(admin_client: Client) -> None:
    Rule.objects.create(name="writes-wait", effect="require_approval", server="box", reason="Money moves.")
    approval = held(amount=250, id="T-1001")
    html = page(admin_client, url(approval))
    assert "pending approval" in html
    assert "T-1001" in html
    assert "<code>250</code>" in html
    assert "number" in html
    assert approval.call.arguments.replace('"', "&quot;") in html
    assert "writes-wait" in html
    assert "Money moves." in html
    assert approval.digest[:8] in html
    assert "a claim: the client gave this name itself" in html
    assert "1 approval of anybody who may decide" in html
    assert "call.held" in html
    assert "Nothing was sent yet" in html


def test_a_person_behind_a_token_is_shown_as_one(admin_client: Client) -> None:
    carol, _ = person("carol")
    html = page(admin_client, url(held(principal="token:ci", user=carol)))
    assert "authenticated, with carol behind it" in html
    assert "a claim:" not in html


def test_it_differs_from_the_last_similar_call_where_it_says_so(admin_client: Client) -> None:
    ended(held(id="a", status="open", amount=1), finished_at=timezone.now())
    html = page(admin_client, url(held(id="a", status="closed")))
    assert "It differs from" in html
    table = html[html.index("difference-heading") : html.index("outcome-heading")]
    assert re.search(r"status</bdi>.*open.*closed", table, re.DOTALL)
    assert re.search(r"amount</bdi>.*>1<.*is not there", table, re.DOTALL)
    assert "<bdi>id</bdi>" not in table


def test_identical_calls_of_the_same_principal_are_counted(admin_client: Client) -> None:
    first = held()
    ended(first, CallState.FAILED)
    Call.objects.filter(pk=first.call_id).update(needs_approval=False)
    assert "1 identical call of the same principal: 1 failed" in page(admin_client, url(held()))


def test_an_ended_request_shows_its_result_its_read_back_and_its_error(admin_client: Client) -> None:
    result = {"content": [{"type": "text", "text": "Saved the ticket."}], "isError": False}
    differing = {"differences": [{"path": "status", "expected": "closed", "found": "open"}]}
    error = {"code": "E_PROVIDER", "message": "Reading back shows otherwise.", "hint": "Look at the server."}
    approval = ended(
        held(),
        CallState.FAILED,
        result=json.dumps(result),
        result_bytes=80,
        error=error,
        verification="verification_failed",
        verification_details=differing,
        finished_at=timezone.now(),
    )
    html = page(admin_client, url(approval))
    assert "Saved the ticket." in html
    assert "Reading back shows otherwise." in html
    assert "&quot;closed&quot;" in html
    assert "&quot;open&quot;" in html
    assert "verification failed" in html


def test_foreign_text_is_escaped_and_every_hidden_character_is_shown_and_warned_of(admin_client: Client) -> None:
    names: dict[str, Any] = {f"key{SPOOF}": "x"}
    approval = held(id=SPOOF, principal=f"agent:{SPOOF}", **names)
    for target in (url(approval), url(approval, "approve/"), url(approval, "reject/"), LIST):
        html = page(admin_client, target)
        assert SHOWN_SPOOF in html
        assert "<script>alert" not in html
        assert "\u202e" not in html
    html = page(admin_client, url(approval, "approve/"))
    assert "hidden characters" in html
    assert "Look closely." in html


@pytest.mark.parametrize(
    ("value", "warning"),
    [
        ("p\u0430ypal", "Latin and Cyrillic letters in one word"),
        ("\uff50ay", "letters that only look like plain ones"),
        (" T-1001\n", "spaces or line breaks at its ends"),
        ("ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", "it looks like a key"),
    ],
)
def test_values_that_are_not_what_they_seem_are_marked(admin_client: Client, value: str, warning: str) -> None:
    assert warning in page(admin_client, url(held(id=value), "approve/"))


def test_a_secret_of_this_installation_is_named_and_not_shown(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.secrets import name_secrets

    monkeypatch.setenv("SOME_KEY", "value-of-some-key-1234")
    name_secrets(["SOME_KEY"])
    approval = held(id="it is value-of-some-key-1234, they say")
    for target in (url(approval), url(approval, "approve/")):
        html = page(admin_client, target)
        assert "value-of-some-key-1234" not in html
        assert "the value of SOME_KEY" in html


def test_long_values_are_there_without_a_script_and_hold_the_button_with_one(admin_client: Client) -> None:
    approval = held(id="x" * 5_000 + "END")
    html = page(admin_client, url(approval, "approve/"))
    assert "xEND" in html
    assert html.count("<details open data-long>") == 2
    assert "data-needs-opened" in html
    assert "meah/folded.js" in html


def test_what_no_process_can_run_is_said(admin_client: Client, box: CountingTarget) -> None:
    box.needed = ["CRM_KEY"]
    assert "CRM_KEY is missing" in page(admin_client, url(held()))


def test_a_request_that_was_changed_in_the_database_is_not_decided(admin_client: Client) -> None:
    approval = held()
    Call.objects.filter(pk=approval.call_id).update(arguments='{"id":"something else"}')
    assert "What is stored is not what was asked for" in page(admin_client, url(approval))
    html = posted(admin_client, url(approval, "approve/"), digest=approval.digest, note="fine")
    assert "What is stored is not what was asked for" in html
    assert state_of(approval) == "pending"


# -- deciding


def test_approving_takes_a_page_with_the_whole_digest_and_its_button(admin_client: Client) -> None:
    approval = held()
    html = page(admin_client, url(approval, "approve/"))
    assert f'name="digest" value="{approval.digest}"' in html
    assert state_of(approval) == "pending"
    assert not re.search(r"<(button|input)[^>]*autofocus", html)
    html = posted(admin_client, url(approval, "approve/"), digest=approval.digest, note="checked with Ann")
    assert "is approved: it runs within moments" in html
    assert "checked with Ann" in html
    assert state_of(approval) == "approved"
    data = payload("approval.decided")["data"]
    assert (data["vote"], data["door"], data["note"]) == ("approve", "admin", "checked with Ann")


def test_rejecting_needs_a_note_which_the_typed_page_keeps(admin_client: Client) -> None:
    approval = held()
    html = posted(admin_client, url(approval, "reject/"), digest=approval.digest, note=" ")
    assert "A rejection needs a note" in html
    assert state_of(approval) == "pending"
    html = posted(admin_client, url(approval, "reject/"), digest=approval.digest, note="Ask for less.")
    assert "Ask for less." in html
    assert state_of(approval) == "rejected"
    assert Call.objects.get(pk=approval.call_id).state == "cancelled"


def test_a_destructive_call_is_approved_only_with_a_note(admin_client: Client) -> None:
    approval = held("drop")
    assert "required" in page(admin_client, url(approval, "approve/"))
    assert "A note is required" in posted(admin_client, url(approval, "approve/"), digest=approval.digest, note="")
    assert state_of(approval) == "pending"


@pytest.mark.parametrize("digest", ["", "0" * 64, None])
def test_a_digest_that_is_not_the_requests_decides_nothing(admin_client: Client, digest: str | None) -> None:
    approval = held()
    data = {"note": "fine"} | ({} if digest is None else {"digest": digest})
    html = posted(admin_client, url(approval, "approve/"), **data)
    assert "What was shown is not what is stored" in html
    assert state_of(approval) == "pending"
    assert not Decision.objects.exists()


def test_the_second_of_two_clicks_is_told_who_was_first(admin_client: Client) -> None:
    _, client = person("bea", DECIDE)
    approval = held()
    posted(client, url(approval, "approve/"), digest=approval.digest, note="")
    html = posted(admin_client, url(approval, "reject/"), digest=approval.digest, note="no")
    assert "approved already by bea" in html
    assert state_of(approval) == "approved"
    assert Decision.objects.count() == 1


def test_a_quorum_is_counted_and_said(admin_client: Client) -> None:
    Rule.objects.create(name="two", effect="require_approval", server="box", approvals=2)
    _, client = person("bea", DECIDE)
    approval = held()
    assert "more are needed" in posted(admin_client, url(approval, "approve/"), digest=approval.digest, note="")
    html = posted(admin_client, url(approval, "approve/"), digest=approval.digest, note="")
    assert "another person is needed" in html
    assert "is approved" in posted(client, url(approval, "approve/"), digest=approval.digest, note="")


def test_who_asked_finds_no_button_while_somebody_else_can_decide() -> None:
    asker, client = person("asker", DECIDE)
    person("other", DECIDE)
    approval = held(principal="token:ci", user=asker)
    html = page(client, url(approval))
    assert "Who asked can not decide" in html
    assert "approve-link" not in html
    assert "Who asked can not decide" in posted(client, url(approval, "approve/"), digest=approval.digest, note="x")
    assert state_of(approval) == "pending"


def test_the_only_approver_decides_what_they_asked_for_and_the_page_says_so() -> None:
    asker, client = person("asker", DECIDE)
    approval = held(principal="token:ci", user=asker)
    assert "Single approver" in page(client, url(approval))
    posted(client, url(approval, "approve/"), digest=approval.digest, note="")
    assert payload("approval.decided")["data"]["singleApprover"] is True


def test_a_late_click_is_refused(admin_client: Client) -> None:
    approval = held()
    Approval.objects.filter(pk=approval.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    html = posted(admin_client, url(approval, "approve/"), digest=approval.digest, note="")
    assert "expired already" in html
    assert state_of(approval) == "expired"


def test_nothing_is_decided_by_opening_a_link(admin_client: Client) -> None:
    approval = held()
    for rest in ("change/", "approve/", "reject/"):
        page(admin_client, url(approval, rest), digest=approval.digest, note="x", post="yes")
    assert state_of(approval) == "pending"


def test_deciding_needs_the_token_of_the_form() -> None:
    user, _ = person("bea", DECIDE)
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    approval = held()
    answer = client.post(url(approval, "approve/"), {"digest": approval.digest, "note": "x"})
    assert answer.status_code == 403
    assert state_of(approval) == "pending"


def test_looking_and_deciding_are_two_rights() -> None:
    approval = held()
    looker = staff_client("approvals.view_approval")
    html = page(looker, url(approval))
    assert "approve-link" not in html
    for rest in ("approve/", "reject/"):
        assert looker.get(url(approval, rest)).status_code == 403
        assert looker.post(url(approval, rest), {"digest": approval.digest, "note": "x"}).status_code == 403
    _, nobody = person("nobody", "workers.view_worker")
    assert nobody.get(LIST).status_code == 403
    assert nobody.get(url(approval)).status_code in {302, 403}
    _, decider = person("decider", DECIDE)
    assert "approve-link" in page(decider, url(approval))
    assert state_of(approval) == "pending"


def test_nobody_adds_changes_or_deletes_a_request_by_hand(admin_client: Client) -> None:
    approval = held()
    assert admin_client.get(f"{LIST}add/").status_code == 403
    assert admin_client.post(f"{LIST}{approval.pk}/change/", {"state": "approved"}).status_code == 403
    assert admin_client.post(f"{LIST}{approval.pk}/delete/", {"post": "yes"}).status_code == 403
    assert state_of(approval) == "pending"


# -- several at once


def bulk(client: Client, action: str, *approvals: Approval, **data: Any) -> str:
    chosen = {"action": action, "_selected_action": [approval.pk for approval in approvals]}
    return posted(client, LIST, **chosen, **data)


def test_several_are_rejected_with_one_note(admin_client: Client) -> None:
    one, two = held(id="1"), held(id="2")
    html = bulk(admin_client, "reject_selected", one, two)
    assert "rejected for good" in html
    assert state_of(one) == "pending"
    assert "needs a note" in bulk(admin_client, "reject_selected", one, two, post="yes", note=" ")
    bulk(admin_client, "reject_selected", one, two, post="yes", note="The run went astray.")
    assert state_of(one) == state_of(two) == "rejected"
    assert {decision.note for decision in Decision.objects.all()} == {"The run went astray."}


def test_there_is_no_way_to_approve_several_at_once(admin_client: Client) -> None:
    approval = held()
    html = page(admin_client, LIST)
    assert "reject_selected" in html
    assert "approve_selected" not in html
    bulk(admin_client, "approve_selected", approval, post="yes", note="x")
    assert state_of(approval) == "pending"


def test_who_only_looks_can_not_reject_several() -> None:
    approval = held(principal=AGENT)
    looker = staff_client("approvals.view_approval")
    assert "reject_selected" not in page(looker, LIST)
    bulk(looker, "reject_selected", approval, post="yes", note="x")
    assert state_of(approval) == "pending"
