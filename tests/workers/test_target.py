"""The worker tools as the gate sees them: what they make in one transaction, and what they do not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from approvals.governor import decide, decide_now
from approvals.models import Call
from approvals.targets import CallRequest
from audit.models import Entry
from audit.services import verify
from core.errors import MeahError
from tests.rows import make_worker
from workers.models import ProviderModel, Worker
from workers.target import SERVER, DryRun, Started, WorkersTarget

pytestmark = pytest.mark.django_db

NOBODY = "w_" + "0" * 20


def ask(tool: str, **arguments: Any) -> Any:
    return decide_now(CallRequest("agent:test", SERVER, f"meah_{tool}", arguments, "mcp", owner="p_mine")).result


def trace() -> tuple[int, int, int]:
    return Call.objects.count(), Worker.objects.count(), Entry.objects.count()


def test_a_start_makes_the_call_the_worker_and_its_entry_at_once() -> None:
    started = ask("run_agent", task="Look.", label="first", context=["a", {"name": "b.txt", "content": "c"}])
    assert isinstance(started, Started)
    (worker,) = Worker.objects.all()
    assert started.public_ids == [worker.public_id]
    assert (worker.state, worker.owner, worker.principal, worker.label) == ("queued", "p_mine", "agent:test", "first")
    assert worker.context == [{"name": "", "content": "a"}, {"name": "b.txt", "content": "c"}]
    assert (worker.call.state, worker.call.tool) == ("done", "meah_run_agent")
    (entry,) = Entry.objects.all()
    assert (entry.kind, entry.subject) == ("worker.queued", worker.public_id)
    assert json.loads(bytes(entry.payload))["data"]["call"] == worker.call.public_id


def test_a_parallel_start_is_one_call_and_keeps_the_place_of_what_can_not_start() -> None:
    started = ask(
        "parallel_agents",
        workers=[
            {"task": "one"},
            {"task": "two", "provider": "nobody"},
            {"task": "three", "dryRun": True},
            {"task": "4"},
        ],
    )
    states = [item.state if isinstance(item, Worker) else item.get("state", "dry") for item in started.items]
    assert states == ["queued", "failed", "dry", "queued"]
    assert started.items[1]["workerId"] is None and "nobody" in started.items[1]["error"]["message"]
    assert trace() == (1, 2, 2)
    assert {worker.call_id for worker in Worker.objects.all()} == {Call.objects.get().pk}
    views = ["arguments" in json.loads(bytes(entry.payload))["data"] for entry in Entry.objects.order_by("seq")]
    assert views == [True, False]


def test_a_parallel_start_of_which_nothing_starts_is_recorded_all_the_same() -> None:
    ask("parallel_agents", workers=[{"task": "x", "provider": "nobody"}])
    assert [entry.kind for entry in Entry.objects.order_by("seq")] == ["call.sent", "call.done"]


def test_dry_runs_leave_no_trace() -> None:
    shown = ask("run_agent", task="Look.", dryRun=True)
    assert isinstance(shown, DryRun) and shown.data["dryRun"] is True
    assert isinstance(ask("delegate_task", task="Look.", dryRun=True), DryRun)
    both = ask("parallel_agents", workers=[{"task": "one", "dryRun": True}, {"task": "two", "dryRun": True}])
    assert [item["dryRun"] for item in both.items] == [True, True]
    assert trace() == (0, 0, 0)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("run_agent", {"task": "x", "provider": "nobody"}),
        ("run_agent", {"task": ""}),
        ("run_agent", {"task": "x", "dryRun": "yes"}),
        ("parallel_agents", {"workers": [{"task": "x"}, {"task": "y", "role": "king"}]}),
        ("parallel_agents", {"workers": [{"task": "x"}] * 17}),
        ("cancel_agent", {"workerId": NOBODY}),
        ("cancel_agent", {"workerId": NOBODY, "reason": "sk-" + "a1B2c3D4" * 5}),
    ],
)
def test_what_is_refused_leaves_no_trace(tool: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(MeahError):
        ask(tool, **arguments)
    assert trace() == (0, 0, 0)


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_clean_up_of_a_worker_in_use_is_refused_before_it_is_recorded(state: str) -> None:
    worker = make_worker(state=state)
    before = trace()
    request = CallRequest("agent:test", SERVER, "meah_cleanup_workspace", {"workerId": worker.public_id}, "mcp")
    with pytest.raises(MeahError, match="in use"):
        decide(request)
    assert trace() == before


def test_a_cancel_is_a_call_with_the_order_in_between_and_a_repeat_orders_nothing() -> None:
    worker = make_worker(state="running")
    ask("cancel_agent", workerId=worker.public_id, reason="too slow")
    ask("cancel_agent", workerId=worker.public_id)
    kinds = [entry.kind for entry in Entry.objects.order_by("seq")]
    assert kinds == ["call.sent", "worker.cancel_requested", "call.done", "call.sent", "call.done"]
    worker.refresh_from_db()
    assert worker.cancel_reason == "too slow" and verify().whole


def test_a_rerun_is_the_same_task_again_and_points_back() -> None:
    first = ask("run_agent", task="Look.", context=["a"], constraints=["be brief"], role="reviewer", timeoutMs=7_000)
    original = first.items[0]
    again = ask("rerun_agent", workerId=original.public_id).items[0]
    again.refresh_from_db()
    same = ("task", "context", "constraints", "role", "provider", "model", "timeout_ms", "permission_profile")
    assert [getattr(again, name) for name in same] == [getattr(original, name) for name in same]
    assert again.rerun_of == original and again.public_id != original.public_id
    told = json.loads(bytes(Entry.objects.order_by("seq").last().payload))["data"]  # type: ignore[union-attr]
    assert told["rerunOf"] == original.public_id


def test_the_list_is_newest_first_in_pages_that_do_not_shift() -> None:
    workers = [make_worker() for _ in range(5)]
    newest_first = [worker.public_id for worker in reversed(workers)]
    first = ask("list_agents", limit=2)
    make_worker()
    second = ask("list_agents", limit=2, cursor=first["nextCursor"])
    third = ask("list_agents", limit=2, cursor=second["nextCursor"])
    found = [worker["workerId"] for page in (first, second, third) for worker in page["workers"]]
    assert found == newest_first and third["nextCursor"] is None
    make_worker(state="failed")
    assert [worker["state"] for worker in ask("list_agents", state="failed")["workers"]] == ["failed"]


@pytest.mark.parametrize("cursor", ["", "x", "dzE6", "dzI6MQ==", "dzE6LTE=", "dzE6" + "OTk5" * 20, "w1:5", "é"])
def test_a_cursor_of_somewhere_else_is_refused_or_the_newest_page(cursor: str) -> None:
    make_worker()
    if cursor == "":
        assert len(ask("list_agents", cursor=cursor)["workers"]) == 1
        return
    with pytest.raises(MeahError) as caught:
        ask("list_agents", cursor=cursor)
    assert caught.value.code == "E_INVALID_REQUEST"


def test_a_result_is_read_from_anywhere_to_its_end() -> None:
    worker = make_worker(state="succeeded", result="0123456789")
    read = ask("get_agent", workerId=worker.public_id, offset=4, limit=3)["result"]
    assert read == {"text": "456", "truncated": False, "nextOffset": 7}
    assert ask("get_agent", workerId=worker.public_id, offset=7)["result"]["nextOffset"] is None
    assert ask("get_agent", workerId=worker.public_id, offset=99)["result"]["text"] == ""
    assert "transcript" not in ask("get_agent", workerId=worker.public_id)
    assert ask("get_agent", workerId=worker.public_id, includeTranscript=True)["transcript"] is None


def test_the_models_say_whether_a_key_is_set_and_never_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "MEAH_PROVIDER_ONE_BASE_URL": "https://one.example/v1",
        "MEAH_PROVIDER_ONE_API_KEY_ENV": "MEAH_TEST_ONE_KEY",
        "MEAH_TEST_ONE_KEY": "correct-horse-battery-staple",
        "MEAH_PROVIDER_TWO_BASE_URL": "https://two.example/v1",
        "MEAH_PROVIDER_TWO_API_KEY_ENV": "MEAH_TEST_TWO_KEY",
        "MEAH_PROVIDER_THREE_BASE_URL": "http://127.0.0.1:1/v1",
        "MEAH_PROVIDER_THREE_MODELS": "a,b",
    }.items():
        monkeypatch.setenv(name, value)
    told = ask("list_models")
    providers = {provider["name"]: provider for provider in told["providers"]}
    assert {name: provider["keySet"] for name, provider in providers.items()} == {
        "one": True,
        "two": False,
        "three": None,
    }
    assert providers["three"]["models"] == ["a", "b"] and providers["three"]["private"] is True
    assert "correct-horse" not in json.dumps(told)
    assert told["limits"]["maxConcurrent"] == told["runtime"]["capacity"] == 4
    assert told["roles"][0]["name"] == "researcher"
    assert ProviderModel.objects.count() == 0


def test_the_target_knows_every_tool_and_no_other() -> None:
    target = WorkersTarget()
    assert len(target.tools()) == 9
    for tool in target.tools():
        assert target.facts(tool, {}) and target.schema(tool)
    with pytest.raises(MeahError) as caught:
        target.facts("meah_nothing", {})
    assert caught.value.code == "E_NOT_FOUND"
