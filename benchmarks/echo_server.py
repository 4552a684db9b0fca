"""The child behind the gate and behind its yardstick: a read and a write that only say something back."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "echo", "description": "Reads.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
    {"name": "put", "description": "Writes.", "inputSchema": SCHEMA},
    {"name": "hold", "description": "Writes, once somebody agrees.", "inputSchema": SCHEMA},
]


async def main() -> None:
    async def list_tools(context: Any, params: Any) -> dict[str, Any]:
        return {"tools": TOOLS, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

    async def call_tool(context: Any, params: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": params.arguments["text"]}], "resultType": "complete"}

    server: Any = Server("echo", version="1", on_list_tools=list_tools, on_call_tool=call_tool)  # type: ignore[arg-type]
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
