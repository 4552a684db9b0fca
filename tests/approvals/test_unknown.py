"""Calls of which nobody knows: late answers, what a person finds out, and what a retry is told then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from approvals import governor, services
from approvals.models import Approval, Call, CallState, Decision, Rule
from approvals.targets import CallContext, CallRequest, Checked, ToolFacts
from audit.dbthread import in_db
from audit.models import Entry
from audit.services import verify
from core.errors import JsonObject, MeahError
from tests.approvals.requests import held, payload, person, registered_box
from tests.approvals.targets import CountingTarget
from tests.approvals.test_gate import request
from tests.conftest import Home

BACK = {"tool": "get", "arguments": {"id": "id"}, "expect": {"status": {"argument": "status"}}}


@pytest.fixture
def box(home: Home) -> Iterator[CountingTarget]:
    with registered_box() as target:
        yield target


@pytest.fixture
def resolver(home: Home) -> User:
    return person("rita", "approvals.resolve_call")[0]


def allow(**values: Any) -> None:
    Rule.objects.create(name="puts", effect="allow", server="box", tool="put", **values)


def refusal(run: Any, call: CallRequest) -> MeahError:
    with pytest.raises(MeahError) as caught:
        run(governor.submit(call))
    return caught.value


# -- a late answer --------------------------------------------------------------------------------------------------


def late(run: Any, box: CountingTarget) -> Call:
    async def main() -> None:
        with pytest.raises(MeahError) as caught:
            await governor.submit(request(status="closed"), CallContext(timeout_s=0.1))
        assert caught.value.code == "E_TIMEOUT"
        assert (await in_db(Call.objects.get)).state == CallState.UNKNOWN
        await asyncio.sleep(0.6)

    box.hang_s = 0.3
    run(main())
    assert verify().whole
    return Call.objects.get()


def test_a_late_result_makes_it_done(box: CountingTarget, run: Any) -> None:
    allow()
    call = late(run, box)
    assert call.state == CallState.DONE and call.result and call.error is None
    assert payload("call.done")["data"]["late"] is True


def test_a_late_refusal_of_the_server_makes_it_failed(box: CountingTarget, run: Any) -> None:
    allow()
    box.fail_late = MeahError("E_PROVIDER", "no such ticket")
    call = late(run, box)
    assert call.state == CallState.FAILED and call.error["message"] == "no such ticket"


def test_a_connection_that_breaks_late_tells_nothing(box: CountingTarget, run: Any) -> None:
    allow()
    box.fail_late = MeahError("E_NETWORK", "the pipe broke")
    assert late(run, box).state == CallState.UNKNOWN


def test_a_late_result_is_read_back_too(box: CountingTarget, run: Any) -> None:
    allow(verification=BACK)
    box.drop_writes = True
    call = late(run, box)
    assert (call.state, call.verification) == (CallState.FAILED, "verification_failed")


# -- a person's word ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("happened", [True, False])
def test_a_retry_of_its_step_hears_what_a_person_found_out(
    box: CountingTarget, run: Any, resolver: User, happened: bool
) -> None:
    allow()
    box.fail = MeahError("E_NETWORK", "the pipe broke")
    refusal(run, request(step="s"))
    again = refusal(run, request(step="s"))
    assert (again.code, again.details["status"], again.details["replay"]) == ("E_NETWORK", "unknown", True)
    call = services.resolve_unknown(Call.objects.get(), happened=happened, user=resolver, note="seen in the ledger")
    assert call.state == ("done" if happened else "failed")
    told = refusal(run, request(step="s"))
    assert told.details["status"] == call.state and "pipe" not in told.message
    assert ("found out afterwards" if happened else "seen in the ledger") in told.message
    assert box.effects == [], "and it is not sent again"
    entry = payload("call.resolved")
    assert entry["data"]["happened"] is happened and entry["data"]["note"] == "seen in the ledger"


def test_who_may_resolve_what(box: CountingTarget, run: Any, resolver: User) -> None:
    allow()
    box.fail = MeahError("E_NETWORK", "the pipe broke")
    refusal(run, request())
    call = Call.objects.get()
    alice, _ = person("alice", "approvals.decide_approval")
    for user, note, word in [(alice, "x", "lacks the permission"), (resolver, " ", "note is required")]:
        with pytest.raises(MeahError, match=word):
            services.resolve_unknown(call, happened=True, user=user, note=note)
    services.resolve_unknown(call, happened=True, user=resolver, note="x")
    with pytest.raises(MeahError, match="not unknown"):
        services.resolve_unknown(call, happened=False, user=resolver, note="x")


# -- the check ------------------------------------------------------------------------------------------------------


def test_a_read_back_never_writes(box: CountingTarget, run: Any) -> None:
    """Whatever the rule names: no policy is asked about the check, so only reads will do."""
    allow(verification={"tool": "drop", "arguments": {"id": "id"}, "expect": {"gone": True}})
    run(governor.submit(request()))
    assert [tool for tool, _ in box.effects] == ["put"]
    call = Call.objects.get()
    assert (call.state, call.verification) == (CallState.DONE, "unverified")
    assert "not marked as a read" in call.verification_details["why"]


@pytest.mark.parametrize(
    ("check", "why"),
    [
        ({"tool": "nothing", "arguments": {}, "expect": {"a": 1}}, "no tool named"),
        ({"tool": "get", "arguments": {"id": "ghost"}, "expect": {"a": 1}}, "no argument ghost"),
        ({"tool": "get", "arguments": {"id": "id"}, "expect": {"a": {"argument": "ghost"}}}, "says nothing"),
    ],
    ids=["tool", "argument", "expectation"],
)
def test_a_check_that_can_not_be_made_leaves_the_write_unverified(
    box: CountingTarget, run: Any, check: JsonObject, why: str
) -> None:
    allow(verification=check)
    assert run(governor.submit(request())).status == "done"
    call = Call.objects.get()
    assert call.verification == "unverified" and why in call.verification_details["why"]


# -- one vote each --------------------------------------------------------------------------------------------------


def test_two_clicks_of_one_person_are_one_vote(box: CountingTarget) -> None:
    """The second click was checked before the first had been written."""
    Rule.objects.create(name="two", effect="require_approval", server="box", approvals=2)
    alice, _ = person("alice", "approvals.decide_approval")
    approval = held()
    with transaction.atomic():
        services._vote(approval, alice, Decision.Vote.APPROVE, "", "admin")
    with pytest.raises(MeahError) as caught, transaction.atomic():
        services._vote(approval, alice, Decision.Vote.APPROVE, "", "admin")
    assert (caught.value.code, caught.value.reason) == ("E_DENIED", "may_not_decide")
    assert Decision.objects.count() == 1 and Approval.objects.get().state == "pending"


def test_a_check_that_fails_inside_refuses_the_call(box: CountingTarget, run: Any, monkeypatch: Any) -> None:
    def broken(*_: Any) -> Checked | ToolFacts:
        raise RecursionError("a schema that eats itself")

    monkeypatch.setattr(box, "check", broken)
    with pytest.raises((MeahError, RecursionError)):
        run(governor.submit(request()))
    assert box.effects == [] and not Call.objects.exists() and not Entry.objects.exists()
