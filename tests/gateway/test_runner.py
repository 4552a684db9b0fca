"""Runs of Methods against a real child, through the gate: results, gaps, retries, polls, parking, going on."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from approvals.models import Approval, Call
from audit.dbthread import in_db
from audit.models import Entry
from core.errors import MeahError
from gateway import method_runs
from gateway.models import MethodRun, MethodStep, RunState
from tests.gateway.methods import AGENT, add, approve, engine, manifest, prepare, sent, step


def codes(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(gap["step"], gap["code"]) for gap in answer["gaps"]]


def statuses(answer: dict[str, Any]) -> dict[str, str]:
    return {line["step"]: line["status"] for line in answer["trace"]}


def test_steps_run_in_order_and_hand_their_results_on(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await in_db(prepare, tmp_path)
        output = {"first": "${steps.a.structuredContent.text}", "said": "<${steps.b.structuredContent.text}>"}
        steps = step("a", args={"text": "${input.text}"}), step("b", args={"text": "${steps.a.content.0.text}!"})
        await in_db(add, manifest(*steps, output=output))
        async with engine() as one:
            answer = await one.answer({"text": "hi"})
        assert (answer["status"], answer["output"], answer["gaps"]) == (
            "completed",
            {"first": "hi", "said": "<hi!>"},
            [],
        )
        assert statuses(answer) == {"a": "done", "b": "done"}
        calls = await in_db(lambda: list(Call.objects.order_by("id").values_list("run", "door", "principal")))
        assert calls == [(answer["runId"], "method", AGENT)] * 2
        steps_named = await in_db(lambda: [_payload(entry)["data"]["step"] for entry in _entries("call.done")])
        assert steps_named == ["a#1", "b#1"]
        kinds = await in_db(lambda: list(Entry.objects.filter(kind__startswith="run.").values_list("kind", flat=True)))
        assert kinds == ["run.started", "run.completed"]

    run(scenario())


def _entries(kind: str) -> Any:
    return Entry.objects.filter(kind=kind).order_by("seq")


def _payload(entry: Entry) -> Any:
    return json.loads(bytes(entry.payload))


def test_a_failed_step_fails_the_run_and_keeps_what_it_had(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await in_db(prepare, tmp_path)
        await in_db(add, manifest(step("a"), step("b", "is_error"), step("c")))
        async with engine() as one:
            ended = await one.run()
        answer = await in_db(method_runs.as_answer, ended)
        assert (ended.state, ended.error["code"], ended.error["details"]["reason"]) == (
            "failed",
            "E_PROVIDER",
            "child_error",
        )
        assert statuses(answer) == {"a": "done", "b": "failed"}
        assert "no such ticket" not in json.dumps(answer) + json.dumps(ended.error), "no text of a child"

    run(scenario())


def test_gaps_are_told_and_the_rest_goes_on(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await in_db(prepare, tmp_path)
        steps = [
            step("error", "is_error", onError="gap"),
            step("late", "hang", onError="gap", timeoutMs=300),
            step("gone", "die", onError="gap"),
            step("needs", args={"text": "${steps.error.content.0.text}"}, onError="gap"),
            step("absent", "no_such_tool", onError="gap"),
            step("fine", args={"text": "still"}),
        ]
        output = {"fine": "${steps.fine.structuredContent.text}", "error": "${steps.error.structuredContent}"}
        await in_db(add, manifest(*steps, output=output))
        async with engine() as one:
            answer = await one.answer()
        assert answer["status"] == "completed_with_gaps"
        assert answer["output"] == {"fine": "still", "error": None}
        assert codes(answer) == [
            ("error", "child_error"),
            ("late", "timeout"),
            ("gone", "unavailable"),
            ("needs", "dependency_gap"),
            ("absent", "unavailable"),
        ]

    run(scenario())


def test_only_what_is_safe_is_tried_again_and_each_attempt_is_a_call(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await in_db(prepare, tmp_path)
        retry = {"maxAttempts": 3, "backoffMs": 10}
        good = step("r", "count", {"name": "r", "fail": 2}, idempotency="safe", retry=retry)
        await in_db(add, manifest(good))
        bad = step("r", "count", {"name": "x", "fail": 9}, idempotency="safe", retry=retry)
        await in_db(add, manifest(bad, name="never"))
        async with engine() as one:
            answer = await one.answer()
            assert (answer["status"], answer["output"], answer["trace"][0]["attempts"]) == (
                "completed",
                {"count": 3, "state": "ready"},
                3,
            )
            assert sent(log, "count") == 3
            answer = await one.answer(name="never")
        assert (answer["status"], answer["trace"][0]["attempts"]) == ("failed", 3)
        assert sent(log, "count") == 6, "max attempts are all of them"

    run(scenario())


def test_a_poll_waits_until_it_has_come_or_is_exhausted(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await in_db(prepare, tmp_path)
        poll = {"path": "structuredContent.state", "equals": "ready", "maxAttempts": 4, "intervalMs": 5}
        await in_db(add, manifest(step("p", "count", {"name": "p", "ready": 3}, idempotency="safe", poll=poll)))
        late = step("p", "count", {"name": "q", "ready": 99}, idempotency="safe", poll=poll, onError="gap")
        await in_db(add, manifest(late, name="late"))
        async with engine() as one:
            answer = await one.answer()
            assert (answer["status"], answer["output"]["count"]) == ("completed", 3)
            answer = await one.answer(name="late")
        assert codes(answer) == [("p", "poll_exhausted")] and answer["trace"][0]["attempts"] == 4

    run(scenario())


def test_a_parallel_method_runs_what_it_can_at_the_same_time(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await in_db(prepare, tmp_path, concurrent=True)
        steps = [step(name, "slow", {"seconds": 0.6}) for name in "abcd"] + [step("z", dependsOn=["a", "b"])]
        await in_db(add, manifest(*steps, parallel=True))
        await in_db(add, manifest(*steps, name="in-order"))
        async with engine() as one:
            begun = time.monotonic()
            answer = await one.answer()
            together = time.monotonic() - begun
            begun = time.monotonic()
            await one.answer(name="in-order")
            in_order = time.monotonic() - begun
        assert answer["status"] == "completed" and [line["step"] for line in answer["trace"]] == [*"abcd", "z"]
        assert together < in_order and in_order > 2.4

    run(scenario())


@pytest.mark.parametrize("tool", ["ask_first", "write"])
def test_a_held_step_parks_the_run_and_it_goes_on_in_another_process(
    home: Any, run: Any, tmp_path: Path, tool: str
) -> None:
    """The first process is gone when a person decides; reads and writes alike are sent once."""

    async def scenario() -> None:
        log = await in_db(prepare, tmp_path)
        await in_db(_hold, tool)
        steps = step("a"), step("held", tool), step("c", args={"text": "${steps.held.content.0.text}"})
        await in_db(add, manifest(*steps, effects="mixed"))
        async with engine(allow_writes=True) as one:
            parked = await one.run()
            answer = await in_db(method_runs.as_answer, parked)
            assert answer["status"] == "pending_approval" and answer["approvalId"].startswith("apr_")
            await one.runner.look()
            assert not one.runner.is_running(answer["runId"])
        await in_db(approve, answer["approvalId"])
        async with engine(allow_writes=True, learns=False) as other:
            ended = await other.until_over(answer["runId"])
        answer = await in_db(method_runs.as_answer, ended)
        assert (answer["status"], answer["output"]) == ("completed", {"text": f"{tool} ran"})
        assert sent(log, tool) == 1 and sent(log, "echo") == 2
        kinds = await in_db(lambda: list(Entry.objects.filter(kind__startswith="run.").values_list("kind", flat=True)))
        assert kinds == ["run.started", "run.parked", "run.resumed", "run.completed"]

    run(scenario())


def _hold(tool: str) -> None:
    from approvals.models import Rule

    Rule.objects.filter(server="raw", tool="write").delete()
    Rule.objects.get_or_create(name=f"hold {tool}", server="raw", tool=tool, effect="require_approval")


def test_a_rejected_step_is_denied(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await in_db(prepare, tmp_path)
        await in_db(add, manifest(step("held", "ask_first", onError="gap"), step("b")))
        async with engine() as one:
            parked = await one.run()
            answer = await in_db(method_runs.as_answer, parked)
            await in_db(lambda: approve(answer["approvalId"], rejects=True))
            ended = await one.until_over(answer["runId"])
        answer = await in_db(method_runs.as_answer, ended)
        assert (answer["status"], codes(answer)) == ("completed_with_gaps", [("held", "denied")])
        assert sent(log, "ask_first") == 0

    run(scenario())


def test_time_stands_still_while_it_is_parked(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await in_db(prepare, tmp_path)
        await in_db(add, manifest(step("held", "ask_first"), step("b"), timeoutMs=2_000))
        async with engine() as one:
            parked = await one.run()
            answer = await in_db(method_runs.as_answer, parked)
            await asyncio.sleep(2.5)
            await in_db(approve, answer["approvalId"])
            ended = await one.until_over(answer["runId"])
        assert ended.state == "completed" and ended.spent_ms < 2_000

    run(scenario())


def test_the_time_of_the_whole_run_is_limited(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await in_db(prepare, tmp_path)
        await in_db(add, manifest(step("a", "hang"), timeoutMs=500))
        async with engine() as one:
            ended = await one.run()
        assert (ended.state, ended.error["code"]) == ("failed", "E_TIMEOUT")

    run(scenario())


def test_a_run_whose_driver_died_goes_on_and_sends_nothing_twice(home: Any, run: Any, tmp_path: Path) -> None:
    """Its rows are as a killed process leaves them: the second step's call is done, its answer was not taken."""

    async def scenario() -> None:
        log = await in_db(prepare, tmp_path)
        await in_db(add, manifest(step("a"), step("w", "write"), step("c"), effects="write"))
        async with engine(allow_writes=True) as one:
            ended = await one.run()
            assert ended.state == "completed"
            await in_db(_as_if_killed, ended.public_id)
        async with engine(allow_writes=True, learns=False) as other:
            again = await other.until_over(ended.public_id)
        assert again.state == "completed"
        assert sent(log, "write") == 1, "the gate knows the attempt by its name"
        calls = await in_db(lambda: list(Call.objects.filter(tool="write").values_list("step", flat=True)))
        assert calls == ["w#1"]

    run(scenario())


