"""Workers in the admin: found, read, started, cancelled, run again, cleaned up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from approvals.models import Call, Process
from audit.models import Entry
from tests.rows import SHOWN_SPOOF, SPOOF, living_console, make_worker, page, posted, staff_client
from workers import services
from workers.config import effective
from workers.housekeeping import workspace_root
from workers.models import Worker, WorkerState
from workers.workspace import Workspace

LIST = "/admin/workers/worker/"
ADD = "/admin/workers/worker/add/"
EMPTY_CONTEXT = {"context-TOTAL_FORMS": "0", "context-INITIAL_FORMS": "0"}


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest) -> None:
    """Either a transaction of the test, or a home with a database of its own."""
    if "home" not in request.fixturenames:
        request.getfixturevalue("db")


@pytest.fixture
def console(db: None) -> Iterator[Process]:
    with living_console() as process:
        yield process


def detail(worker: Worker, rest: str = "change/") -> str:
    return f"{LIST}{worker.public_id}/{rest}"


def payload(kind: str) -> dict[str, Any]:
    entry = Entry.objects.filter(kind=kind).order_by("-seq").first()
    assert entry is not None
    read: dict[str, Any] = json.loads(bytes(entry.payload))
    return read


# -- the list


def test_an_empty_list_says_what_to_do_first(admin_client: Client) -> None:
    html = page(admin_client, LIST)
    assert "No worker has run yet" in html
    assert f'href="{ADD}"' in html


def test_the_list_shows_state_tokens_and_cost_and_leaves_unknown_unknown(admin_client: Client) -> None:
    make_worker(
        label="Known", state="succeeded", input_tokens=1_000, output_tokens=234, cost=Decimal("0.0125"), currency="EUR"
    )
    make_worker(label="Unpriced", state="failed")
    html = page(admin_client, LIST)
    assert "1,234" in html
    assert "0.0125 EUR" in html
    assert "unknown" in html
    assert "meah-good" in html
    assert "meah-bad" in html


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"state__exact": "failed"}, "second"),
        ({"role": "reviewer"}, "second"),
        ({"provider": "glm"}, "second"),
        ({"q": "needle"}, "second"),
        ({"q": "second"}, "second"),
    ],
)
def test_workers_are_found_by_state_role_provider_and_words(
    admin_client: Client, query: dict[str, str], found: str
) -> None:
    make_worker(label="first", state="succeeded")
    make_worker(label="second", state="failed", role="reviewer", provider="glm", task="look for the needle")
    html = page(admin_client, LIST, **query)
    assert found in html
    assert ">first<" not in html


def test_the_list_asks_few_questions_however_long_it_is(
    admin_client: Client, django_assert_max_num_queries: Any
) -> None:
    call = make_worker().call
    for number in range(60):
        make_worker(call=call, label=f"worker {number}", task="x" * 10_000)
    with django_assert_max_num_queries(20):
        html = page(admin_client, LIST)
    assert "61 workers" in html
    assert "x" * 200 not in html


def test_foreign_text_is_escaped_and_its_hidden_characters_are_shown(admin_client: Client) -> None:
    worker = make_worker(
        label=SPOOF,
        task=SPOOF,
        state="succeeded",
        result=SPOOF,
        principal=SPOOF,
        model=SPOOF,
        context=[{"name": SPOOF, "content": SPOOF}],
        constraints=[SPOOF],
        expected_output=SPOOF,
        notes=[SPOOF],
        resolved_model="x" + SPOOF,
        transcript={"answer": SPOOF},
        dropped_context=[SPOOF],
        context_truncated=True,
    )
    for html in (page(admin_client, LIST), page(admin_client, detail(worker))):
        assert SHOWN_SPOOF in html
        assert "<script>alert" not in html
        assert "\u202e" not in html
        assert "\u200b" not in html


# -- one worker


def test_a_failed_worker_shows_its_error_with_the_way_out(admin_client: Client) -> None:
    error = {"code": "E_RATE_LIMIT", "message": "Too many.", "hint": "Wait a minute.", "details": {"reason": "quota"}}
    html = page(admin_client, detail(make_worker(state="failed", error=error)))
    assert "E_RATE_LIMIT" in html
    assert "Too many." in html
    assert "Wait a minute." in html
    assert "quota" in html


def test_the_page_says_whether_it_shows_the_record_or_the_transcript(admin_client: Client) -> None:
    assert "are not kept" in page(admin_client, detail(make_worker(state="succeeded")))
    kept = page(admin_client, detail(make_worker(state="succeeded", transcript={"answer": "as it was sent"})))
    assert "as it was sent" in kept
    assert "are not kept" not in kept


def test_a_purged_worker_says_so_and_can_not_run_again(admin_client: Client, console: Process) -> None:
    worker = make_worker(state="succeeded", task="", purged_at=timezone.now())
    assert "were purged" in page(admin_client, detail(worker))
    assert "no longer kept" in posted(admin_client, detail(worker, "rerun/"))
    assert Worker.objects.count() == 1


def test_the_page_is_found_by_public_id_and_by_key_and_nothing_else(admin_client: Client) -> None:
    worker = make_worker(label="Found")
    assert "Found" in page(admin_client, f"{LIST}{worker.pk}/change/")
    assert admin_client.get(f"{LIST}w_unknown/change/").status_code == 302


def test_a_worker_that_is_looked_at_again_is_sent_without_what_can_not_have_changed(admin_client: Client) -> None:
    worker = make_worker(state="running", task="the long task", partial="so far", started_at=timezone.now())
    live = page(admin_client, detail(worker), live=1)
    assert "so far" in live
    assert '<pre class="meah-text">the long task' not in live
    assert '<pre class="meah-text">the long task' in page(admin_client, detail(worker))


# -- buttons


def test_cancelling_a_queued_worker_ends_it_and_is_recorded_under_the_persons_name(admin_client: Client) -> None:
    worker = make_worker()
    assert f"{worker.public_id} is cancelled." in posted(admin_client, detail(worker, "cancel/"))
    worker.refresh_from_db()
    assert worker.state == WorkerState.CANCELLED
    assert payload("worker.cancel_requested")["principal"] == "user:admin"
    assert Call.objects.get(tool="meah_cancel_agent").door == "admin"


def test_cancelling_a_running_worker_orders_it_to_stop(admin_client: Client) -> None:
    worker = make_worker(state="running", started_at=timezone.now())
    assert "is told to stop" in posted(admin_client, detail(worker, "cancel/"))
    worker.refresh_from_db()
    assert worker.cancel_requested_at is not None
    assert "told to stop" in page(admin_client, detail(worker))


def test_buttons_are_posts_only(admin_client: Client, console: Process) -> None:
    worker = make_worker()
    for button in ("cancel/", "rerun/", "clean-up/"):
        assert admin_client.get(detail(worker, button)).status_code == 404
    assert Worker.objects.get().state == WorkerState.QUEUED


def test_running_again_makes_a_new_worker_with_the_same_task_through_the_gate(
    admin_client: Client, console: Process
) -> None:
    first = make_worker(
        state="failed",
        context=[{"name": "a.md", "content": "material"}],
        constraints=["short"],
        expected_output="a list",
        temperature=0.5,
        label="Again",
    )
    html = posted(admin_client, detail(first, "rerun/"))
    again = Worker.objects.latest("id")
    assert f"{first.public_id} runs again as {again.public_id}." in html
    for name in ("task", "context", "constraints", "expected_output", "temperature", "label", "model", "timeout_ms"):
        assert getattr(again, name) == getattr(first, name)
    assert (again.rerun_of, again.owner, again.state) == (first, console.public_id, WorkerState.QUEUED)
    assert again.principal == "user:admin"
    assert payload("worker.queued")["data"]["rerunOf"] == first.public_id


def test_running_again_without_a_console_says_how_to_start_one(admin_client: Client) -> None:
    html = posted(admin_client, detail(make_worker(state="failed"), "rerun/"))
    assert "No MEAH console is running" in html
    assert "make run" in html
    assert Worker.objects.count() == 1


def test_running_again_after_its_provider_has_gone_says_so(admin_client: Client, console: Process) -> None:
    html = posted(admin_client, detail(make_worker(state="failed", provider="gone"), "rerun/"))
    assert "There is no provider" in html
    assert Worker.objects.count() == 1


@pytest.mark.parametrize("button", ["cancel/", "clean-up/"])
def test_acting_needs_the_right_to_change_workers(button: str) -> None:
    worker = make_worker()
    client = staff_client("workers.view_worker", "workers.add_worker")
    assert client.post(detail(worker, button)).status_code == 403
    assert "cancel-button" not in page(client, detail(worker))
    worker.refresh_from_db()
    assert worker.state == WorkerState.QUEUED


def test_starting_needs_the_right_to_add_workers(console: Process) -> None:
    worker = make_worker(state="succeeded")
    client = staff_client("workers.view_worker", "workers.change_worker")
    assert client.post(detail(worker, "rerun/")).status_code == 403
    assert client.get(ADD).status_code == 403
    assert "rerun-button" not in page(client, detail(worker))
    assert Worker.objects.count() == 1


def test_workers_are_neither_changed_nor_deleted_by_hand(admin_client: Client) -> None:
    worker = make_worker(label="as it was")
    assert admin_client.post(detail(worker), {"label": "forged"}).status_code == 403
    assert admin_client.post(detail(worker, "delete/"), {"post": "yes"}).status_code == 403
    assert Worker.objects.get().label == "as it was"


# -- several at once


def test_cancelling_several_asks_first_and_leaves_finished_ones_alone(admin_client: Client) -> None:
    queued, done = make_worker(label="waits"), make_worker(label="is over", state="succeeded")
    chosen = {"action": "cancel_selected", "_selected_action": [queued.pk, done.pk]}
    asked = posted(admin_client, LIST, **chosen)
    assert "are you sure" in asked
    assert "waits" in asked
    assert "is over" not in asked
    queued.refresh_from_db()
    assert queued.state == WorkerState.QUEUED
    posted(admin_client, LIST, **chosen, post="yes")
    queued.refresh_from_db()
    done.refresh_from_db()
    assert (queued.state, done.state) == (WorkerState.CANCELLED, WorkerState.SUCCEEDED)


def test_actions_on_several_need_the_right_to_change_workers() -> None:
    worker = make_worker()
    client = staff_client("workers.view_worker")
    client.post(LIST, {"action": "cancel_selected", "_selected_action": [worker.pk], "post": "yes"})
    worker.refresh_from_db()
    assert worker.state == WorkerState.QUEUED


# -- a new one


def test_a_person_hands_over_a_task_with_context_and_limits(admin_client: Client, console: Process) -> None:
    response = admin_client.post(
        ADD,
        {
            "task": "Summarise it.",
            "role": "summarizer",
            "provider": "",
            "model": "",
            "label": "Mine",
            "constraints": "one\n\n two ",
            "expected_output": "five lines",
            "timeout_ms": "5000",
            "max_output_tokens": "500",
            "temperature": "0.2",
            "permission_profile": "none",
            "context-TOTAL_FORMS": "2",
            "context-INITIAL_FORMS": "0",
            "context-0-name": "notes.md",
            "context-0-content": "  the notes",
            "context-1-name": "",
            "context-1-content": "",
        },
    )
    worker = Worker.objects.get()
    assert response.status_code == 302
    assert response.url == detail(worker)
    assert (worker.task, worker.role, worker.provider) == ("Summarise it.", "summarizer", "mock")
    assert worker.context == [{"name": "notes.md", "content": "  the notes"}]
    assert worker.constraints == ["one", "two"]
    assert (worker.timeout_ms, worker.max_output_tokens, worker.temperature) == (5_000, 500, 0.2)
    assert (worker.owner, worker.principal, worker.call.door) == (console.public_id, "user:admin", "admin")


def test_the_smallest_form_is_a_task(admin_client: Client, console: Process) -> None:
    admin_client.post(ADD, {"task": "Go.", "role": "researcher", "permission_profile": "read-only", **EMPTY_CONTEXT})
    worker = Worker.objects.get()
    assert worker.timeout_ms == effective().limits.timeout_ms


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"task": "   "}, "required"),
        ({"provider": "gone"}, "Select a valid choice"),
        ({"label": "two\u202elines"}, "hidden or control characters"),
        ({"timeout_ms": "-5"}, "greater than or equal to 100"),
        ({"task": "x" * 70_000}, "maxContextChars"),
        ({"label": "sk-ant-api03-" + "a1B2" * 24}, "looks like a key"),
    ],
)
def test_what_the_gate_or_the_form_refuses_is_told_and_starts_nothing(
    admin_client: Client, console: Process, given: dict[str, str], told: str
) -> None:
    form = {"task": "Go.", "role": "researcher", "permission_profile": "read-only", **EMPTY_CONTEXT}
    html = posted(admin_client, ADD, **(form | given))
    assert told in html
    assert not Worker.objects.exists()


def test_the_form_is_filled_from_another_worker(admin_client: Client) -> None:
    worker = make_worker(task="the task before", context=[{"name": "n", "content": "the material before"}])
    html = page(admin_client, ADD, **{"from": worker.public_id})
    assert "the task before" in html
    assert "the material before" in html


def test_a_form_filled_with_hidden_characters_says_so(admin_client: Client) -> None:
    hiding, plain = make_worker(task=SPOOF), make_worker()
    assert "holds hidden characters" in page(admin_client, ADD, **{"from": hiding.public_id})
    assert "holds hidden characters" not in page(admin_client, ADD, **{"from": plain.public_id})


def test_without_a_console_the_form_keeps_what_was_typed_and_says_how_to_start_one(admin_client: Client) -> None:
    form = {"task": "My long task.", "role": "researcher", "permission_profile": "read-only", **EMPTY_CONTEXT}
    html = posted(admin_client, ADD, **form)
    assert "make run" in html
    assert "My long task." in html


# -- through the database thread


def test_cleaning_up_deletes_the_workspace_and_keeps_the_record(home: Any) -> None:
    client = staff_client("workers.view_worker", "workers.change_worker")
    worker = make_worker(state="succeeded", workspace="w", finished_at=timezone.now() - timedelta(days=1))
    workspace = Workspace(workspace_root(effective()), worker.public_id)
    workspace.create()
    assert "is removed" in posted(client, detail(worker, "clean-up/"))
    assert not workspace.exists()
    worker.refresh_from_db()
    assert worker.workspace == ""
    assert Call.objects.get(tool="meah_cleanup_workspace").state == "done"


def test_cleaning_up_under_a_running_worker_is_refused_with_the_way_out(home: Any) -> None:
    client = staff_client("workers.view_worker", "workers.change_worker")
    worker = make_worker(state="running", workspace="w", started_at=timezone.now())
    assert "Cancel it first" in posted(client, detail(worker, "clean-up/"))


def test_the_workspace_of_a_worker_whose_process_died_is_cleaned_up_here(home: Any) -> None:
    client = staff_client("workers.view_worker", "workers.change_worker")
    worker = make_worker(state="queued", owner="p_dead")
    assert services.start_next("p_dead") == worker
    workspace = Workspace(workspace_root(effective()), worker.public_id)
    workspace.create()
    assert services.settle_orphans() == 1
    assert 'id="clean-button"' in page(client, detail(worker))
    chosen = {"action": "clean_up_selected", "_selected_action": str(worker.pk), "post": "yes"}
    assert "is removed" in posted(client, LIST, **chosen)
    assert not workspace.exists()
    assert ", removed" in page(client, detail(worker))
