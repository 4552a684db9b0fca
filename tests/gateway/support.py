"""What the gateway's tests share: servers of ours, configured as rows."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from approvals.targets import CallContext, CallRequest
from audit.dbthread import in_db
from gateway.launch import Launch
from gateway.models import Exposure, PinState, Server, Tool
from gateway.runtime import Gateway
from gateway.sessions import Hooks, Pool
from gateway.target import GatewayTarget

RAW = Path(__file__).parent / "servers" / "raw.py"


def raw(name: str = "raw", *options: str, **more: Any) -> Launch:
    """The launch of our badly behaved server."""
    return Launch(server=name, command=sys.executable, args=(str(RAW), *options), **more)


@asynccontextmanager
async def pool_of(path: Path, hooks: Hooks | None = None) -> AsyncIterator[Pool]:
    pool = Pool(directory=path, home=path, hooks=hooks)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.stop()


@asynccontextmanager
async def gateway() -> AsyncIterator[Gateway]:
    running = Gateway()
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


def make_server(launch: Launch, **columns: Any) -> Server:
    """A row for this launch, exposed directly, without any tool yet."""
    return Server.objects.create(
        name=launch.server,
        transport=launch.transport,
        command=launch.command,
        args=list(launch.args),
        env=dict(launch.env),
        inherit_env=list(launch.inherit_env),
        url=launch.url,
        headers=dict(launch.headers),
        private=launch.private,
        **{"exposure": Exposure.DIRECT, "timeout_ms": launch.timeout_ms, **columns},
    )


def accept_everything(name: str, **columns: Any) -> None:
    """As if a person had accepted whatever the server listed."""
    for tool in Tool.objects.filter(server__name=name).exclude(candidate=""):
        tool.definition, tool.pin = tool.candidate, tool.candidate_pin
        tool.pin_state, tool.candidate, tool.candidate_pin, tool.quarantine_reason = PinState.ACCEPTED, "", "", ""
        for column, value in columns.items():
            setattr(tool, column, value)
        tool.save()


async def learn(running: Gateway, name: str = "raw") -> None:
    """Start the server of that row, and accept what it lists."""
    launch = await in_db(lambda: Server.objects.get(name=name).launch())
    await running.pool.connection(launch).open()
    await in_db(accept_everything, name)


async def call(tool: str, arguments: dict[str, Any] | None = None, *, server: str = "raw", **context: Any) -> Any:
    """Through the target, as the gate does it."""
    request = CallRequest("agent:test", server, tool, arguments or {}, "mcp")

    def prepared() -> Any:
        target = GatewayTarget(server)
        target.facts(tool, request.arguments)
        return target, target.check(request)

    target, checked = await in_db(prepared)
    return await target.run(request, checked, CallContext(**context))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc/self").exists()


async def until(condition: Any, *, within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


def recorded(directory: Path) -> list[dict[str, Any]]:
    files = list(directory.glob("children-*.json"))
    return [group for file in files for group in json.loads(file.read_text())["groups"]]


def pid_of(directory: Path) -> int:
    [group] = recorded(directory)
    return int(group["pgid"])
