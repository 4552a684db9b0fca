"""The life of a call at the gate: allowed, held, denied, decided, executed, repeated."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.utils import timezone

from approvals import endings, executor, governor, services, targets
from approvals.models import (
    Approval,
    ApprovalSettings,
    ApprovalState,
    Call,
    CallState,
    EffectClass,
    Rule,
)
from approvals.outcomes import approval_object, status_of
from approvals.targets import CallContext, CallRequest
from audit.dbthread import in_db
from audit.models import Entry
from audit.services import verify
from core.errors import MeahError
from tests.approvals.targets import CountingTarget
from tests.conftest import Home

AGENT = "agent:claude"


@pytest.fixture
def box() -> Iterator[CountingTarget]:
    target = CountingTarget()
    targets.register(target)
    yield target
    del targets._targets[target.server]


@pytest.fixture
def alice(home: Home) -> Any:
    return make_approver("alice")


def make_approver(name: str, *groups: str) -> Any:
    user = get_user_model().objects.create_user(name, password="x")
    user.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    for group in groups:
        user.groups.add(Group.objects.get_or_create(name=group)[0])
    return user


def rule(name: str, effect: str, **values: Any) -> Rule:
    return Rule.objects.create(name=name, effect=effect, server="box", **values)


def request(tool: str = "put", /, step: str = "", principal: str = AGENT, **arguments: Any) -> CallRequest:
    return CallRequest(principal, "box", tool, {"id": "a", **arguments}, "mcp", step=step, run="r" if step else "")


def held(run: Any, call: CallRequest) -> Approval:
    outcome = run(governor.submit(call))
    assert outcome.status == "pending_approval"
    return services.get(outcome.approval["approvalId"])


def execute_approved(run: Any) -> None:
    """What an engine's executor does, without an engine."""

    async def go() -> None:
        for call_id in await in_db(executor.claim, "p_test"):
            decision = await in_db(executor.start, call_id, "p_test")
            if decision is not None:
                await governor.execute(decision, CallContext())

    run(go())


def kinds() -> list[str]:
    return list(Entry.objects.order_by("seq").values_list("kind", flat=True))


def code_of(run: Any, call: CallRequest) -> MeahError:
    with pytest.raises(MeahError) as caught:
        run(governor.submit(call))
    return caught.value


# -- allowed, denied ------------------------------------------------------------------------------------------------


def test_an_allowed_read_leaves_one_row_and_one_entry_with_its_verdict(
    home: Home, box: CountingTarget, run: Any
) -> None:
    outcome = run(governor.submit(request("get")))
    assert outcome.status == "done"
    call = Call.objects.get()
    assert (call.state, call.effect_class, call.result) == (CallState.DONE, EffectClass.READ, "")
    assert kinds() == ["call.done"]
    assert b'"effect":"allow"' in bytes(Entry.objects.get().payload)


def test_an_allowed_write_is_marked_as_sent_before_it_runs(home: Home, box: CountingTarget, run: Any) -> None:
    rule("puts", "allow", tool="put")
    run(governor.submit(request()))
    assert box.effects == [("put", {"id": "a"})]
    assert kinds() == ["call.sent", "call.done"]
    assert Call.objects.get().result_bytes


def test_a_denied_call_makes_no_row_and_never_reaches_the_target(home: Home, box: CountingTarget, run: Any) -> None:
    rule("no", "deny", tool="drop", reason="gone is gone")
    error = code_of(run, request("drop"))
    assert error.code == "E_DENIED"
    assert "gone is gone" in error.message
    assert box.effects == []
    assert not Call.objects.exists()
    assert kinds() == ["call.denied"]


def test_bad_arguments_never_reach_a_person(home: Home, box: CountingTarget, run: Any) -> None:
    assert code_of(run, CallRequest(AGENT, "box", "put", {"id": 5}, "mcp")).code == "E_INVALID_REQUEST"
    assert not Approval.objects.exists()


