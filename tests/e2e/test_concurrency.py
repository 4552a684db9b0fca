"""Many at once: workers of one call, calls that are taken back, processes that write to one database."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import time
from typing import Any

import pytest

from audit.services import head, verify
from tests.conftest import ROOT, Home
from tests.e2e.providers import environ, silent
from tests.e2e.server import MODERN, Server, eventually
from tests.fake_provider import FakeProvider
from workers.models import Worker

WRITERS = 4
WRITING_S = 3.0
# The requirement: nobody waits longer for the database, however many write.
LONGEST_WAIT_S = 1.0

WRITER = """
import sys, time, json
import django
django.setup()
from django.db import connection, transaction
from audit.services import record
seconds, name = float(sys.argv[1]), sys.argv[2]
connection.ensure_connection()
print("ready", flush=True)
sys.stdin.readline()
waits, until = [], time.monotonic() + seconds
while time.monotonic() < until:
    begun = time.monotonic()
    with transaction.atomic():
        waits.append(time.monotonic() - begun)
        record("call.sent", principal=f"agent:{name}", data={"number": len(waits)})
print(json.dumps({"count": len(waits), "longest": max(waits)}))
"""


def test_sixteen_at_once_come_back_in_order_with_each_failure_its_own(home: Home) -> None:
    fails = {3: "E_AUTH", 7: "E_RATE_LIMIT", 11: "E_PROVIDER"}
    tasks: list[dict[str, Any]] = [
        {"task": f"[mock wait={(number * 7 % 5) * 60} text=answer {number}]", "label": f"task {number}"}
        for number in range(16)
    ]
    for number, code in fails.items():
        tasks[number]["task"] = f"[mock fail={code}]"
    tasks[5] |= {"provider": "nobody"}
    with Server(home, environ={"MEAH_MAX_RETRIES": "0"}) as server:
        server.initialize()
        data = server.data("meah_parallel_agents", workers=tasks)
    assert (data["succeeded"], data["failed"]) == (12, 4)
    for number, worker in enumerate(data["results"]):
        assert worker["label"] == f"task {number}"
        if number == 5:
            assert (worker["workerId"], worker["state"]) == (None, "failed")
            assert worker["error"]["code"] == "E_INVALID_REQUEST" and "mock" in worker["error"]["hint"]
        elif number in fails:
            assert worker["error"]["code"] == fails[number]
        else:
            assert worker["result"]["text"] == f"answer {number}"
        assert set(worker) == set(data["results"][0])
    assert Worker.objects.count() == 15
    assert verify().whole


def test_the_budget_of_all_cancels_what_is_left(home: Home) -> None:
    tasks = [{"task": "[mock text=quick]"}, {"task": "[mock wait=60000]"}, {"task": "[mock wait=60000]"}]
    with Server(home, environ={"MEAH_MAX_CONCURRENT": "2"}) as server:
        server.initialize()
        begun = time.monotonic()
        data = server.data("meah_parallel_agents", workers=tasks, aggregateTimeoutMs=1_500)
        assert time.monotonic() - begun < 15
        assert [worker["state"] for worker in data["results"]] == ["succeeded", "cancelled", "cancelled"]
        assert (data["succeeded"], data["failed"]) == (1, 2)
        assert "1500 ms" in data["results"][2]["error"]["message"]
        # The budget runs on when the answer has gone out before.
        data = server.data("meah_parallel_agents", workers=tasks[1:2], waitMs=0, aggregateTimeoutMs=1_000)
        (worker,) = data["results"]
        assert worker["state"] in ("queued", "running") and (data["succeeded"], data["failed"]) == (0, 0)
        assert server.ended(worker["workerId"])["state"] == "cancelled"


def test_a_queued_worker_that_is_cancelled_never_starts_and_a_running_one_is_aborted(home: Home) -> None:
    with FakeProvider() as fake:
        fake.reply(silent())
        with Server(home, environ=environ(fake, MEAH_MAX_CONCURRENT="1")) as server:
            server.initialize()
            running = server.data("meah_run_agent", task="first")["workerId"]
            queued = server.data("meah_run_agent", task="second")["workerId"]
            eventually(lambda: len(fake.requests) == 1, within_s=20)
            ended = server.data("meah_cancel_agent", workerId=queued)
            assert (ended["state"], ended["startedAt"], ended["durationMs"]) == ("cancelled", None, None)
            assert not fake.requests[0].gone.is_set()
            ended = server.data("meah_cancel_agent", workerId=running, reason="too slow", cleanupWorkspace=True)
            assert (ended["state"], ended["error"]["code"]) == ("cancelled", "E_CANCELLED")
            assert fake.requests[0].gone.wait(5)
            assert server.data("meah_cleanup_workspace", workerId=running)["removed"] is False
            # The slot is free again.
            server.data("meah_run_agent", task="third")
            eventually(lambda: len(fake.requests) == 2, within_s=20)
            assert "third" in fake.requests[1].body.decode()


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
def test_a_call_that_the_client_takes_back_cancels_its_workers_unless_only_its_patience_ended(
    home: Home, era: str
) -> None:
    with FakeProvider() as fake:
        fake.reply(silent())
        with Server(home, era=era, environ=environ(fake)) as server:
            server.initialize()
            impatient = server.begin_call("meah_delegate_task", task="patience")
            eventually(lambda: len(fake.requests) == 1, within_s=20)
            server.cancel(impatient, "McpError: MCP error -32001: Request timed out")
            taken_back = server.begin_call("meah_parallel_agents", workers=[{"task": "one"}, {"task": "two"}])
            eventually(lambda: len(fake.requests) == 3, within_s=20)
            server.cancel(taken_back, "AbortError: This operation was aborted")
            eventually(lambda: fake.requests[1].gone.is_set() and fake.requests[2].gone.is_set(), within_s=20)
            workers = server.data("meah_list_agents")["workers"]
            assert [worker["state"] for worker in workers] == ["cancelled", "cancelled", "running"]
            assert not fake.requests[0].gone.is_set()
            # A call that is taken back before it was even looked at starts nothing that stays.
            hasty = server.begin_call("meah_delegate_task", task="never mind")
            server.cancel(hasty)
            time.sleep(1.0)
            newest = server.data("meah_list_agents", limit=1)["workers"][0]
            assert newest["state"] != "queued" and (newest == workers[0] or newest["state"] == "cancelled")


def test_the_official_client_that_times_out_leaves_the_worker_to_be_read(home: Home) -> None:
    import asyncio

    from mcp import Client, MCPError, StdioServerParameters
    from mcp.client.stdio import stdio_client

    from tests.e2e.server import COMMAND

    parameters = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=home.environ, cwd="/")

    async def states(client: Client) -> list[str]:
        listed = await client.call_tool("meah_list_agents", {})
        return [worker["state"] for worker in listed.structured_content["data"]["workers"]]

    async def main() -> None:
        async with Client(stdio_client(parameters), mode=MODERN) as client:
            # Without a handshake nothing says that the server is up.
            assert await states(client) == []
            with pytest.raises(MCPError, match="timed out"):
                await client.call_tool("meah_delegate_task", {"task": "[mock wait=3000]"}, read_timeout_seconds=0.5)
            call = asyncio.create_task(client.call_tool("meah_delegate_task", {"task": "[mock wait=60000]"}))
            await asyncio.sleep(0.5)
            call.cancel()
            while await states(client) != ["cancelled", "succeeded"]:
                await asyncio.sleep(0.1)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_four_processes_that_write_at_once_never_find_the_database_locked_and_take_turns(home: Home) -> None:
    before = head().size
    command = [sys.executable, "-c", WRITER, str(WRITING_S)]
    environ = home.environ | {"DJANGO_SETTINGS_MODULE": "meah_site.settings_mcp", "PYTHONPATH": str(ROOT)}
    writers = [
        subprocess.Popen(
            [*command, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            text=True,
        )
        for number in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    results = []
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        out, err = writer.communicate(timeout=60)
        assert writer.returncode == 0, err
        results.append(json.loads(out))
    assert max(result["longest"] for result in results) < LONGEST_WAIT_S, results
    counts = [result["count"] for result in results]
    assert head().size == before + sum(counts)
    if "sqlite" in home.database_url:
        # On PostgreSQL the queue of a row lock is its own affair.
        assert min(counts) * 2 > max(counts), counts
    assert verify().whole


@pytest.mark.slow
def test_a_blocked_call_says_every_ten_seconds_that_it_lives(home: Home) -> None:
    with Server(home) as server:
        server.initialize()
        told = server.begin_call("meah_delegate_task", token="t-1", task="[mock wait=25000]", timeoutMs=40_000)
        untold = server.begin_call("meah_delegate_task", task="[mock wait=22000]", timeoutMs=40_000)
        worker = server.envelope(told)["data"]
        server.envelope(untold)
        beats = [notice["params"] for notice in server.notices if notice["method"] == "notifications/progress"]
        assert len(beats) == 2 and {beat["progressToken"] for beat in beats} == {"t-1"}
        assert [beat["progress"] for beat in beats] == [1, 2]
        assert all(worker["workerId"] in beat["message"] for beat in beats)
        with pytest.raises(queue.Empty):
            server.answer("nothing more", within_s=2)
        assert len([notice for notice in server.notices if notice["method"] == "notifications/progress"]) == 2
