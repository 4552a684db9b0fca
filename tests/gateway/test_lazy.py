"""Lazy children: started late, called in order, ended after what is ambiguous, evicted, left alone when they fail."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from approvals import governor
from approvals.models import Call, Rule
from approvals.targets import CallContext, CallRequest
from audit.dbthread import in_db
from audit.models import Entry
from core.errors import MeahError
from gateway import schemas
from gateway.breaker import Breaker
from gateway.failures import AmbiguousError, DownstreamError, NotSentError
from gateway.lazy import Discovery
from gateway.models import Exposure, Server, Tool
from tests.gateway.support import (
    alive,
    gateway,
    learn,
    make_server,
    pid_of,
    raw,
    recorded,
    until,
)

AGENT = "agent:test"


def lazy(name: str = "raw", *options: str, **columns: Any) -> None:
    make_server(raw(name, *options), exposure=Exposure.LAZY, **columns)
    Rule.objects.get_or_create(name="all", defaults={"server": "*", "tool": "*", "effect": "allow"})


async def submit(tool: str, arguments: Any = None, *, timeout_s: float | None = None, server: str = "raw") -> Any:
    request = CallRequest(AGENT, server, tool, arguments or {}, "mcp")
    return (await governor.submit(request, CallContext(timeout_s=timeout_s))).result


async def failure(work: Any) -> MeahError:
    with pytest.raises(MeahError) as failed:
        await work
    return failed.value


# -- calls in order, within one deadline ------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrent", [False, True])
def test_calls_to_one_child_run_in_order_unless_it_takes_more(home: Any, run: Any, concurrent: bool) -> None:
    async def scenario() -> None:
        await in_db(lazy, concurrent=concurrent)
        async with gateway() as running:
            await learn(running)
            began = time.monotonic()
            await asyncio.gather(*(submit("slow", {"seconds": 0.5}) for _ in range(4)))
            took = time.monotonic() - began
        assert (took < 1.5) if concurrent else (took >= 2.0)

    run(scenario())


def test_a_direct_child_takes_its_calls_at_once(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(lazy)
        await in_db(lambda: Server.objects.update(exposure=Exposure.DIRECT))
        async with gateway() as running:
            await learn(running)
            began = time.monotonic()
            await asyncio.gather(*(submit("slow", {"seconds": 0.5}) for _ in range(4)))
            assert time.monotonic() - began < 1.5

    run(scenario())


def test_who_waits_too_long_for_its_turn_has_sent_nothing(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(lazy)
        async with gateway() as running:
            await learn(running)
            busy = asyncio.ensure_future(submit("slow", {"seconds": 1.5}))
            await asyncio.sleep(0.3)
            error = await failure(submit("seen", timeout_s=0.3))
            assert (error.code, error.reason, error.details["sent"]) == ("E_TIMEOUT", "queued", False)
            await busy
        assert set(await in_db(lambda: set(Call.objects.values_list("tool", "state")))) == {
            ("slow", "done"),
            ("seen", "failed"),
        }

    run(scenario())


def test_one_deadline_covers_start_and_call(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(lazy, "raw", "--silent")
        await in_db(_known_tool, "raw")
        async with gateway():
            began = time.monotonic()
            error = await failure(submit("seen", timeout_s=0.5))
            assert (error.code, error.reason) == ("E_TIMEOUT", "starting") and time.monotonic() - began < 3

    run(scenario())


def _known_tool(name: str) -> None:
    """As if it had been listed and accepted before."""
    server = Server.objects.get(name=name)
    text = '{"description":"seen","inputSchema":{"type":"object"},"name":"seen"}'
    from gateway.pins import pin_of

    pin = pin_of(text, server.launch().identity)
    Tool.objects.create(server=server, name="seen", definition=text, pin=pin, pin_state="accepted")


# -- what is ambiguous ------------------------------------------------------------------------------------------------


def test_a_child_whose_answer_is_late_is_ended_before_the_failure_is_told(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(lazy)
        async with gateway() as running:
            await learn(running)
            pid = pid_of(home.path / "run")
            error = await failure(submit("hang", timeout_s=0.5))
            assert error.code == "E_TIMEOUT" and not alive(pid)
            assert (await submit("seen"))["structuredContent"]["name"] == "seen", "the next call starts it again"
        states = await in_db(lambda: dict(Call.objects.values_list("tool", "state")))
        assert states == {"hang": "unknown", "seen": "done"}

    run(scenario())


def test_a_cancelled_call_ends_the_child_and_the_next_one_finds_a_new_one(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(lazy)
        async with gateway() as running:
            await learn(running)
            pid = pid_of(home.path / "run")
            hanging = asyncio.ensure_future(submit("hang"))
            await asyncio.sleep(0.3)
            hanging.cancel()
            await asyncio.wait([hanging])
            assert (await submit("seen"))["structuredContent"]["name"] == "seen"
            assert not alive(pid)

    run(scenario())


def test_a_call_whose_child_died_is_never_sent_again(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "log"
        await in_db(lazy, "raw", "--log", str(log))
        async with gateway() as running:
            await learn(running)
            error = await failure(submit("die"))
            assert isinstance(error, AmbiguousError)
            await submit("seen")
        assert log.read_text().count('"name":"die"') == 1

    run(scenario())


# -- the pool ---------------------------------------------------------------------------------------------------------


def test_the_child_that_was_idle_longest_makes_room(home: Any, run: Any) -> None:
    async def scenario() -> None:
        names = ["a", "b", "c"]
        for name in names:
            await in_db(lazy, name)
        async with gateway() as running:
            for name in names:
                await learn(running, name)
                await running.pool.known(name).end()
            running.pool.slots.at_once = 2
            for name in ("a", "b", "a", "c"):
                await submit("seen", server=name)
            assert sorted(group["server"] for group in recorded(home.path / "run")) == ["a", "c"]
            await submit("seen", server="b")
            assert sorted(group["server"] for group in recorded(home.path / "run")) == ["b", "c"]

    run(scenario())


def test_when_all_are_busy_a_call_waits_and_then_says_so(home: Any, run: Any) -> None:
    async def scenario() -> None:
        for name in ("a", "b"):
            await in_db(lazy, name)
        async with gateway() as running:
            for name in ("a", "b"):
                await learn(running, name)
                await running.pool.known(name).end()
            slots = running.pool.slots
            slots.at_once, slots.wait_s = 1, 0.4
            busy = asyncio.ensure_future(submit("slow", {"seconds": 1.5}, server="a"))
            await asyncio.sleep(0.4)
            error = await failure(submit("seen", server="b"))
            assert (error.code, error.reason, error.retryable) == ("E_UNAVAILABLE", "pool_full", True)
            slots.wait_s = 20.0
            assert (await submit("seen", server="b"))["structuredContent"]["name"] == "seen"
            assert busy.done() and len(recorded(home.path / "run")) == 1

    run(scenario())


def test_idle_children_are_ended_but_for_those_that_are_kept_alive(home: Any, run: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("gateway.sessions.LOOK_EVERY_S", 0.1)

    async def scenario() -> None:
        await in_db(lambda: lazy("kept", keep_alive=True))
        await in_db(lazy, "idle")
        async with gateway() as running:
            for name in ("kept", "idle"):
                await learn(running, name)
                await submit("seen", server=name)
            busy = asyncio.ensure_future(submit("slow", {"seconds": 1}, server="idle"))
            await asyncio.sleep(0.2)
            running.pool.slots.idle_s = 0.3
            await asyncio.sleep(0.5)
            assert len(recorded(home.path / "run")) == 2, "a child that works is not idle"
            await busy
            await until(lambda: [group["server"] for group in recorded(home.path / "run")] == ["kept"])
            await submit("seen", server="idle")

    run(scenario())


# -- the circuit breaker ----------------------------------------------------------------------------------------------


def transient() -> MeahError:
    return AmbiguousError("E_NETWORK", "gone")


def test_five_transient_failures_open_it_and_one_call_tries_it_again() -> None:
    now = 100.0
    breaker = Breaker(clock=lambda: now)
    for _ in range(5):
        breaker.enter("x")
        breaker.leave(transient())
    with pytest.raises(NotSentError) as refused:
        breaker.enter("x")
    assert (refused.value.reason, refused.value.details["sent"]) == ("breaker_open", False)
    now = 131.0
    breaker.enter("x")
    with pytest.raises(NotSentError):
        breaker.enter("x")
    breaker.leave(transient())
    with pytest.raises(NotSentError):
        breaker.enter("x")
    now = 162.0
    breaker.enter("x")
    breaker.leave(None)
    for _ in range(4):
        breaker.enter("x")
        breaker.leave(transient())
    breaker.enter("x")


@pytest.mark.parametrize(
    "harmless",
    [
        DownstreamError("x", -32050, "down"),
        NotSentError("E_UNAVAILABLE", reason="pool_full"),
        NotSentError("E_TIMEOUT", reason="queued"),
        NotSentError("E_DENIED", reason="quarantined"),
        NotSentError("E_CONFIG", reason="start"),
        AmbiguousError("E_NETWORK", reason="answer_too_large"),
        asyncio.CancelledError(),
        None,
    ],
)
def test_what_says_nothing_of_the_server_never_trips_it(harmless: Any) -> None:
    breaker = Breaker()
    for _ in range(50):
        breaker.enter("x")
        breaker.leave(harmless)
    breaker.enter("x")


def test_it_is_asked_before_a_child_is_started(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(lazy)
        async with gateway() as running:
            await learn(running)
            for tool in ("is_error", "fail") * 4:
                if tool == "is_error":
                    assert (await submit(tool))["isError"]
                else:
                    assert (await failure(submit(tool))).reason == "downstream_error"
            for _ in range(5):
                assert (await failure(submit("die"))).code == "E_NETWORK"
            starts = running.pool.known("raw").starts
            error = await failure(submit("seen"))
            assert (error.code, error.reason) == ("E_UNAVAILABLE", "breaker_open")
            assert running.pool.known("raw").starts == starts and recorded(home.path / "run") == []

    run(scenario())


# -- discovery --------------------------------------------------------------------------------------------------------


def discover(**wanted: Any) -> Any:
    return Discovery().discover(schemas.parse(schemas.DISCOVER, wanted), principal=AGENT)


def test_discovery_starts_nothing_and_says_how_old_its_schemas_are(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(lazy)
        await in_db(lazy, "never")
        await in_db(lambda: make_server(raw("hidden"), exposure=Exposure.OFF))
        async with gateway() as running:
            await learn(running)
            found = await discover()
            assert [(one["server"], one["schemaSource"]) for one in found["servers"]] == [
                ("never", "unknown"),
                ("raw", "live"),
            ]
            assert found["tools"] == [] and "next" in found
            assert running.pool.known("never") is None
        found = await discover(kind="server")
        assert found["servers"][1]["schemaSource"] == "cache" and found["servers"][1]["schemaAgeMs"] >= 0

    run(scenario())


def test_a_named_server_lists_its_tools_with_schemas_in_pages(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(lazy)
        async with gateway() as running:
            await learn(running)
        names, cursor = [], None
        while True:
            page = await discover(server="raw", kind="tool", limit=5, cursor=cursor)
            assert all("inputSchema" in tool for tool in page["tools"]) and len(page["tools"]) <= 5
            names += [tool["tool"] for tool in page["tools"]]
            if (cursor := page["nextCursor"]) is None:
                break
        assert names == sorted(names) and len(names) == await in_db(Tool.objects.count)
        [echo, *_] = (await discover(query="echo"))["tools"]
        assert echo["tool"] == "echo" and "inputSchema" in echo, "one tool that is named comes whole"
        [first, *_] = (await discover(query="says it back"))["tools"]
        assert first["tool"] == "echo" and "inputSchema" not in first
        assert "inputSchema" in (await discover(query="says it back", detail="full"))["tools"][0]
        for wrong in ({"cursor": "x"}, {"server": "nowhere"}, {"refresh": True}):
            assert (await failure(discover(**wrong))).code in ("E_INVALID_REQUEST", "E_NOT_FOUND")

    run(scenario())


def test_a_change_in_any_process_is_found_at_once(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(lazy)
        async with gateway() as running:
            await learn(running)
        one = Discovery()
        wanted = schemas.parse(schemas.DISCOVER, {"query": "echo"})
        assert (await one.discover(wanted, principal=AGENT))["tools"]
        await in_db(_switched_off)
        assert (await one.discover(wanted, principal=AGENT))["tools"] == []

    run(scenario())


def _switched_off() -> None:
    """As the admin does it: with its entry."""
    from audit.services import record

    with transaction.atomic():
        Server.objects.update(exposure=Exposure.OFF)
        record("server.changed", principal="user:ann", subject="raw")


def test_a_refresh_starts_that_one_server_and_finds_what_is_new(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        tools = tmp_path / "tools.json"
        tools.write_text('[{"name": "one", "inputSchema": {"type": "object"}}]')
        await in_db(lazy, "raw", "--tools", str(tools))
        await in_db(lazy, "other")
        async with gateway() as running:
            await learn(running)
            tools.write_text('[{"name": "one", "inputSchema": {"type": "object"}}, {"name": "two", "inputSchema": {}}]')
            found = await discover(server="raw", refresh=True)
            assert found["servers"][0]["quarantined"] == 1, "what is new waits for a person"
            assert [tool["tool"] for tool in found["tools"]] == ["one"]
            assert running.pool.known("other") is None
        assert await in_db(lambda: Entry.objects.filter(kind="tool.quarantined", subject="raw/two").exists())

    run(scenario())


def test_the_pool_stops_with_children_in_every_state(home: Any, run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await in_db(lazy)
        async with gateway() as running:
            await learn(running)
            pid = pid_of(home.path / "run")
            hanging = [asyncio.ensure_future(submit("hang")) for _ in range(3)]
            await asyncio.sleep(0.3)
        await asyncio.wait(hanging, timeout=10)
        assert all(task.done() for task in hanging) and not alive(pid)

    run(scenario())
