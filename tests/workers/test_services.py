"""The life of a worker in its rows: every change leaves its state, its entry, or neither."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from approvals.models import Process
from approvals.processes import lock_path
from audit.models import Entry
from audit.services import record_many, verify
from core.errors import MeahError
from core.locks import hold
from core.secrets import name_secrets
from tests.rows import living_console, make_call, make_worker
from workers import services
from workers.models import Provider, ProviderModel, Worker, WorkerState
from workers.objects import SUMMARY_FIELDS, not_started, worker_object, worker_summary
from workers.preparation import prepare
from workers.providers.base import Adaptation, Completion, Usage
from workers.routing import Config, Price
from workers.schemas import TaskIn
from workers.services import Outcome

pytestmark = pytest.mark.django_db

PRICE = Price(Decimal("0.50"), Decimal("2"), "EUR")


def entries() -> list[tuple[str, str]]:
    return list(Entry.objects.order_by("seq").values_list("kind", "subject"))


def last() -> Any:
    return json.loads(bytes(Entry.objects.order_by("seq").last().payload))["data"]  # type: ignore[union-attr]


def queued(task: str = "Look.", owner: str = "p_mine") -> Worker:
    with transaction.atomic():
        prepared = prepare(TaskIn(task=task), Config())
        worker, entry = services.enqueue(prepared, call=make_call(), owner=owner, verdict={"effect": "allow"})
        record_many([entry])
    return worker


def running(**values: Any) -> Worker:
    return make_worker(state="running", owner="p_mine", **values)


def test_workers_start_in_the_order_they_came_in_and_only_in_their_own_process() -> None:
    first, second = queued("one"), queued("two")
    queued("elsewhere", owner="p_other")
    assert [services.start_next("p_mine"), services.start_next("p_mine")] == [first, second]
    assert services.start_next("p_mine") is None
    first.refresh_from_db()
    assert first.state == WorkerState.RUNNING and first.started_at is not None
    kinds = [kind for kind, subject in entries() if subject == first.public_id]
    assert kinds == ["worker.queued", "worker.started"]


def test_a_queued_entry_says_what_is_asked_but_not_the_text() -> None:
    queued("A secret plan.")
    told = last()
    assert (told["provider"], told["model"], told["taskChars"], told["verdict"]) == (
        "mock",
        "mock-1",
        14,
        {"effect": "allow"},
    )
    assert "secret plan" not in json.dumps(told)


def test_an_end_is_written_once() -> None:
    worker = running()
    assert services.finish(worker, Outcome(WorkerState.SUCCEEDED, text="Done."))
    assert not services.finish(worker, Outcome(WorkerState.FAILED, error=MeahError("E_PROVIDER")))
    worker.refresh_from_db()
    assert (worker.state, worker.result, worker.error) == ("succeeded", "Done.", None)
    assert entries() == [("worker.finished", worker.public_id)]


def test_usage_and_cost_are_kept_and_unknown_stays_unknown() -> None:
    completion = Completion("x", resolved_model="m-2026", attempts=2, waited_ms=300)
    usage = Usage(input_tokens=1_000_000, output_tokens=500_000, reasoning_tokens=7)
    priced, unpriced, uncounted = running(), running(), running()
    services.finish(priced, Outcome(WorkerState.SUCCEEDED, completion=completion, usage=usage, price=PRICE))
    assert (last()["cost"], last()["currency"]) == ("1.5", "EUR")
    services.finish(unpriced, Outcome(WorkerState.SUCCEEDED, completion=completion, usage=usage))
    assert last()["cost"] is None
    services.finish(uncounted, Outcome(WorkerState.SUCCEEDED, usage=Usage(input_tokens=5), price=PRICE))
    for worker in (priced, unpriced, uncounted):
        worker.refresh_from_db()
    assert (priced.cost, priced.currency, priced.reasoning_tokens) == (Decimal("1.5"), "EUR", 7)
    assert (priced.attempts, priced.waited_ms, priced.resolved_model) == (2, 300, "m-2026")
    assert (unpriced.cost, unpriced.currency, unpriced.input_tokens) == (None, "", 1_000_000)
    assert (uncounted.cost, uncounted.input_tokens, uncounted.output_tokens) == (None, 5, None)


def test_a_failed_worker_keeps_its_tokens() -> None:
    worker = running()
    outcome = Outcome(WorkerState.FAILED, error=MeahError("E_INVALID_REQUEST"), usage=Usage(10, 2000), price=PRICE)
    services.finish(worker, outcome)
    worker.refresh_from_db()
    assert worker.output_tokens == 2000 and worker.cost == Decimal("0.004005")


def test_no_error_is_stored_with_a_key_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEAH_TEST_SERVICES_KEY", "correct-horse-battery-staple")
    name_secrets(["MEAH_TEST_SERVICES_KEY"])
    worker = running()
    error = MeahError(
        "E_PROVIDER", "said correct-horse-battery-staple", details={"body": "correct-horse-battery-staple"}
    )
    services.finish(worker, Outcome(WorkerState.FAILED, error=error))
    worker.refresh_from_db()
    assert "correct-horse" not in json.dumps(worker.error) and "redacted" in worker.error["message"]


def cancel(worker: Worker, reason: str = "") -> list[str]:
    with transaction.atomic():
        made = services.request_cancel(worker, principal="agent:test", reason=reason)
        record_many(made)
    worker.refresh_from_db()
    return [entry.kind for entry in made]


def test_a_cancelled_worker_that_waits_ends_at_once_and_never_starts() -> None:
    worker = queued()
    assert cancel(worker, "no longer wanted") == ["worker.cancel_requested", "worker.finished"]
    assert worker.state == WorkerState.CANCELLED and worker.started_at is None and worker.finished_at is not None
    assert worker.error["code"] == "E_CANCELLED" and "no longer wanted" in worker.error["message"]
    assert services.start_next("p_mine") is None


def test_a_cancelled_worker_that_runs_is_told_to_stop_and_a_finished_one_stays() -> None:
    worker = running()
    assert cancel(worker, "too slow") == ["worker.cancel_requested"]
    assert worker.state == WorkerState.RUNNING and worker.cancel_requested_at is not None
    assert cancel(worker, "again") == []
    services.finish(worker, Outcome(WorkerState.CANCELLED))
    worker.refresh_from_db()
    assert worker.state == WorkerState.CANCELLED and "too slow" in worker.error["message"]
    assert cancel(worker) == []


def test_an_audit_chain_that_fails_leaves_the_worker_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MeahError("E_AUDIT")

    worker = queued()
    monkeypatch.setattr(services, "record", refuse)
    monkeypatch.setattr(services, "record_many", refuse)
    with pytest.raises(MeahError):
        services.start_next("p_mine")
    with pytest.raises(MeahError):
        services.cancel_many([worker.public_id], principal="system", reason="")
    worker.refresh_from_db()
    assert worker.state == WorkerState.QUEUED and worker.cancel_requested_at is None


def test_the_workers_of_a_dead_process_fail_and_those_of_a_living_one_do_not() -> None:
    with living_console() as console:
        alive = make_worker(state="running", owner=console.public_id)
        dead = [make_worker(state=state, owner="p_dead", partial="half") for state in ("queued", "running")]
        ended = make_worker(state="succeeded", owner="p_dead")
        assert services.settle_orphans() == 2
        assert services.settle_orphans() == 0
    for worker in (alive, *dead, ended):
        worker.refresh_from_db()
    assert (alive.state, ended.state) == ("running", "succeeded")
    for worker in dead:
        assert worker.state == WorkerState.FAILED and worker.partial == ""
        assert worker.error["code"] == "E_UNAVAILABLE" and worker.error["retryable"] is True
        assert worker.error["details"]["reason"] == "process_died"
    assert verify().whole


def test_a_process_that_has_a_lock_but_no_row_yet_does_not_own_anything() -> None:
    held = hold(lock_path("p_joining"))
    assert held is not None
    make_worker(state="queued", owner="p_joining")
    assert services.settle_orphans() == 1
    held.release()
    assert not Process.objects.exists()


def test_a_worker_whose_end_could_not_be_written_is_lost_and_says_so() -> None:
    kept, lost, other = running(), running(), make_worker(state="running", owner="p_other")
    assert services.settle_lost("p_mine", but=[kept.public_id]) == 1
    for worker in (kept, lost, other):
        worker.refresh_from_db()
    assert (kept.state, lost.state, other.state) == ("running", "failed", "running")
    assert lost.error["details"]["reason"] == "outcome_lost"


def test_what_a_model_taught_is_kept_with_its_evidence_and_the_newer_lesson_wins() -> None:
    rename = Adaptation("max_tokens", "rename", "max_completion_tokens", "use max_completion_tokens")
    drop = Adaptation("temperature", "drop", None, "temperature is not supported")
    services.learn("fake", "m-1", [rename, drop])
    clamp = Adaptation("temperature", "clamp", 1, "at most 1")
    services.learn("fake", "m-1", [clamp])
    assert services.learned_adaptations("fake", "m-1") == [rename, clamp]
    assert services.learned_adaptations("fake", "m-2") == []
    row = ProviderModel.objects.get()
    assert row.learned_at is not None and row.listed is False and Provider.objects.get().base_url == ""
    assert entries() == [("provider.added", "fake"), *[("provider.adapted", "fake")] * 2]


def test_partial_text_is_shown_only_while_the_worker_runs() -> None:
    worker = running()
    services.update_partial(worker.public_id, "x" * 70_000 + "end")
    worker.refresh_from_db()
    assert len(worker.partial) == 65_536 and worker.partial.endswith("end")
    services.update_partial(worker.public_id, "\N{GRINNING FACE}" * 70_000 + "end")
    worker.refresh_from_db()
    assert 65_533 <= len(worker.partial.encode()) <= 65_536 and worker.partial.endswith("\N{GRINNING FACE}end")
    services.finish(worker, Outcome(WorkerState.SUCCEEDED, text="whole"))
    services.update_partial(worker.public_id, "late")
    worker.refresh_from_db()
    assert worker.partial == ""


def test_an_unknown_worker_is_not_found() -> None:
    with pytest.raises(MeahError) as caught:
        services.get("w_" + "0" * 20)
    assert caught.value.code == "E_NOT_FOUND"


def test_a_worker_is_one_object_on_every_door() -> None:
    worker = make_worker(label="")
    worker.refresh_from_db()
    assert tuple(worker_summary(worker)) == SUMMARY_FIELDS
    whole = worker_object(worker)
    assert set(whole) == {*SUMMARY_FIELDS, "result"}
    assert whole["label"] is None and whole["cost"] is None and whole["usage"]["inputTokens"] is None
    nobody = not_started({"code": "E_CONFIG"}, label="a", role="coder", permission_profile="none")
    assert set(nobody) == set(whole) and set(nobody["usage"]) == set(whole["usage"])
    assert (nobody["workerId"], nobody["state"], nobody["label"]) == (None, "failed", "a")


def test_a_list_of_summaries_reads_no_long_texts(django_assert_num_queries: Any) -> None:
    for _ in range(3):
        make_worker()
    with django_assert_num_queries(1):
        assert len([worker_summary(worker) for worker in Worker.objects.defer(*services.LONG_COLUMNS)]) == 3


def test_the_workspace_of_a_worker_whose_process_died_can_still_be_found() -> None:
    queued(owner="p_dead")
    worker = services.start_next("p_dead")
    assert worker is not None and worker.workspace == worker.public_id
    bare = make_worker(state="queued", owner="p_dead", permission_profile="none")
    assert services.start_next("p_dead") == bare
    assert services.settle_orphans() == 2
    worker.refresh_from_db()
    bare.refresh_from_db()
    assert (worker.state, worker.workspace, bare.workspace) == ("failed", worker.public_id, "")


def test_the_chain_does_not_hold_the_reason_of_a_cancel() -> None:
    worker = running()
    cancel(worker, "a secret plan")
    assert worker.cancel_reason == "a secret plan"
    assert not any(b"secret plan" in bytes(entry.payload) for entry in Entry.objects.all())


def test_a_purged_worker_has_no_result_and_says_when_it_lost_it() -> None:
    worker = make_worker(state="succeeded", purged_at=timezone.now())
    worker.refresh_from_db()
    told = worker_object(worker)
    assert told["result"] is None and told["purgedAt"].endswith("Z")
    assert worker_object(make_worker_fresh())["result"] == {"text": "", "truncated": False, "nextOffset": None}


def make_worker_fresh() -> Worker:
    worker = make_worker(state="succeeded")
    worker.refresh_from_db()
    return worker
