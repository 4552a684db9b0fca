"""What servers answer that no database or reader expects: it is kept, settled and read back all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from approvals import governor, services
from approvals.models import Call, CallState, Rule
from approvals.outcomes import approval_object
from audit.models import Entry
from audit.services import verify
from core.errors import MeahError
from tests.approvals.requests import person, registered_box
from tests.approvals.targets import CountingTarget
from tests.approvals.test_every_door import _run_executor
from tests.approvals.test_gate import request
from tests.conftest import Home

ODD = {
    "surrogate": "\ud800",
    "nul": "a\x00b",
    "nan": float("nan"),
    "infinite": float("inf"),
    "large integer": 2**80,
    "tag": "\U000e0041",
}
odd = pytest.mark.parametrize("value", ODD.values(), ids=ODD.keys())


@pytest.fixture
def box(home: Home) -> Iterator[CountingTarget]:
    with registered_box() as target:
        yield target


@odd
def test_an_odd_result_reaches_the_caller_and_is_replayed(box: CountingTarget, run: Any, value: Any) -> None:
    Rule.objects.create(name="puts", effect="allow", server="box")
    box.answer = {"content": [], "structuredContent": {"v": value}}
    first = run(governor.submit(request(step="s")))
    again = run(governor.submit(request(step="s")))
    assert Call.objects.get().state == CallState.DONE
    assert again.replay and repr(first.result) == repr(again.result) == repr(box.answer)
    assert verify().whole


@odd
def test_an_odd_result_of_an_approved_call_can_be_read(box: CountingTarget, run: Any, value: Any) -> None:
    box.answer = {"content": [], "structuredContent": {"v": value}}
    outcome = run(governor.submit(request()))
    alice, _ = person("alice", "approvals.decide_approval")
    services.approve(services.get(outcome.approval["approvalId"]), user=alice, note="", door="admin")
    run(_run_executor())
    shown = approval_object(services.get(outcome.approval["approvalId"]))
    assert shown["status"] == "done"
    assert repr(shown["result"]) == repr(box.answer)


@odd
def test_an_odd_error_settles_its_call(box: CountingTarget, run: Any, value: Any) -> None:
    Rule.objects.create(name="puts", effect="allow", server="box")
    box.fail = MeahError("E_PROVIDER", f"no: {value}", reason="x", details={"data": value})
    with pytest.raises(MeahError) as caught:
        run(governor.submit(request(step="s")))
    assert caught.value.code == "E_PROVIDER"
    assert Call.objects.get().state == CallState.FAILED
    with pytest.raises(MeahError) as caught:
        run(governor.submit(request(step="s")))
    assert caught.value.code == "E_PROVIDER" and caught.value.details["replay"] is True
    assert Entry.objects.filter(kind="call.failed").count() == 1


@odd
def test_an_odd_value_that_is_read_back_is_shown_beside_the_expected_one(
    box: CountingTarget, run: Any, value: Any
) -> None:
    back = {"tool": "get", "arguments": {"id": "id"}, "expect": {"status": {"argument": "status"}}}
    Rule.objects.create(name="puts", effect="allow", server="box", tool="put", verification=back)
    box.drop_writes = True
    box.values["a"] = {"status": value}
    with pytest.raises(MeahError) as caught:
        run(governor.submit(request(status="closed")))
    assert caught.value.reason == "verification_failed"
    call = Call.objects.get()
    assert (call.state, call.verification) == (CallState.FAILED, "verification_failed")
    assert call.verification_details["differences"][0]["expected"] == "closed"


def test_a_huge_value_that_is_read_back_does_not_fill_the_database(box: CountingTarget, run: Any) -> None:
    back = {"tool": "get", "arguments": {"id": "id"}, "expect": {"status": {"argument": "status"}}}
    Rule.objects.create(name="puts", effect="allow", server="box", tool="put", verification=back)
    box.drop_writes = True
    box.values["a"] = {"status": "x" * 5_000_000}
    with pytest.raises(MeahError):
        run(governor.submit(request(status="closed")))
    assert len(json.dumps(Call.objects.get().verification_details)) < 20_000
