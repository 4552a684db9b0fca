"""The gate: what is recorded of a call, in which order, and what can not get through."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from approvals import governor, targets
from approvals.executor import settle_orphans
from approvals.governor import decide_now, submit
from approvals.models import Call, CallState, EffectClass, Rule
from approvals.policy import Verdict
from approvals.targets import Applied, CallContext, CallRequest, Checked, ToolFacts
from audit.models import Entry
from audit.services import NewEntry, opens, verify
from core.errors import JsonObject, MeahError
from tests.conftest import Home

WRITE = ToolFacts(EffectClass.WRITE)
READ = ToolFacts(EffectClass.READ)
LOCAL = ToolFacts(EffectClass.WRITE, local=True)
POLL = ToolFacts(EffectClass.READ, recorded=False, local=True)


class Counter:
    """A target that counts what it did."""

    server = "counter"

    def __init__(self) -> None:
        self.facts_of = {"write": WRITE, "read": READ, "local": LOCAL, "poll": POLL, "own": LOCAL}
        self.done: list[str] = []
        self.outcome: Callable[[], Any] = lambda: {"ok": 1}
        self.began = asyncio.Event()

    def tools(self) -> Sequence[str]:
        return list(self.facts_of)

    def facts(self, tool: str, arguments: JsonObject) -> ToolFacts:
        if tool not in self.facts_of:
            raise MeahError("E_NOT_FOUND")
        return self.facts_of[tool]

    def check(self, request: CallRequest) -> Checked:
        if request.arguments.get("bad"):
            raise MeahError("E_INVALID_REQUEST", "bad is not good")
        return Checked(request.arguments)

    def needs(self, tool: str) -> Sequence[str]:
        return ()

    def apply(self, request: CallRequest, checked: Checked, call: Call | None, verdict: Verdict) -> Applied:
        self.done.append(request.tool)
        own = [NewEntry("counter.counted", "system"), NewEntry("counter.told", "system")]
        return Applied("applied", own if request.tool == "own" else [], replaces_call_entries=True)

    async def run(self, request: CallRequest, checked: Checked, context: CallContext) -> Any:
        self.done.append(request.tool)
        self.began.set()
        result = self.outcome()
        return await result if asyncio.iscoroutine(result) else result

    def store(self, result: Any) -> Any:
        return result

    def revive(self, request: CallRequest, checked: Checked, stored: Any) -> Any:
        return stored


@pytest.fixture
def counter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Counter:
    request.getfixturevalue("home" if "home" in request.fixturenames else "db")
    Rule.objects.create(name="tests", effect="allow", server="counter")
    made = Counter()
    monkeypatch.setitem(targets._targets, made.server, made)
    return made


def request(tool: str, **arguments: Any) -> CallRequest:
    return CallRequest("agent:test", "counter", tool, arguments, "mcp", owner="p_mine")


def kinds() -> list[str]:
    return list(Entry.objects.order_by("seq").values_list("kind", flat=True))


def data(kind: str) -> Any:
    return json.loads(bytes(Entry.objects.get(kind=kind).payload))["data"]


def raising(error: Exception) -> Callable[[], Any]:
    def outcome() -> Any:
        raise error

    return outcome


def test_a_local_call_is_sent_and_done_in_one_transaction(db: None, counter: Counter) -> None:
    assert decide_now(request("local", amount=3)).result == "applied"
    call = Call.objects.get()
    assert (call.state, call.effect_class, call.owner, call.door) == ("done", "write", "p_mine", "mcp")
    assert kinds() == ["call.sent", "call.done"]
    told = data("call.sent")
    assert told["verdict"]["effect"] == "allow" and json.loads(told["arguments"]["text"]) == {"amount": 3}
    # The row keeps what shows that the digest is of these arguments and no others.
    assert opens(told["arguments"], {"amount": 3}, call.arguments_salt)
    assert not opens(told["arguments"], {"amount": 4}, call.arguments_salt)


def test_entries_of_its_own_take_the_place_of_a_calls_and_carry_its_arguments(db: None, counter: Counter) -> None:
    decide_now(request("own", amount=3))
    assert kinds() == ["counter.counted", "counter.told"]
    assert opens(data("counter.counted")["arguments"], {"amount": 3}, Call.objects.get().arguments_salt)
    assert "arguments" not in data("counter.told")


def test_polling_leaves_no_trace(db: None, counter: Counter) -> None:
    assert decide_now(request("poll")).result == "applied"
    assert Call.objects.count() == 0 and kinds() == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"x": float("nan")}, "nan"),
        ({"x": 2**53}, "big_integer"),
        ({"x": "\ud800"}, "surrogate"),
        ({"x": "y" * (2**20)}, "too_large"),
        ({"x": object()}, "syntax"),
    ],
    ids=["nan", "big", "surrogate", "large", "object"],
)
def test_arguments_that_are_no_plain_json_or_too_many_are_refused(
    db: None, counter: Counter, arguments: JsonObject, reason: str
) -> None:
    with pytest.raises(MeahError) as caught:
        decide_now(request("local", **arguments))
    assert (caught.value.code, caught.value.reason) == ("E_INVALID_REQUEST", reason)
    assert counter.done == [] and Call.objects.count() == 0 and kinds() == []


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (CallRequest("agent:test", "nowhere", "local", {}, "mcp"), "E_NOT_FOUND"),
        (request("nothing"), "E_NOT_FOUND"),
        (request("local", bad=True), "E_INVALID_REQUEST"),
    ],
    ids=["server", "tool", "arguments"],
)
def test_what_is_refused_leaves_no_trace(db: None, counter: Counter, asked: CallRequest, code: str) -> None:
    with pytest.raises(MeahError) as caught:
        decide_now(asked)
    assert caught.value.code == code
    assert counter.done == [] and Call.objects.count() == 0 and kinds() == []


def test_a_sync_door_sends_nothing_and_leaves_the_call_to_an_executor(db: None, counter: Counter) -> None:
    assert decide_now(request("write")).status == "approved"
    assert counter.done == [] and Call.objects.get().state == CallState.HELD


def test_no_audit_row_no_effect(db: None, counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(governor, "record_many", raising_always)
    with pytest.raises(MeahError) as caught:
        decide_now(request("local"))
    assert caught.value.code == "E_AUDIT" and Call.objects.count() == 0


def raising_always(*_: object) -> None:
    raise MeahError("E_AUDIT")


@pytest.mark.parametrize(
    ("tool", "error", "state"),
    [
        ("write", MeahError("E_PERMISSION", "no"), "failed"),
        ("write", MeahError("E_TIMEOUT"), "unknown"),
        ("write", MeahError("E_NETWORK"), "unknown"),
        ("read", MeahError("E_TIMEOUT"), "failed"),
        ("write", RuntimeError("postgres://user:hunter2@host"), "unknown"),
    ],
)
def test_how_a_sent_call_ended_is_written_down(
    home: Home, run: Any, counter: Counter, tool: str, error: Exception, state: str
) -> None:
    counter.outcome = raising(error)
    with pytest.raises(MeahError) as caught:
        run(submit(request(tool)))
    assert "hunter2" not in str(caught.value.as_dict())
    call = Call.objects.get()
    assert call.state == state and call.finished_at is not None
    # An allowed read is written with its outcome.
    assert kinds() == [*(["call.sent"] if tool == "write" else []), f"call.{state}"]
    assert "hunter2" not in json.dumps(call.error) + json.dumps(data(f"call.{state}"))


def test_a_sent_call_that_succeeds_is_done_and_its_result_comes_back(home: Home, run: Any, counter: Counter) -> None:
    assert run(submit(request("write"))).result == {"ok": 1}
    assert Call.objects.get().state == CallState.DONE and kinds() == ["call.sent", "call.done"]


def test_of_a_call_that_is_cancelled_while_it_runs_nobody_knows(home: Home, run: Any, counter: Counter) -> None:
    async def main() -> None:
        counter.outcome = lambda: asyncio.sleep(60)
        call = asyncio.create_task(submit(request("write")))
        await asyncio.wait_for(counter.began.wait(), 20)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await _settled()

    run(main())
    assert Call.objects.get().state == CallState.UNKNOWN and kinds() == ["call.sent", "call.unknown"]


def test_a_call_that_is_cancelled_while_it_is_decided_on_is_never_sent(home: Home, run: Any, counter: Counter) -> None:
    async def main() -> None:
        call = asyncio.create_task(submit(request("write")))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await _settled()

    run(main())
    assert counter.done == []
    assert Call.objects.get().state == CallState.FAILED and kinds() == ["call.sent", "call.failed"]


async def _settled() -> None:
    from audit.dbthread import in_db

    while await in_db(Call.objects.filter(state=CallState.SENDING).exists) or not await in_db(Call.objects.exists):
        await asyncio.sleep(0.02)


def test_an_outcome_that_can_not_be_recorded_is_no_reason_to_send_again(
    home: Home, run: Any, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_the_chain() -> Any:
        monkeypatch.setattr(governor, "record_many", raising_always)
        return {"ok": 1}

    counter.outcome = break_the_chain
    with pytest.raises(MeahError) as caught:
        run(submit(request("write")))
    assert (caught.value.code, caught.value.retryable) == ("E_AUDIT", False)
    assert "was made" in caught.value.message and Call.objects.get().state == CallState.SENDING


def make_sending(**values: Any) -> Call:
    given = {"state": "sending", "principal": "agent:test", "server": "counter", "tool": "write", "door": "mcp"}
    given |= {"effect_class": "write", "arguments_salt": "00", "owner": "p_dead", "lease_owner": "p_dead"}
    return Call.objects.create(**(given | values))


def test_the_calls_of_a_dead_process_are_settled(db: None) -> None:
    write, read = make_sending(), make_sending(effect_class="read", tool="read")
    assert settle_orphans() == [write.pk]
    assert {call.pk: call.state for call in Call.objects.all()} == {write.pk: "unknown", read.pk: "failed"}
    write.refresh_from_db()
    read.refresh_from_db()
    assert write.error["details"]["reason"] == "process_died" and write.error["retryable"] is False
    assert read.error["retryable"] is True
    assert sorted(kinds()) == ["call.failed", "call.unknown"]
    assert settle_orphans() == []
    assert verify().whole
