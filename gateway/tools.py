"""The three tools of the lazy gateway over MCP: find, call, run. Whatever they send passes the gate."""

from __future__ import annotations

from approvals.governor import submit
from approvals.targets import CallContext, CallRequest
from approvals.tool import AsItWas, Caller, Tool
from core.errors import JsonObject, MeahError
from core.text import one_line

from . import schemas
from .launch import RESERVED_NAME
from .lazy import Discovery


class LazyTools:
    """Handlers of one process."""

    def __init__(self) -> None:
        self._discovery = Discovery()

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


def tools() -> list[Tool]:
    """What every role is offered."""
    handlers = LazyTools()
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
    ]
