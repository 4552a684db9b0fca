"""The official SDKs' clients behind one small interface: what they refuse, our own raw frames would never show."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.gateway.real_servers import npm_package

HERE = Path(__file__).resolve().parent
TYPESCRIPT_SDK = {"@modelcontextprotocol/sdk": "1.32.2"}
PATIENCE_S = 90


class Refused(Exception):  # noqa: N818 - it is what the client did
    """The client itself did not take the answer, or the protocol said no."""


class AnyClient(Protocol):
    async def list(self) -> dict[str, dict[str, Any]]:
        """Every tool as the client understands it, by name."""
        ...

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """The whole result, as the wire has it. Raises Refused."""
        ...


Opener = Callable[[Sequence[str], Mapping[str, str]], AbstractAsyncContextManager[AnyClient]]


class _Python:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def list(self) -> dict[str, dict[str, Any]]:
        listed = await self._client.list_tools()
        assert listed.next_cursor is None
        return {tool.name: tool.model_dump(by_alias=True, exclude_none=True) for tool in listed.tools}

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        try:
            result = await self._client.call_tool(name, arguments)
        except Exception as error:
            raise Refused(str(error)) from error
        return dict(result.model_dump(by_alias=True, exclude_none=True))


def python(mode: str) -> Opener:
    @asynccontextmanager
    async def opened(command: Sequence[str], environ: Mapping[str, str]) -> AsyncIterator[AnyClient]:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        parameters = StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(environ), cwd="/")
        async with Client(stdio_client(parameters), mode=mode) as client:  # type: ignore[arg-type]
            # The list first, as every host does: then the client checks answers against what was promised.
            await client.list_tools()
            yield _Python(client)

    return opened


class _TypeScript:
    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    async def list(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in await self._ask({"method": "list"})}

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        return dict(await self._ask({"method": "call", "name": name, "args": arguments}))

    async def _ask(self, command: dict[str, Any]) -> Any:
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps(command).encode() + b"\n")
        line = await asyncio.wait_for(self._child.stdout.readline(), PATIENCE_S)
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"]["message"])
        return answer["result"]


@asynccontextmanager
async def typescript(command: Sequence[str], environ: Mapping[str, str]) -> AsyncIterator[AnyClient]:
    async with typescript_by("stdio", *command, environ=environ) as client:
        yield client


@asynccontextmanager
async def typescript_by(kind: str, *words: str, environ: Mapping[str, str]) -> AsyncIterator[AnyClient]:
    """Over `stdio` with a command, or over `http` with a URL and a token."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed: the TypeScript SDK can not be run")
    sdk = await asyncio.to_thread(npm_package, TYPESCRIPT_SDK)
    child = await asyncio.create_subprocess_exec(
        *(node, str(HERE / "typescript.mjs"), str(sdk / "node_modules" / "@modelcontextprotocol" / "sdk"), kind),
        *words,
        env=dict(environ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    client = _TypeScript(child)
    try:
        await client.list()
        yield client
    finally:
        assert child.stdin is not None
        child.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), 15)
        if child.returncode is None:
            child.kill()
            await child.wait()


CLIENTS = {"python legacy": python("legacy"), "python 2026-07-28": python("2026-07-28"), "typescript": typescript}
