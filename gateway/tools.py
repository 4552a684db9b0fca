"""The three tools of the lazy gateway over MCP: find, call, run. Whatever they send passes the gate."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from approvals.governor import submit
from approvals.targets import CallContext, CallRequest
from approvals.tool import AsItWas, Caller, Tool
from audit.dbthread import in_db
from core.errors import JsonObject, MeahError
from core.text import one_line

from . import method_runs, schemas
from .launch import RESERVED_NAME
from .lazy import Discovery
from .runner import Runner

PROGRESS_EVERY_S: Final = 10.0
# Shorter than the shortest patience of common clients; the run goes on.
RUN_WAIT_S: Final = 50.0


class LazyTools:
    """Handlers of one process."""

    def __init__(self, runner: Runner) -> None:
        self._discovery = Discovery()
        self._runner = runner

    async def discover(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        wanted = schemas.parse(schemas.DISCOVER, arguments)
        return await self._discovery.discover(wanted, principal=caller.principal)

    async def call(self, arguments: JsonObject, caller: Caller) -> JsonObject | AsItWas:
        """The child's result as it was, or the request that waits."""
        wanted = schemas.parse_call(arguments)
        if wanted["server"].casefold() == RESERVED_NAME:
            raise MeahError(
                "E_NOT_FOUND",
                f"There is no server named {one_line(wanted['server'], 100)!r}: MEAH's own tools are called directly.",
            )
        request = CallRequest(
            principal=caller.principal,
            server=wanted["server"],
            tool=wanted["tool"],
            arguments=wanted["args"],
            door="mcp",
            owner=caller.owner,
            run=caller.run,
            step=caller.step,
            user_id=caller.user_id,
        )
        timeout_ms = wanted.get("timeoutMs")
        context = CallContext(
            progress=caller.pass_progress, timeout_s=None if timeout_ms is None else timeout_ms / 1000
        )
        outcome = await submit(request, context)
        return AsItWas(outcome.result) if outcome.approval is None else outcome.approval

    async def run(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        """A run of a Method, begun or read; it goes on where its caller has run out of patience."""
        wanted = schemas.parse(schemas.RUN, arguments)
        public_id = await self._run_id(wanted, caller)
        try:
            await self._told_while_running(public_id, caller, RUN_WAIT_S if "method" in wanted else 0.0)
        except asyncio.CancelledError:
            if "method" in wanted and caller.cancelled_on_purpose():
                self._runner.take_back(public_id)
            raise
        return await in_db(_run_answer, public_id, caller)

    async def _run_id(self, wanted: JsonObject, caller: Caller) -> str:
        if ("method" not in wanted and wanted.keys() != {"runId"}) or ("method" in wanted and "runId" in wanted):
            raise MeahError(
                "E_INVALID_REQUEST",
                "Name a method to start it, or give only a runId to read that run.",
                hint="mcp_discover with kind method lists the Methods.",
                reason="arguments",
            )
        if "runId" in wanted:
            return str(wanted["runId"])
        return await self._runner.start(
            wanted["method"],
            wanted.get("version", ""),
            wanted.get("input", {}),
            principal=caller.principal,
            user_id=caller.user_id,
        )

    async def _told_while_running(self, public_id: str, caller: Caller, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and self._runner.is_running(public_id):
            await self._runner.wait(public_id, min(left, PROGRESS_EVERY_S))
            if self._runner.is_running(public_id):
                await caller.progress(f"{public_id} is running")


def _run_answer(public_id: str, caller: Caller) -> JsonObject:
    """Raises the run's own error where it failed, with its whole answer in the details."""
    principal = "" if caller.role == "approver" else caller.principal
    run = method_runs.find(public_id, principal=principal)
    answer = method_runs.as_answer(run)
    if run.error is not None:
        error = MeahError.from_dict(run.error)
        error.details |= answer
        raise error
    return answer


def tools(runner: Runner) -> list[Tool]:
    """What every role is offered."""
    handlers = LazyTools(runner)
    return [
        Tool(
            "mcp_discover",
            "Find tools of other servers",
            "Search the servers, tools and Methods that MEAH reaches beyond the listed tools. Starts nothing. Name a "
            "server or a tool to get schemas; then use mcp_call or mcp_run.",
            schemas.DISCOVER,
            handlers.discover,
            read_only=True,
        ),
        Tool(
            "mcp_call",
            "Call a found tool",
            "Call one tool of one server, found with mcp_discover. Answers with its result as it was, or "
            "pending_approval: then follow approval_status.",
            schemas.CALL,
            handlers.call,
            destructive=True,
            open_world=True,
            output_schema=None,
        ),
        Tool(
            "mcp_run",
            "Run a Method",
            "Run a reviewed Method, several calls as one, found with mcp_discover. Answers with output, gaps and "
            "trace. While running or pending_approval: read it again with its runId.",
            schemas.RUN,
            handlers.run,
            destructive=True,
            open_world=True,
        ),
    ]