def _as_if_killed(public_id: str) -> None:
    MethodStep.objects.filter(run__public_id=public_id, step="w").update(state="running", result="")
    MethodStep.objects.filter(run__public_id=public_id, step="c").delete()
    MethodRun.objects.filter(public_id=public_id).update(
        state=RunState.RUNNING, owner="p_dead", output="", finished_at=None
    )


def test_of_several_processes_one_goes_on(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await in_db(prepare, tmp_path)
        await in_db(add, manifest(step("a")))
        async with engine() as one:
            ended = await one.run()
            await in_db(_as_if_killed, ended.public_id)
            # Both have seen it free before one of them took it.
            seen = [await in_db(method_runs.find, ended.public_id) for _ in range(2)]
            taken = [await in_db(method_runs._claimed, found, f"p_{number}") for number, found in enumerate(seen)]
        assert taken == [True, False]

    run(scenario())


def test_a_driver_that_lost_its_claim_writes_nothing(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await in_db(prepare, tmp_path)
        await in_db(add, manifest(step("a", "slow", {"seconds": 1}), step("b")))
        async with engine() as one:
            public_id = await one.runner.start("ritual", "", {}, principal=AGENT)
            await asyncio.sleep(0.4)
            await in_db(lambda: MethodRun.objects.update(claims=7, owner="p_other"))
            await one.runner.wait(public_id, 10)
            found = await in_db(method_runs.find, public_id)
        assert (found.state, found.owner) == ("running", "p_other")

    run(scenario())


def test_input_and_output_are_held_to_their_schemas(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await in_db(prepare, tmp_path)
        wanted = {"type": "object", "properties": {"text": {"type": "integer"}}}
        await in_db(add, manifest(step("a", args={"text": "x"}), outputSchema=wanted))
        await in_db(add, manifest(step("a", args={"text": "é" * 60}), name="large", maxOutputBytes=100))
        await in_db(add, manifest(step("a", args={"text": "${input.text}"}), name="missing"))
        async with engine() as one:
            for given in ({"text": 5}, {"more": 1}):
                with pytest.raises(MeahError) as refused:
                    await one.runner.start("ritual", "", given, principal=AGENT)
                assert (refused.value.code, refused.value.reason) == ("E_INVALID_REQUEST", "input")
            reasons = [(await one.run(name=name)).error["details"]["reason"] for name in ("ritual", "large", "missing")]
        assert reasons == ["output_schema", "output_too_large", "unresolved_reference"]

    run(scenario())


def test_methods_that_write_run_only_where_writing_is_allowed(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = await in_db(prepare, tmp_path)
        await in_db(add, manifest(step("w", "write"), effects="write"))
        async with engine() as one:
            with pytest.raises(MeahError) as refused:
                await one.run()
            assert (refused.value.code, refused.value.reason) == ("E_DENIED", "writes_not_allowed")
            one.runner.allow_writes = True
            assert (await one.run()).state == "completed"
        assert sent(log, "write") == 1

    run(scenario())


def test_a_method_that_says_it_reads_never_writes(home: Any, run: Any, tmp_path: Path) -> None:
    """Its tool was marked as a write after the review."""

    async def scenario() -> None:
        log = await in_db(prepare, tmp_path)
        async with engine() as one:
            await in_db(_marked, "write", "read")
            await in_db(add, manifest(step("w", "write")))
            await in_db(_marked, "write", "write")
            ended = await one.run()
        assert (ended.state, ended.error["details"]["reason"]) == ("failed", "denied")
        assert sent(log, "write") == 0

    run(scenario())


def _marked(tool: str, effect_class: str) -> None:
    from gateway.models import Tool

    Tool.objects.filter(name=tool).update(effect_class=effect_class)


def test_a_run_that_is_taken_back_ends(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await in_db(prepare, tmp_path)
        await in_db(add, manifest(step("a", "slow", {"seconds": 5}), step("b")))
        async with engine() as one:
            public_id = await one.runner.start("ritual", "", {}, principal=AGENT)
            await asyncio.sleep(0.5)
            one.runner.take_back(public_id)
            for _ in range(100):
                found = await in_db(method_runs.find, public_id)
                if found.state == "failed":
                    break
                await asyncio.sleep(0.05)
        assert (found.state, found.error["code"]) == ("failed", "E_CANCELLED")
        assert await in_db(Approval.objects.count) == 0

    run(scenario())
