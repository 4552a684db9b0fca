"""The tools that the conformance suite looks for by name, as a downstream server: MEAH has none of them itself."""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def _png() -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def _wav() -> str:
    head = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8) + b"data" + struct.pack("<I", 2)
    return base64.b64encode(b"RIFF" + struct.pack("<I", len(head) + 2) + head + b"\x80\x80").decode()


TEXT = {"type": "text", "text": "This is a simple text response for testing."}
IMAGE = {"type": "image", "data": _png(), "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": _wav(), "mimeType": "audio/wav"}
RESOURCE = {
    "type": "resource",
    "resource": {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": "An embedded resource."},
}
FAILED = {"type": "text", "text": "This tool intentionally returns an error for testing"}
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "test_simple_text": [TEXT],
    "test_image_content": [IMAGE],
    "test_audio_content": [AUDIO],
    "test_embedded_resource": [RESOURCE],
    "test_multiple_content_types": [TEXT, IMAGE, RESOURCE],
    "test_error_handling": [FAILED],
    "test_tool_with_progress": [TEXT],
    "json_schema_2020_12_tool": [TEXT],
}


async def list_tools(_context: Any, _params: Any) -> Any:
    listed = []
    for name in ANSWERS:
        schema = SCHEMA if name.startswith("json_schema") else {"type": "object"}
        listed.append({"name": name, "description": name, "inputSchema": schema, "annotations": {"readOnlyHint": True}})
    return {"tools": listed, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


async def call_tool(context: Any, params: Any) -> Any:
    if params.name == "test_tool_with_progress":
        for done in (0, 50, 100):
            await context.session.report_progress(done, 100, f"{done} of 100")
            await asyncio.sleep(0.05)
    answer = {"content": ANSWERS[params.name], "isError": params.name == "test_error_handling"}
    return types.CallToolResult.model_validate(answer)


async def main() -> None:
    server: Any = Server("fixture", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