def test_a_write_whose_answer_is_lost_is_unknown_and_a_read_is_failed(
    home: Home, box: CountingTarget, run: Any
) -> None:
    rule("puts", "allow", tool="put")
    box.fail = MeahError("E_NETWORK", "the pipe broke")
    assert code_of(run, request()).code == "E_NETWORK"
    assert Call.objects.get().state == CallState.UNKNOWN


def test_a_failure_before_anything_was_sent_is_a_failure(home: Home, box: CountingTarget, run: Any) -> None:
    rule("puts", "allow", tool="put")
    box.fail = MeahError("E_UNAVAILABLE", "it does not start", details={"sent": False})
    code_of(run, request())
    assert Call.objects.get().state == CallState.FAILED


def test_a_late_answer_settles_an_unknown_call(home: Home, box: CountingTarget, run: Any) -> None:
    import asyncio

    rule("puts", "allow", tool="put")
    box.hang_s = 3.0

    async def go() -> None:
        with pytest.raises(MeahError) as caught:
            await governor.submit(request())
        assert caught.value.code == "E_TIMEOUT"
        await asyncio.sleep(2.0)

    run(go())
    assert Call.objects.get().state == CallState.DONE
    assert kinds() == ["call.sent", "call.unknown", "call.done"]


# -- held -----------------------------------------------------------------------------------------------------------


def test_a_held_call_changes_nothing_until_it_is_approved_and_then_runs_once(
    home: Home, box: CountingTarget, run: Any, alice: Any
) -> None:
    approval = held(run, request(status="closed"))
    assert box.effects == []
    services.approve(approval, user=alice, note="fine", door="admin")
    execute_approved(run)
    execute_approved(run)
    assert box.effects == [("put", {"id": "a", "status": "closed"})]
    found = approval_object(services.get(approval.public_id))
    assert (found["status"], found["note"], found["decidedBy"]) == ("done", "fine", ["user:alice"])
    assert found["result"]["content"][0]["text"] == "ok"
    assert kinds() == ["call.held", "approval.decided", "call.sent", "call.done"]
    assert verify().whole


def test_a_rejection_ends_it_and_its_note_is_what_a_retry_gets(
    home: Home, box: CountingTarget, run: Any, alice: Any
) -> None:
    approval = held(run, request())
    services.reject(approval, user=alice, note="not this customer", door="admin")
    error = code_of(run, request())
    assert error.code == "E_DENIED"
    assert "not this customer" in error.message
    assert error.details["replay"] is True
    assert box.effects == []


def test_an_identical_held_call_is_the_same_request_while_open_and_replayed_for_a_while_after(
    home: Home, box: CountingTarget, run: Any, alice: Any
) -> None:
    first = held(run, request())
    again = run(governor.submit(request()))
    assert again.approval["approvalId"] == first.public_id
    services.approve(first, user=alice, note="", door="admin")
    execute_approved(run)
    replay = run(governor.submit(request()))
    assert replay.replay
    assert replay.result["content"][0]["text"] == "ok"
    assert len(box.effects) == 1
    Approval.objects.update(decided_at=timezone.now() - timedelta(hours=1))
    assert held(run, request()).pk != first.pk


def test_allowed_calls_without_a_step_are_always_sent(home: Home, box: CountingTarget, run: Any) -> None:
    rule("puts", "allow", tool="put")
    run(governor.submit(request()))
    run(governor.submit(request()))
    assert len(box.effects) == 2
    # The server must not take the second for a repetition of the first.
    assert len(set(box.keys)) == 2


def test_a_step_answers_for_good_and_refuses_other_arguments(home: Home, box: CountingTarget, run: Any) -> None:
    rule("puts", "allow", tool="put")
    first = run(governor.submit(request(step="s1")))
    again = run(governor.submit(request(step="s1")))
    assert not first.replay
    assert again.replay
    assert again.result == first.result
    assert len(box.effects) == 1
    assert code_of(run, request(step="s1", status="other")).code == "E_IDEMPOTENCY_MISMATCH"
    assert len(set(box.keys)) == 1


