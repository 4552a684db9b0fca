"""`manage.py smoke`: the real MCP server over stdio, every tool once, a table, and a non-zero exit on any miss."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from core.errors import JsonObject
from core.text import one_line

DEADLINE_S = 120
MOCK_HOLD = "[mock wait=20000] Summarize nothing."


@dataclass
class Check:
    tool: str
    passed: bool
    took_ms: int
    note: str


class Command(BaseCommand):
    help = (
        "Start the MCP server as a client does and run every tool with the mock provider, offline. "
        "MEAH_SMOKE_PROVIDER=<name> uses that configured provider instead and spends real tokens."
    )
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        provider = os.environ.get("MEAH_SMOKE_PROVIDER", "")
        with tempfile.TemporaryDirectory(prefix="meah-smoke-") as scratch:
            # The mock needs no configuration: it is tried in a home of its own.
            environ = {} if provider else {"MEAH_HOME": scratch, "DATABASE_URL": ""}
            checks = asyncio.run(asyncio.wait_for(_run(provider or "mock", environ), DEADLINE_S))
        for check in checks:
            mark = self.style.SUCCESS("pass") if check.passed else self.style.ERROR("MISS")
            self.stdout.write(f"{mark}  {check.tool:<24} {check.took_ms:>6} ms  {check.note}")
        missed = [check.tool for check in checks if not check.passed]
        if missed:
            raise CommandError(f"{len(missed)} of {len(checks)} failed: {', '.join(missed)}")
        self.stdout.write(f"All {len(checks)} checks passed with provider {provider or 'mock'}.")


async def _run(provider: str, environ: dict[str, str]) -> list[Check]:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(
        command=sys.executable,
        args=[str(Path(settings.BASE_DIR) / "manage.py"), "runmcp"],
        env={**os.environ, **environ, "MEAH_LOG_LEVEL": "error", "MEAH_AGENT": "smoke"},
        cwd="/",
    )
    async with Client(stdio_client(parameters)) as client:
        return await Smoke(client, provider).run()


class Smoke:
    def __init__(self, client: Any, provider: str) -> None:
        self.client = client
        self.task = {
            "provider": provider,
            "task": "Say in one sentence what you are.",
            "maxOutputTokens": 2000,
        }
        self.checks: list[Check] = []
        self.worker_id = ""

    async def run(self) -> list[Check]:
        await self._check("tools/list", self._tools)
        await self._check("meah_list_models", self._models)
        await self._check("meah_delegate_task", self._delegate)
        await self._check("meah_run_agent", self._dry_run)
        await self._check("meah_parallel_agents", self._parallel)
        await self._check("meah_get_agent", self._get)
        await self._check("meah_list_agents", self._list)
        await self._check("meah_cancel_agent", self._cancel)
        await self._check("meah_cleanup_workspace", self._cleanup)
        await self._check("mcp_discover", self._discover)
        await self._check("mcp_call", self._no_server)
        await self._check("mcp_run", self._no_run)
        await self._check("list_pending", self._pending)
        await self._check("approval_status", self._no_request)
        await self._check("an unknown provider", self._refused)
        return self.checks

    async def _check(self, tool: str, step: Callable[[], Awaitable[str]]) -> None:
        begun = time.monotonic()
        try:
            passed, note = True, await step()
        except Exception as error:
            passed, note = False, one_line(f"{type(error).__name__}: {error}", 200)
        self.checks.append(Check(tool, passed, round((time.monotonic() - begun) * 1000), note))

    async def _call(self, tool: str, **arguments: Any) -> JsonObject:
        result = await self.client.call_tool(tool, arguments)
        envelope: JsonObject = result.structured_content
        if not envelope["ok"]:
            raise RuntimeError(f"{envelope['error']['code']}: {envelope['error']['message']}")
        data: JsonObject = envelope["data"]
        return data

    async def _tools(self) -> str:
        listed = await self.client.list_tools()
        return f"{len(listed.tools)} tools"

    async def _models(self) -> str:
        data = await self._call("meah_list_models")
        return ", ".join(provider["name"] for provider in data["providers"])

    async def _delegate(self) -> str:
        worker = await self._call("meah_delegate_task", **self.task)
        self.worker_id = worker["workerId"]
        _expect(worker["state"] == "succeeded", worker["state"])
        return one_line(worker["result"]["text"], 60)

    async def _dry_run(self) -> str:
        data = await self._call("meah_run_agent", **self.task, dryRun=True)
        return f"{len(data['messages'])} messages, nothing sent"

    async def _parallel(self) -> str:
        data = await self._call("meah_parallel_agents", workers=[self.task, self.task | {"role": "reviewer"}])
        _expect(data["succeeded"] == 2, data["results"])
        return f"{data['succeeded']} succeeded, {data['failed']} failed"

    async def _get(self) -> str:
        worker = await self._call("meah_get_agent", workerId=self.worker_id)
        return str(worker["state"])

    async def _list(self) -> str:
        data = await self._call("meah_list_agents", limit=5)
        _expect(self.worker_id in [worker["workerId"] for worker in data["workers"]], "the worker is missing")
        return f"{len(data['workers'])} workers"

    async def _cancel(self) -> str:
        task = self.task | ({"task": MOCK_HOLD} if self.task["provider"] == "mock" else {})
        worker = await self._call("meah_run_agent", **task)
        ended = await self._call("meah_cancel_agent", workerId=worker["workerId"], reason="smoke test")
        _expect(ended["state"] in ("cancelled", "succeeded"), ended["state"])
        return str(ended["state"])

    async def _cleanup(self) -> str:
        data = await self._call("meah_cleanup_workspace", workerId=self.worker_id)
        return "removed" if data["removed"] else "there was none"

    async def _discover(self) -> str:
        data = await self._call("mcp_discover")
        return f"{len(data['servers'])} servers, {len(data['tools'])} tools"

    async def _no_server(self) -> str:
        result = await self.client.call_tool("mcp_call", {"server": "nobody", "tool": "nothing"})
        error = (result.structured_content or {}).get("error") or {}
        _expect(error.get("code") == "E_NOT_FOUND", result.structured_content)
        return "an unknown server is E_NOT_FOUND"

    async def _no_run(self) -> str:
        result = await self.client.call_tool("mcp_run", {"runId": "mr_" + "0" * 20})
        error = (result.structured_content or {}).get("error") or {}
        _expect(error.get("code") == "E_NOT_FOUND", result.structured_content)
        return "an unknown run is E_NOT_FOUND"

    async def _pending(self) -> str:
        data = await self._call("list_pending")
        _expect(data["pending"] == [], data)
        return str(data["message"])

    async def _no_request(self) -> str:
        result = await self.client.call_tool("approval_status", {"approvalId": "apr_" + "0" * 20})
        error = (result.structured_content or {}).get("error") or {}
        _expect(error.get("code") == "E_NOT_FOUND", result.structured_content)
        return "an unknown request is E_NOT_FOUND"

    async def _refused(self) -> str:
        result = await self.client.call_tool("meah_run_agent", {"task": "x", "provider": "nobody"})
        error = result.structured_content["error"]
        _expect(error["code"] == "E_INVALID_REQUEST", error)
        return str(error["code"])


def _expect(condition: bool, found: object) -> None:
    if not condition:
        raise RuntimeError(f"unexpected: {found}")
