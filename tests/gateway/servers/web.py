"""A Streamable HTTP MCP server of both eras, on the official SDK, on a loopback port: `web.py PORT [--json]`.

`--old` serves the SSE transport that came before, at /sse.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

import mcp_types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged

OBJECT: dict[str, Any] = {"type": "object"}
cancelled: list[str] = []
extra: list[str] = []
bus = InMemorySubscriptionBus()


def tool(name: str, schema: dict[str, Any] | None = None) -> mcp_types.Tool:
    return mcp_types.Tool(name=name, description=name, input_schema=schema or OBJECT)


MIRRORED = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
NAMES = ["echo", "headers", "slow", "big", "progress", "fail", "die", "change", "cancelled"]


async def list_tools(context: Any, params: Any) -> mcp_types.ListToolsResult:
    tools = [tool(name) for name in [*NAMES, *extra]] + [tool("mirrored", MIRRORED)]
    return mcp_types.ListToolsResult(tools=tools, ttl_ms=0, cache_scope="private")


def text(value: str) -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=value)])


async def call_tool(context: Any, params: Any) -> mcp_types.CallToolResult:
    arguments = params.arguments or {}
    if params.name == "echo":
        return text(arguments.get("text", ""))
    if params.name in ("headers", "mirrored"):
        return text(json.dumps(dict(context.request.headers)))
    if params.name == "slow":
        try:
            await asyncio.sleep(arguments.get("seconds", 1))
        except asyncio.CancelledError:
            cancelled.append("slow")
            raise
        return text("late")
    if params.name == "cancelled":
        return text(str(len(cancelled)))
    if params.name == "big":
        return text("y" * arguments["bytes"])
    if params.name == "progress":
        for step in range(arguments["steps"]):
            await context.session.report_progress(step + 1, arguments["steps"], f"step {step}")
        return text("done")
    if params.name == "change":
        extra.append(f"extra_{len(extra)}")
        await bus.publish(ToolsListChanged())
        with contextlib.suppress(Exception):
            await context.session.send_tool_list_changed()
        return text("changed")
    if params.name == "die":
        os._exit(3)
    from mcp.shared.exceptions import MCPError

    raise MCPError(-32050, "down", {"retryIn": 5})


def old(server: Server[Any]) -> Any:
    from mcp.server.sse import SseServerTransport
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    transport = SseServerTransport("/messages/")

    class Stream:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async with transport.connect_sse(scope, receive, send) as (read, write):
                await server.run(read, write, server.create_initialization_options())

    routes = [Route("/sse", Stream(), methods=["GET"]), Mount("/messages/", app=transport.handle_post_message)]
    return Starlette(routes=routes)


def main() -> None:
    server: Server[Any] = Server(
        "web", version="1", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=ListenHandler(bus)
    )
    if "--old" in sys.argv:
        uvicorn.run(old(server), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
        return
    manager = StreamableHTTPSessionManager(app=server, json_response="--json" in sys.argv)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            async with manager.run():
                await receive()
                await send({"type": "lifespan.startup.complete"})
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await manager.asgi_app(scope, receive, send)

    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")


main()