def test_reads_are_never_collapsed_or_replayed(home: Home, box: CountingTarget, run: Any) -> None:
    run(governor.submit(request("get", step="s1")))
    run(governor.submit(request("get", step="s1")))
    assert box.reads == 2


# -- who decides ----------------------------------------------------------------------------------------------------


def test_who_asked_can_not_decide_while_somebody_else_can(
    home: Home, box: CountingTarget, run: Any, alice: Any
) -> None:
    approval = held(run, request(principal="user:alice"))
    services.approve(approval, user=alice, note="", door="admin")  # a single approver's own request
    make_approver("bob")
    second = held(run, request(principal="user:alice", status="x"))
    with pytest.raises(MeahError) as caught:
        services.approve(second, user=alice, note="", door="admin")
    assert caught.value.code == "E_DENIED"


def test_several_approvals_of_a_group_are_counted_by_person(home: Home, box: CountingTarget, run: Any) -> None:
    rule("two", "require_approval", tool="put", approvals=2, group="finance")
    ann, ben, eve = make_approver("ann", "finance"), make_approver("ben", "finance"), make_approver("eve")
    approval = held(run, request())
    with pytest.raises(MeahError, match="group finance"):
        services.approve(approval, user=eve, note="", door="admin")
    assert services.approve(approval, user=ann, note="", door="admin").state == ApprovalState.PENDING
    with pytest.raises(MeahError, match="decided already"):
        services.approve(services.get(approval.public_id), user=ann, note="", door="admin")
    assert services.approve(services.get(approval.public_id), user=ben, note="", door="admin").state == "approved"


def test_the_loser_of_two_decisions_is_told_who_was_first(
    home: Home, box: CountingTarget, run: Any, alice: Any
) -> None:
    bob = make_approver("bob")
    approval = held(run, request())
    stale = services.get(approval.public_id)
    services.reject(approval, user=alice, note="no", door="admin")
    with pytest.raises(MeahError) as caught:
        services.approve(stale, user=bob, note="", door="admin")
    assert "by alice" in caught.value.message


def test_a_user_without_the_permission_can_not_decide(home: Home, box: CountingTarget, run: Any, alice: Any) -> None:
    mallory = get_user_model().objects.create_user("mallory", password="x")
    with pytest.raises(MeahError) as caught:
        services.approve(held(run, request()), user=mallory, note="", door="admin")
    assert caught.value.code == "E_DENIED"


def test_destructive_calls_need_a_note(home: Home, box: CountingTarget, run: Any, alice: Any) -> None:
    approval = held(run, request("drop"))
    with pytest.raises(MeahError, match="note is required"):
        services.approve(approval, user=alice, note=" ", door="admin")


# -- what voids and expires -----------------------------------------------------------------------------------------


def approved(run: Any, alice: Any, call: CallRequest) -> Approval:
    return services.approve(held(run, call), user=alice, note="", door="admin")


@pytest.mark.parametrize("change", ["deny", "pin", "demands", "arguments"])
def test_whatever_changed_since_the_approval_makes_it_void(
    home: Home, box: CountingTarget, run: Any, alice: Any, change: str
) -> None:
    approval = approved(run, alice, request())
    if change == "deny":
        rule("no", "deny", tool="put")
    elif change == "pin":
        box.pin = "pin-2"
    elif change == "demands":
        rule("more", "require_approval", tool="put", approvals=2)
    else:
        Call.objects.update(arguments='{"id":"b"}')
    execute_approved(run)
    assert box.effects == []
    assert status_of(services.get(approval.public_id)) == "void"


def test_a_policy_that_now_allows_lets_an_approved_call_run(
    home: Home, box: CountingTarget, run: Any, alice: Any
) -> None:
    approved(run, alice, request())
    rule("puts", "allow", tool="put")
    execute_approved(run)
    assert len(box.effects) == 1


