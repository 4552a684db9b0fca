"""The yardstick of start-up and memory: the SDK's low-level server over its own stdio, listing tools from a file."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def main(tools: list[dict[str, Any]]) -> None:
    async def list_tools(context: Any, params: Any) -> dict[str, Any]:
        return {"tools": tools, "resultType": "complete"}

    server: Any = Server("bare", version="1", on_list_tools=list_tools)  # type: ignore[arg-type]
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
