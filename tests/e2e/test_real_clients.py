"""The official clients, and servers that we did not write, with MEAH between them."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from approvals import services
from gateway.models import Tool
from tests.approvals.requests import person
from tests.conftest import Home
from tests.e2e.clients import CLIENTS, AnyClient
from tests.e2e.server import COMMAND
from tests.e2e.test_proxied import manage, set_up
from tests.gateway.test_real_servers import SERVERS, text_of

ALL = pytest.mark.parametrize("name", CLIENTS)
# What a server without hints does is for the operator to say.
READS = {"time": ["get_current_time", "convert_time"], "git": ["git_status", "git_log"]}


@ALL
def test_a_held_a_denied_and_a_successful_call_are_taken_by_every_client(home: Home, tmp_path: Path, name: str) -> None:
    set_up(home, tmp_path)
    boss, _ = person("boss", "approvals.decide_approval")

    async def main() -> None:
        async with CLIENTS[name](COMMAND, home.environ) as client:
            listed = await client.list()
            assert "outputSchema" in listed["raw__echo"] and "outputSchema" not in listed["raw__seen"]
            passed = await client.call("raw__echo", text="hi")
            assert passed["structuredContent"] == {"text": "hi"} and passed["_meta"]["server"] == "kept"
            denied = await client.call("raw__delete")
            assert denied["isError"] and denied["structuredContent"]["error"]["code"] == "E_DENIED"
            refused = await client.call("raw__echo", text=5)
            assert refused["isError"] and "E_INVALID_REQUEST" in text_of(refused)
            stored = await approved(client, "raw__seen", boss)
            assert stored["structuredContent"]["name"] == "seen"

    asyncio.run(main())


@ALL
def test_real_servers_are_listed_read_and_written_through_the_gate(home: Home, tmp_path: Path, name: str) -> None:
    imported(home, tmp_path)
    boss, _ = person("boss", "approvals.decide_approval")

    async def main() -> None:
        async with CLIENTS[name](COMMAND, home.environ) as client:
            listed = await client.list()
            offered = await asyncio.to_thread(_offered)
            assert offered <= listed.keys() and len(offered) >= sum(count for _, count in SERVERS.values())

            assert "hi" in text_of(await client.call("everything__echo", message="hi"))
            assert "UTC" in text_of(await client.call("time__get_current_time", timezone="UTC"))
            file = tmp_path / "files" / "a.txt"
            assert "content of a" in text_of(await client.call("files__read_text_file", path=str(file)))
            repository = str(tmp_path / "repository")
            assert "First commit" in text_of(await client.call("git__git_log", repo_path=repository))

            target = tmp_path / "files" / "b.txt"
            await approved(client, "files__write_file", boss, path=str(target), content="written")
            assert target.read_text() == "written"
            entity = {"name": "MEAH", "entityType": "product", "observations": ["governs"]}
            await approved(client, "memory__create_entities", boss, entities=[entity])
            assert "governs" in (tmp_path / "memory.jsonl").read_text()
            await approved(client, "git__git_create_branch", boss, repo_path=repository, branch_name="feature")
            branches = subprocess.run(["git", "branch"], cwd=repository, capture_output=True, text=True, check=True)
            assert "feature" in branches.stdout

    asyncio.run(main())


async def approved(client: AnyClient, tool: str, user: Any, **arguments: Any) -> dict[str, Any]:
    """Held, and nothing has happened; approved by a person; the stored result, read by its id."""
    held = await client.call(tool, **arguments)
    assert not held.get("isError"), held
    told = held["structuredContent"]["data"]
    assert told["status"] == "pending_approval"
    await asyncio.to_thread(_approve, told["approvalId"], user)
    while True:
        answer = await client.call("approval_status", approvalId=told["approvalId"], waitMs=20_000)
        found = answer["structuredContent"]["data"]
        if found["status"] not in ("pending_approval", "approved", "executing"):
            break
    assert found["status"] == "done", found
    return dict(found["result"])


def _approve(approval_id: str, user: Any) -> None:
    """In a thread of its own, and so with a connection of its own."""
    try:
        services.approve(services.get(approval_id), user=user, note="fine", door="admin")
    finally:
        connections.close_all()


def _offered() -> set[str]:
    try:
        return {tool.listed_name for tool in Tool.objects.select_related("server")}
    finally:
        connections.close_all()


def imported(home: Home, path: Path) -> None:
    """All five, as an operator does it."""
    entries = {}
    for name, (made, _) in SERVERS.items():
        found = made(path)
        entries[name] = {"command": found.command, "args": list(found.args)}
    entries["memory"]["env"] = {"MEMORY_FILE_PATH": str(path / "memory.jsonl")}
    config = path / "real.mcp.json"
    config.write_text(json.dumps({"mcpServers": entries}))
    manage(home, "servers", "import", str(config), "--yes", "--exposure", "direct")
    for server, tools in READS.items():
        for tool in tools:
            manage(home, "servers", "mark", server, tool, "read")