def test_what_nobody_decides_in_time_expires_and_a_late_decision_is_refused(
    home: Home, box: CountingTarget, run: Any, alice: Any
) -> None:
    approval = held(run, request())
    Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(MeahError, match="expired"):
        services.approve(services.get(approval.public_id), user=alice, note="", door="admin")
    assert Call.objects.get().state == CallState.CANCELLED
    assert held(run, request()).pk != approval.pk


def test_what_is_not_started_in_time_expires(home: Home, box: CountingTarget, run: Any, alice: Any) -> None:
    approval = approved(run, alice, request())
    Approval.objects.update(execute_by=timezone.now() - timedelta(seconds=1))
    execute_approved(run)
    endings.expire_due()
    assert box.effects == []
    assert status_of(services.get(approval.public_id)) == "expired"


def test_a_halt_refuses_voids_and_ends(home: Home, box: CountingTarget, run: Any, alice: Any) -> None:
    approval = held(run, request())
    assert services.halt(principal="user:alice", reason="strange") == 1
    assert status_of(services.get(approval.public_id)) == "void"
    error = code_of(run, request("get"))
    assert (error.code, error.reason) == ("E_DENIED", "halted")
    services.resume(principal="user:alice")
    run(governor.submit(request("get")))


def test_one_agent_can_not_flood_the_approvers(home: Home, box: CountingTarget, run: Any) -> None:
    ApprovalSettings.objects.create(pk=1, max_open_holds=2)
    held(run, request(status="1"))
    held(run, request(status="2"))
    error = code_of(run, request(status="3"))
    assert (error.code, error.reason) == ("E_DENIED", "too_many_open")
    held(run, request(status="3", principal="agent:other"))


# -- read-back, unknown ---------------------------------------------------------------------------------------------

READ_BACK = {"tool": "get", "arguments": {"id": "id"}, "expect": {"status": {"argument": "status"}}}


def test_a_write_is_read_back(home: Home, box: CountingTarget, run: Any) -> None:
    rule("puts", "allow", tool="put", verification=READ_BACK)
    run(governor.submit(request(status="closed")))
    assert Call.objects.get().verification == "verified"


def test_a_dropped_write_is_caught_with_both_values(home: Home, box: CountingTarget, run: Any) -> None:
    rule("puts", "allow", tool="put", verification=READ_BACK)
    box.drop_writes = True
    error = code_of(run, request(status="closed"))
    assert error.reason == "verification_failed"
    assert error.details["differences"] == [{"path": "status", "expected": "closed", "found": None}]
    assert Call.objects.get().state == CallState.FAILED


def test_a_person_resolves_an_unknown_call(home: Home, box: CountingTarget, run: Any, alice: Any) -> None:
    rule("puts", "allow", tool="put")
    box.fail = MeahError("E_TIMEOUT")
    code_of(run, request())
    alice.user_permissions.add(Permission.objects.get(codename="resolve_call"))
    alice = get_user_model().objects.get(pk=alice.pk)
    call = services.resolve_unknown(Call.objects.get(), happened=True, user=alice, note="seen in the ledger")
    assert call.state == CallState.DONE
    assert kinds()[-1] == "call.resolved"


def test_texts_are_purged_and_the_chain_is_not(home: Home, box: CountingTarget, run: Any) -> None:
    from io import StringIO

    from django.core.management import call_command

    rule("puts", "allow", tool="put")
    run(governor.submit(request()))
    box.fail = MeahError("E_NETWORK", "the pipe broke")
    code_of(run, request(status="lost"))
    Call.objects.update(finished_at=timezone.now() - timedelta(days=40))
    said = StringIO()
    call_command("approvals", "purge", "--older-than", "30", stdout=said)
    assert "1 calls" in said.getvalue() and not Call.objects.filter(purged_at__isnull=False).exists()
    call_command("approvals", "purge", "--yes", stdout=said)
    done, unknown = Call.objects.order_by("pk")
    assert (done.arguments, done.result, done.state) == ("", "", CallState.DONE) and done.purged_at
    assert unknown.arguments, "somebody still has to find out"
    assert verify().whole and kinds()[-1] == "call.purged"
