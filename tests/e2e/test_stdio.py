"""The MCP server as clients meet it: over stdio, in both protocol eras."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from meah_site.version import version
from tests.conftest import ROOT, Home
from tests.e2e.server import COMMAND, LEGACY, MODERN, Server

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

EVERY_TOOL = (
    "meah_list_models",
    "meah_run_agent",
    "meah_delegate_task",
    "meah_parallel_agents",
    "meah_get_agent",
    "meah_list_agents",
    "meah_cancel_agent",
    "meah_cleanup_workspace",
    "mcp_discover",
    "mcp_call",
    "mcp_run",
    "approval_status",
    "list_pending",
)


def test_the_server_says_who_it_is_and_what_it_is_for(either: Server) -> None:
    told = either.request("server/discover") if either.era == MODERN else None
    if told is None:
        # An era speaks the handshake once: asked again, it answers as before.
        told = either.initialize()
        assert told["serverInfo"] == {"name": "meah", "version": version()}
        assert told["protocolVersion"] == LEGACY
    assert told["instructions"].isascii() and len(told["instructions"]) < 1_500
    assert "meah_delegate_task" in told["instructions"]
    assert set(told["capabilities"]) == {"tools"}


def test_both_eras_list_the_same_tools(either: Server) -> None:
    listed = either.request("tools/list")["tools"]
    snapshot = json.loads((ROOT / "tests/snapshots/tools.agent.json").read_text())
    assert listed == snapshot["tools"]
    assert tuple(tool["name"] for tool in listed) == EVERY_TOOL


def test_every_tool_does_its_work(either: Server) -> None:
    models = either.data("meah_list_models")
    assert [provider["name"] for provider in models["providers"]] == ["mock"]
    assert set(models) == {"providers", "roles", "limits", "runtime"}

    done = either.data("meah_delegate_task", task="Say hello. [mock text=Hello there]", label="greeting")
    assert (done["state"], done["result"]["text"], done["label"]) == ("succeeded", "Hello there", "greeting")

    started = either.data("meah_run_agent", task="[mock wait=60000]")
    assert started["state"] in ("queued", "running") and "meah_get_agent" in started["next"]
    ended = either.data("meah_cancel_agent", workerId=started["workerId"], reason="seen enough")
    assert ended["state"] == "cancelled" and "seen enough" in ended["error"]["message"]
    assert either.data("meah_cancel_agent", workerId=started["workerId"])["state"] == "cancelled"

    both = either.data("meah_parallel_agents", workers=[{"task": "one"}, {"task": "two"}])
    assert (both["succeeded"], both["failed"], len(both["results"])) == (2, 0, 2)

    assert either.worker(done["workerId"]) == done
    newest = either.data("meah_list_agents", limit=2)
    assert {worker["workerId"] for worker in newest["workers"]} == {worker["workerId"] for worker in both["results"]}
    older = either.data("meah_list_agents", limit=100, cursor=newest["nextCursor"])
    assert older["workers"][0]["workerId"] == started["workerId"]

    assert either.data("meah_cleanup_workspace", workerId=done["workerId"])["removed"] is True
    assert either.data("meah_cleanup_workspace", workerId=done["workerId"])["removed"] is False


def test_a_worker_that_fails_is_the_error_of_a_delegated_task_alone(either: Server) -> None:
    error = either.error("meah_delegate_task", task="[mock fail=E_AUTH]")
    assert error["code"] == "E_AUTH" and error["retryable"] is False
    worker = error["details"]["worker"]
    assert worker["state"] == "failed" and worker["error"]["code"] == "E_AUTH"
    assert either.worker(worker["workerId"])["state"] == "failed"
    parallel = either.data("meah_parallel_agents", workers=[{"task": "[mock fail=E_AUTH]"}])
    assert (parallel["succeeded"], parallel["failed"]) == (0, 1)


def test_a_dry_run_shows_the_prompt_and_starts_nothing(either: Server) -> None:
    before = either.data("meah_list_agents", limit=1)
    shown = either.data("meah_run_agent", task="Look.", context=["some text"], dryRun=True)
    assert shown["dryRun"] is True and shown["provider"] == "mock" and len(shown["messages"]) == 2
    assert "some text" in shown["messages"][1]["content"]
    assert either.data("meah_list_agents", limit=1) == before


def test_a_long_result_is_read_in_pages(server: Server) -> None:
    done = server.data("meah_delegate_task", task="[mock length=95000]")
    text = done["result"]["text"]
    assert len(text) == done["result"]["nextOffset"] == 40_000
    offset = 40_000
    while offset:
        page = server.data("meah_get_agent", workerId=done["workerId"], offset=offset)["result"]
        text += page["text"]
        offset = page["nextOffset"]
    assert len(text) == 95_000
    assert text.splitlines()[1000].split()[0] == "1001"


def test_one_answer_never_carries_more_than_a_page_of_results(server: Server) -> None:
    tasks = [{"task": "[mock length=30000]"}, {"task": "[mock length=30000]"}, {"task": "[mock text=short]"}]
    results = server.data("meah_parallel_agents", workers=tasks)["results"]
    lengths = [len(worker["result"]["text"]) for worker in results]
    assert lengths[2] == 5 and lengths[0] == lengths[1] > 15_000 and sum(lengths) <= 40_000
    assert results[0]["result"]["nextOffset"] == lengths[0]


def test_waiting_less_long_than_the_worker_needs_returns_it_unfinished(server: Server) -> None:
    worker = server.data("meah_delegate_task", task="[mock wait=700]", waitMs=50)
    assert worker["state"] in ("queued", "running") and worker["result"] is None
    assert "meah_get_agent" in worker["next"]
    assert server.ended(worker["workerId"])["state"] == "succeeded"


def test_an_unknown_tool_is_an_error_of_the_protocol(either: Server) -> None:
    answer = either.answer(either.begin_call("meah_nothing"))
    assert answer["error"]["code"] == -32602 and "meah_nothing" in answer["error"]["message"]


@pytest.mark.parametrize("mode", ["legacy", MODERN, pytest.param("auto", marks=pytest.mark.slow)])
def test_the_official_client_gets_on_with_it(shared_home: Home, mode: str) -> None:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=shared_home.environ, cwd="/")

    async def main() -> tuple[list[str], Any, Any]:
        async with Client(stdio_client(parameters), mode=mode) as client:  # type: ignore[arg-type]
            tools = [tool.name for tool in (await client.list_tools()).tools]
            good = await client.call_tool("meah_delegate_task", {"task": "[mock text=Yes]"})
            bad = await client.call_tool("meah_get_agent", {"workerId": "w_" + "0" * 20})
            return tools, good, bad

    tools, good, bad = asyncio.run(asyncio.wait_for(main(), 60))
    assert tuple(tools) == EVERY_TOOL
    # The client itself checks structured content against the output schema, errors too.
    assert not good.is_error and good.structured_content["data"]["result"]["text"] == "Yes"
    assert bad.is_error and bad.structured_content["error"]["code"] == "E_NOT_FOUND"


def test_it_starts_anywhere_with_next_to_no_environment(shared_home: Home) -> None:
    environ = {name: shared_home.environ[name] for name in ("PATH", "MEAH_HOME", "DATABASE_URL", "MEAH_ENV_FILE")}
    frames = _frames(_initialize(), {"jsonrpc": "2.0", "method": "notifications/initialized"}, _list_tools())
    done = subprocess.run(COMMAND, input=frames, env=environ, cwd="/", capture_output=True, timeout=60)
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    # The input ended right behind the last request: its answer comes all the same.
    assert first["id"] == 1 and len(second["result"]["tools"]) == len(EVERY_TOOL)
    assert done.returncode == 0


def test_files_and_dev_null_do_for_pipes(shared_home: Home, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(_frames(_initialize(), _list_tools()))
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as taken:
        done = subprocess.run(
            COMMAND, stdin=given, stdout=taken, stderr=subprocess.PIPE, env=shared_home.environ, timeout=60
        )
    assert done.returncode == 0
    assert [json.loads(line)["id"] for line in (tmp_path / "out").read_bytes().splitlines()] == [1, 2]
    nothing = subprocess.run(
        COMMAND, stdin=subprocess.DEVNULL, capture_output=True, env=shared_home.environ, timeout=60
    )
    assert (nothing.returncode, nothing.stdout) == (0, b"")


def test_two_servers_that_start_at_once_on_an_empty_database_both_work(home: Home) -> None:
    empty = _emptied(home)
    with Server(empty) as one, Server(empty, era=MODERN) as other:
        assert len(one.initialize()) and len(other.initialize())
        for server in (one, other):
            assert server.data("meah_delegate_task", task="Say hello.")["state"] == "succeeded"
        assert [server.logged("database_migrated") for server in (one, other)].count(True) == 1


def test_the_log_is_one_line_when_it_serves_and_one_when_it_ends(shared_home: Home) -> None:
    with Server(shared_home) as server:
        server.initialize()
        server.data("meah_delegate_task", task="Say hello.")
        server.close()
        assert server.gone(within_s=20) == 0
        assert [line["event"] for line in server.events()] == ["server_ready", "server_ended"]


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("MEAH_MAX_CONCURRENT", "many", "MEAH_MAX_CONCURRENT"),
        ("MEAH_LOG_LEVEL", "loud", "MEAH_LOG_LEVEL"),
        ("DATABASE_URL", "mysql://root:hunter2hunter2@localhost/meah", "DATABASE_URL"),
        ("DATABASE_URL", "postgresql://meah:hunter2hunter2@127.0.0.1:1/meah", "database can not be used"),
        ("DATABASE_URL", "sqlite:///notes.txt", "database can not be used"),
        ("MEAH_HOME", "{home}/notes.txt", "MEAH_HOME"),
        ("MEAH_ENV_FILE", "{home}/notes.txt", "notes.txt, line 1"),
    ],
)
def test_a_start_that_fails_says_so_in_one_line(shared_home: Home, variable: str, value: str, named: str) -> None:
    (shared_home.path / "notes.txt").write_text("This is no database, no directory and no .env file.\n" * 100)
    environ = shared_home.environ | {variable: value.format(home=shared_home.path)}
    done = subprocess.run(COMMAND, stdin=subprocess.PIPE, capture_output=True, env=environ, cwd="/", timeout=60)
    assert done.returncode == 1 and done.stdout == b""
    (line,) = done.stderr.decode().splitlines()
    error = json.loads(line)["error"]
    assert error["code"] == "E_CONFIG" and named in error["message"] and error["hint"]
    assert "hunter2" not in line


def test_a_closed_stdin_is_a_failed_start(shared_home: Home) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *COMMAND], capture_output=True, env=shared_home.environ, timeout=60
    )
    assert done.returncode == 1 and json.loads(done.stderr)["error"]["code"] == "E_CONFIG"


def _frames(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def _initialize() -> dict[str, Any]:
    client = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "pipe", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}


def _list_tools() -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def _emptied(home: Home) -> Home:
    """The same home with nothing in its database."""
    from django.db import connection

    if connection.vendor == "sqlite":
        connection.close()
        for path in home.path.glob("db.*"):
            path.unlink()
    else:
        with connection.cursor() as cursor:
            cursor.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        connection.close()
    return home
