"""The example CRM over real stdio, as any client sees it; what it did is read from its file, from outside."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from gateway import mcpfile

ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "examples" / "crm" / "server.py"
KEY = "meah/idempotency-key"


@asynccontextmanager
async def crm(data: Path | None = None, command: str = "", **environ: str) -> AsyncIterator[Client]:
    arguments = ["--data", str(data)] if data else []
    parameters = StdioServerParameters(
        command=command or sys.executable,
        args=arguments if command else [str(SERVER), *arguments],
        env={"PATH": os.environ["PATH"], **environ},
        cwd="/",
    )
    async with Client(stdio_client(parameters)) as client:
        yield client


async def call(client: Client, tool: str, key: str = "", **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments, meta={KEY: key} if key else None)
    assert not result.is_error, result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def refused(client: Client, tool: str, key: str = "", **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments, meta={KEY: key} if key else None)
    assert result.is_error
    return str(result.content[0].text)


def kept(data: Path) -> Any:
    return json.loads(data.read_text())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "crm.json"


def test_every_tool_says_what_it_does_and_takes(run: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with crm() as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {name: list(tool.input_schema["properties"]) for name, tool in tools.items()} == {
            "search_tickets": ["query", "status"],
            "get_ticket": ["ticket_id"],
            "add_comment": ["ticket_id", "body"],
            "update_ticket": ["ticket_id", "status", "priority", "assignee"],
            "issue_refund": ["customer_id", "amount", "reason"],
            "get_customer": ["customer_id"],
            "delete_customer": ["customer_id"],
        }
        for tool in tools.values():
            assert all(field["description"] for field in tool.input_schema["properties"].values())
            assert tool.output_schema is not None
            jsonschema_rs.meta.validate(tool.input_schema)
            jsonschema_rs.meta.validate(tool.output_schema)
        hints = {name: tool.annotations for name, tool in tools.items()}
        assert {name for name, hint in hints.items() if hint.read_only_hint} == {
            "search_tickets",
            "get_ticket",
            "get_customer",
        }
        assert [name for name, hint in hints.items() if hint.destructive_hint] == ["delete_customer"]

    run(scenario())


def test_reads(run: Callable[..., Any], data: Path) -> None:
    async def scenario() -> None:
        async with crm(data) as client:
            everything = (await call(client, "search_tickets"))["tickets"]
            assert [ticket["ticket_id"] for ticket in everything] == [f"T-{number}" for number in range(1001, 1009)]
            locked_out = await call(client, "search_tickets", query="LOG IN")
            assert [ticket["ticket_id"] for ticket in locked_out["tickets"]] == ["T-1002"]
            assert (await call(client, "search_tickets", status="closed")) == {"tickets": []}
            assert len((await call(client, "get_ticket", ticket_id="T-1002"))["comments"]) == 2
            assert (await call(client, "get_customer", customer_id="C-1"))["balance"] == 120
            assert "no ticket T-9" in await refused(client, "get_ticket", ticket_id="T-9")
            assert "no customer C-9" in await refused(client, "get_customer", customer_id="C-9")
        assert not data.exists()

    run(scenario())


def test_writes_change_what_they_say_and_are_counted(run: Callable[..., Any], data: Path) -> None:
    async def scenario() -> None:
        async with crm(data) as client:
            ticket = await call(client, "add_comment", ticket_id="T-1001", body="Looked at it.")
            assert (ticket["comments"][-1]["body"], ticket["comments"][-1]["internal"]) == ("Looked at it.", True)
            ticket = await call(client, "update_ticket", key="k1", ticket_id="T-1002", status="in_progress")
            assert (ticket["status"], ticket["priority"], ticket["assignee"]) == ("in_progress", "P3", None)
            ticket = await call(client, "update_ticket", ticket_id="T-1002", priority="P1", assignee="mia")
            assert (ticket["status"], ticket["priority"], ticket["assignee"]) == ("in_progress", "P1", "mia")
            refund = await call(client, "issue_refund", customer_id="C-4", amount=75.35, reason="damaged")
            assert refund == {"customer_id": "C-4", "refunded": 75.35, "balance": 0.1}
            gone = await call(client, "delete_customer", customer_id="C-2")
            assert gone["deleted_tickets"] == ["T-1003", "T-1008"]
            assert "no ticket" in await refused(client, "get_ticket", ticket_id="T-1003")

    run(scenario())
    effects = kept(data)["effects"]
    assert [effect["tool"] for effect in effects] == [
        "add_comment",
        "update_ticket",
        "update_ticket",
        "issue_refund",
        "delete_customer",
    ]
    assert effects[1]["arguments"] == {"ticket_id": "T-1002", "status": "in_progress"}
    assert [effect["key"] for effect in effects] == ["", "k1", "", "", ""]
    assert all(effect["time"].endswith("Z") for effect in effects)


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("update_ticket", {"ticket_id": "T-1001"}),
    ("update_ticket", {"ticket_id": "T-1001", "status": "done"}),
    ("update_ticket", {"ticket_id": "T-1001", "priority": "P5"}),
    ("update_ticket", {"ticket_id": "T-1001", "colour": "red"}),
    ("update_ticket", {"ticket_id": "T-9", "status": "open"}),
    ("issue_refund", {"customer_id": "C-1", "amount": 0, "reason": "x"}),
    ("issue_refund", {"customer_id": "C-1", "amount": "5", "reason": "x"}),
    ("issue_refund", {"customer_id": "C-1", "amount": 10_001, "reason": "x"}),
    ("issue_refund", {"customer_id": "C-1", "amount": 5}),
    ("delete_customer", {"customer_id": "C-99"}),
    ("delete_customer", {}),
    ("make_coffee", {}),
]


def test_what_is_refused_has_no_effect(run: Callable[..., Any], data: Path) -> None:
    async def scenario() -> None:
        async with crm(data) as client:
            for number, (tool, arguments) in enumerate(REFUSED):
                assert await refused(client, tool, key=f"k{number}", **arguments)
            # A failure does not use up its key.
            await call(client, "add_comment", key="k0", ticket_id="T-1001", body="x")

    run(scenario())
    assert [effect["tool"] for effect in kept(data)["effects"]] == ["add_comment"]


def test_a_key_that_was_used_gets_its_first_answer_and_no_second_effect(run: Callable[..., Any], data: Path) -> None:
    refund = {"customer_id": "C-1", "amount": 30, "reason": "late"}

    async def scenario() -> None:
        async with crm(data) as client:
            first = await call(client, "issue_refund", key="once", **refund)
            assert await call(client, "issue_refund", key="once", **refund) == first
            assert "another call" in await refused(client, "issue_refund", key="once", **refund | {"amount": 31})
            assert "another call" in await refused(client, "add_comment", key="once", ticket_id="T-1001", body="x")
        async with crm(data) as client:
            assert await call(client, "issue_refund", key="once", **refund) == first
            await call(client, "issue_refund", key="twice", **refund)
            await call(client, "issue_refund", **refund)
            await call(client, "issue_refund", **refund)
            assert (await call(client, "get_customer", customer_id="C-1"))["balance"] == 240

    run(scenario())
    assert Counter(effect["key"] for effect in kept(data)["effects"]) == {"once": 1, "twice": 1, "": 2}


def test_writes_can_be_dropped_in_silence_by_variable(run: Callable[..., Any], data: Path) -> None:
    async def scenario() -> None:
        async with crm(data, CRM_DROP_WRITES="update_ticket,issue_refund") as client:
            ticket = await call(client, "update_ticket", key="k", ticket_id="T-1001", status="closed")
            assert ticket["status"] == "closed"
            assert (await call(client, "get_ticket", ticket_id="T-1001"))["status"] == "open"
            await call(client, "add_comment", ticket_id="T-1001", body="still works")

    run(scenario())
    assert [effect["tool"] for effect in kept(data)["effects"]] == ["add_comment"]
    assert [(drop["tool"], drop["key"]) for drop in kept(data)["dropped"]] == [("update_ticket", "k")]


def test_writes_can_be_dropped_by_a_flag_in_the_file_while_it_runs(run: Callable[..., Any], data: Path) -> None:
    async def scenario() -> None:
        async with crm(data) as client:
            await call(client, "update_ticket", ticket_id="T-1001", status="closed")
            data.write_text(json.dumps(kept(data) | {"drop_writes": ["update_ticket"]}))
            await call(client, "update_ticket", ticket_id="T-1001", status="open")
            assert (await call(client, "get_ticket", ticket_id="T-1001"))["status"] == "closed"

    run(scenario())
    assert len(kept(data)["effects"]) == len(kept(data)["dropped"]) == 1


def test_several_processes_share_one_file_and_lose_nothing(run: Callable[..., Any], data: Path) -> None:
    async def worker(number: int) -> None:
        async with crm(data) as client:
            for turn in range(15):
                key = f"shared-{turn}"
                await call(client, "issue_refund", key=key, customer_id="C-2", amount=1, reason="race")
                await call(client, "add_comment", key=f"{number}-{turn}", ticket_id="T-1005", body="hello")

    async def scenario() -> None:
        await asyncio.gather(*(worker(number) for number in range(4)))

    run(scenario())
    now = kept(data)
    assert Counter(effect["tool"] for effect in now["effects"]) == {"issue_refund": 15, "add_comment": 60}
    assert now["customers"]["C-2"]["balance"] == 15
    assert len(now["tickets"]["T-1005"]["comments"]) == 61


def test_without_a_file_it_lives_in_memory(run: Callable[..., Any], tmp_path: Path) -> None:
    async def scenario() -> None:
        async with crm() as client:
            await call(client, "update_ticket", ticket_id="T-1001", status="closed")
            assert (await call(client, "get_ticket", ticket_id="T-1001"))["status"] == "closed"
        async with crm() as client:
            assert (await call(client, "get_ticket", ticket_id="T-1001"))["status"] == "open"

    run(scenario())


@pytest.mark.skipif(not (ROOT / ".venv").exists(), reason="the script starts the Python of .venv")
def test_the_example_file_starts_it_from_anywhere(run: Callable[..., Any], data: Path) -> None:
    file = ROOT / "examples" / "crm.mcp.json"
    [entry] = mcpfile.parse(file.read_bytes(), directory=file.parent)
    assert (entry.name, entry.exposure, entry.prefix) == ("crm", "direct", "")
    assert not entry.check("direct")

    async def scenario() -> None:
        async with crm(data, command=entry.launch.command) as client:
            assert len((await client.list_tools()).tools) == 7

    run(scenario())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("./crm/run", "/work/crm/run"),
        ("bin/server", "/work/bin/server"),
        ("npx", "npx"),
        ("/usr/bin/env", "/usr/bin/env"),
        ("~/bin/x", "~/bin/x"),
    ],
)
def test_a_command_with_a_slash_is_relative_to_the_file_that_names_it(command: str, expected: str) -> None:
    text = json.dumps({"mcpServers": {"x": {"command": command}}})
    assert mcpfile.parse(text, directory=Path("/work"))[0].launch.command == expected
    assert mcpfile.parse(text)[0].launch.command == command
