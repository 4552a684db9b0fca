"""Calls through the gateway's target, as the gate makes them, to real children."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from approvals.models import CallState, EffectClass
from approvals.outcomes import state_after
from approvals.targets import target_of
from audit.dbthread import in_db
from core.errors import MeahError
from gateway.failures import AmbiguousError, NotSentError
from gateway.models import Exposure, Server, Tool
from tests.gateway.support import accept_everything, call, gateway, learn, make_server, raw, until


@pytest.mark.parametrize("era", ["both", "legacy"])
def test_a_result_comes_as_the_server_sent_it(home: Any, run: Any, era: str) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw("raw", "--era", era))
        async with gateway() as running:
            await learn(running)
            result = await call("echo", {"text": "hi"})
        result.pop("resultType", None)
        assert result == {
            "content": [{"type": "text", "text": "hi"}],
            "structuredContent": {"text": "hi"},
            "_meta": {"server": "kept"},
        }

    run(scenario())


def test_what_is_sent_is_the_canonical_value_with_its_key(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw())
        async with gateway() as running:
            await learn(running)
            seen = (await call("seen", {"b": 1.0, "a": "é", "n": None}, idempotency_key="k1"))["structuredContent"]
            assert json.dumps(seen["arguments"]) == json.dumps({"a": "é", "b": 1, "n": None})
            assert seen["_meta"]["meah/idempotency-key"] == "k1"
            assert seen["name"] == "seen"
            assert "progressToken" not in seen["_meta"]
            await in_db(Tool.objects.filter(name="seen").update, idempotency_argument="request_id")
            seen = (await call("seen", {}, idempotency_key="k2"))["structuredContent"]
            assert seen["arguments"] == {"request_id": "k2"}

    run(scenario())


def test_arguments_that_do_not_fit_never_start_the_server(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw())
        async with gateway() as running:
            await learn(running)
            starts = running.pool.known("raw").starts
            for arguments in ({}, {"text": 5}, {"text": "x", "Text": "y"}):
                with pytest.raises(MeahError) as refused:
                    await call("echo", arguments)
                assert refused.value.code == "E_INVALID_REQUEST"
            assert running.pool.known("raw").starts == starts

    run(scenario())


def test_a_tool_that_nobody_accepted_is_refused(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw())
        async with gateway() as running:
            await running.pool.connection(raw()).open()
            with pytest.raises(MeahError) as refused:
                await call("echo", {"text": "hi"})
        assert (refused.value.code, refused.value.reason) == ("E_DENIED", "quarantined")

    run(scenario())


def test_what_is_off_gone_or_unknown_is_refused_and_says_why(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw())
        async with gateway() as running:
            await learn(running)
            with pytest.raises(MeahError) as unknown:
                await call("nothing_like_it")
            await in_db(Tool.objects.filter(name="seen").update, pin_state="gone")
            with pytest.raises(MeahError) as gone:
                await call("seen")
            await in_db(Server.objects.update, exposure=Exposure.OFF)
            with pytest.raises(MeahError) as off:
                await call("echo", {"text": "hi"})
        assert [error.value.code for error in (unknown, gone, off)] == ["E_NOT_FOUND", "E_UNAVAILABLE", "E_DENIED"]
        with pytest.raises(MeahError) as nowhere:
            await in_db(lambda: target_of("no-such-server").facts("x", {}))
        assert (nowhere.value.code, "no server" in nowhere.value.message) == ("E_NOT_FOUND", True)

    run(scenario())


def test_a_tool_that_changes_under_a_running_connection_is_not_called(home: Any, run: Any, tmp_path: Path) -> None:
    file, log = tmp_path / "tools.json", tmp_path / "log"
    tool = {"name": "echo", "description": "before", "inputSchema": {"type": "object"}}
    change = {"name": "change", "inputSchema": {"type": "object"}}
    file.write_text(json.dumps([tool, change]))

    async def scenario() -> None:
        await in_db(make_server, raw("raw", "--tools", str(file), "--log", str(log)))
        async with gateway() as running:
            await learn(running)
            assert await call("echo", {"text": "hi"})
            file.write_text(json.dumps([tool | {"description": "after"}, change]))
            await call("change")
            deadline = time.monotonic() + 10
            while (await in_db(Tool.objects.get, name="echo")).pin_state != "quarantined":
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            with pytest.raises(MeahError) as refused:
                await call("echo", {"text": "hi"})
            assert refused.value.reason == "quarantined"
            sent = log.read_text().count('"tools/call"')
            await in_db(accept_everything, "raw")
            assert await call("echo", {"text": "accepted again, on the same connection"})
            assert log.read_text().count('"tools/call"') == sent + 1

    run(scenario())


def test_a_change_found_at_a_restart_stops_the_call_before_it_is_sent(home: Any, run: Any, tmp_path: Path) -> None:
    file, log = tmp_path / "tools.json", tmp_path / "log"
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "die")]
    file.write_text(json.dumps(tools))

    async def scenario() -> None:
        await in_db(make_server, raw("raw", "--tools", str(file), "--log", str(log)))
        async with gateway() as running:
            await learn(running)
            with pytest.raises(AmbiguousError):
                await call("die")
            file.write_text(json.dumps([tools[0] | {"description": "new"}, tools[1]]))
            with pytest.raises(NotSentError) as refused:
                await call("echo", {"text": "hi"})
            assert (refused.value.code, refused.value.details["sent"]) == ("E_DENIED", False)
            assert log.read_text().count('"tools/call"') == 1

    run(scenario())


def test_secrets_of_meah_are_taken_out_of_results_and_nothing_else(home: Any, run: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("RAW_KEY", "the-very-secret-value")

    async def scenario() -> None:
        await in_db(make_server, raw(env=(("KEY", "${RAW_KEY}"),)))
        async with gateway() as running:
            await learn(running)
            looks_like_one = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"
            told = await call("echo", {"text": f"{looks_like_one} \x1b[31m"})
            assert told["content"][0]["text"] == f"{looks_like_one} \x1b[31m"
            told = await call("env")
            assert told["structuredContent"]["KEY"] == "[redacted:RAW_KEY]"
            assert "the-very-secret-value" not in json.dumps(told)
            told = await call("echo", {"text": "x the-very-secret-value y"})
            assert told["content"][0]["text"] == "x [redacted:RAW_KEY] y"

    run(scenario())


def test_a_start_that_is_too_slow_says_that_nothing_was_sent(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw())
        async with gateway() as running:
            await learn(running)
            await in_db(Server.objects.update, args=[*raw().args, "--silent"])
            await in_db(lambda: [Tool.objects.update(pin=Tool.objects.first().pin)])
            with pytest.raises(NotSentError) as late:
                await call("seen", timeout_s=0.5)
            assert (late.value.code, late.value.details["sent"]) == ("E_TIMEOUT", False)

    run(scenario())


def test_a_lazy_server_whose_answer_is_late_is_ended_before_the_failure_is_told(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw(), exposure=Exposure.LAZY)
        async with gateway() as running:
            await learn(running)
            with pytest.raises(AmbiguousError) as late:
                await call("hang", timeout_s=0.5)
            assert late.value.code == "E_TIMEOUT"
            assert running.pool.known("raw")._owner.done()
            assert await call("echo", {"text": "again"})

    run(scenario())


def test_a_change_of_configuration_takes_effect_at_the_next_call(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw())
        async with gateway() as running:
            await learn(running)
            assert "MODE" not in (await call("env"))["structuredContent"]
            await in_db(Server.objects.update, env={"MODE": "new"})
            assert (await call("env"))["structuredContent"]["MODE"] == "new"

    run(scenario())


def test_states_are_reported_and_the_stderr_tail_is_kept(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw("raw", "--noise", "100"))
        async with gateway() as running:
            await learn(running)

            async def state() -> str:
                return str((await in_db(Server.objects.get, name="raw")).state)

            deadline = time.monotonic() + 10
            while await state() != "active":
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            with pytest.raises(AmbiguousError):
                await call("die")
            await until(lambda: running.pool.known("raw")._owner.done())
        row = await in_db(Server.objects.get, name="raw")
        assert (row.state, row.era) == ("idle", "2026-07-28")
        assert "nnnn" in row.stderr_tail

    run(scenario())


def test_a_process_without_a_gateway_says_so(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw())
        async with gateway() as running:
            await learn(running)
        with pytest.raises(NotSentError) as refused:
            await call("echo", {"text": "hi"})
        assert refused.value.code == "E_UNAVAILABLE"

    run(scenario())


def test_a_late_answer_still_comes_to_who_waits(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw())
        async with gateway() as running:
            await learn(running)
            waiting = asyncio.ensure_future(call("slow", {"seconds": 1}, timeout_s=0.2))
            done, _ = await asyncio.wait([waiting], timeout=0.4)
            assert not done, "the gate gives up by itself and listens on"
            assert (await waiting)["content"][0]["text"] == "late"

    run(scenario())


def test_a_question_goes_to_a_client_that_can_be_asked_and_fails_the_call_otherwise(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw())
        async with gateway() as running:
            await learn(running)
            asked = await call("ask", takes_questions=True)
            assert asked["resultType"] == "input_required" and asked["requestState"] == "s1"
            assert asked["inputRequests"]["who"]["params"]["message"] == "Who?"
            with pytest.raises(MeahError) as refused:
                await call("ask")
            assert refused.value.reason == "input_required"
            # The server has done nothing: nobody need look what became of it.
            assert state_after(EffectClass.WRITE, refused.value) == CallState.FAILED

    run(scenario())
