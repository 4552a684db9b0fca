"""Methods over our own server, and the pieces of a process that runs them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from approvals import services as approvals
from approvals.executor import Executor
from approvals.models import Approval, EffectClass, Process, Rule
from approvals.processes import Membership
from audit.dbthread import in_db
from gateway import method_runs, methods
from gateway.models import Exposure, MethodRun, MethodVersion, Tool
from gateway.runner import Runner
from tests.gateway.support import gateway, learn, make_server, raw

AGENT = "agent:test"
READS = {"readOnlyHint": True}
COUNT = {"name": {"type": "string"}, "ready": {"type": "integer"}, "fail": {"type": "integer"}}
TOOLS = [
    {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {}}}, "annotations": READS},
    {"name": "count", "inputSchema": {"type": "object", "properties": COUNT}, "annotations": READS},
    {"name": "is_error", "inputSchema": {"type": "object"}, "annotations": READS},
    {"name": "fail", "inputSchema": {"type": "object"}, "annotations": READS},
    {"name": "die", "inputSchema": {"type": "object"}, "annotations": READS},
    {"name": "hang", "inputSchema": {"type": "object"}, "annotations": READS},
    {"name": "slow", "inputSchema": {"type": "object"}, "annotations": READS},
    {"name": "write", "inputSchema": {"type": "object"}},
    {"name": "ask_first", "inputSchema": {"type": "object"}, "annotations": READS},
]
TEXTS = {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False}


def manifest(*steps: dict[str, Any], version: str = "1", name: str = "ritual", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "metamcp.io/v1alpha1",
        "kind": "Method",
        "metadata": {"name": name, "version": version, "description": "What we always do."},
        "spec": {"effects": "read", "inputSchema": TEXTS, "steps": list(steps), **spec},
    }


def step(step_id: str, tool: str = "echo", args: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    given = {"text": "x"} if tool == "echo" and args is None else args or {}
    return {"id": step_id, "server": "raw", "tool": tool, "args": given, **more}


def reviewer(name: str = "rita", *permissions: str) -> Any:
    user = get_user_model()._default_manager.create_user(name, password=name, is_staff=True)
    for codename in ("review_method", *permissions):
        user.user_permissions.add(Permission.objects.get(codename=codename))
    return get_user_model()._default_manager.get(pk=user.pk)


def add(value: dict[str, Any], *, reviewed: bool = True) -> MethodVersion:
    version = methods.add(methods.preview(json.dumps(value)), principal="system")
    if reviewed:
        user = get_user_model()._default_manager.filter(username="rita").first() or reviewer()
        methods.review(version, user=user, digest=version.digest)
    return version


def prepare(directory: Path, **columns: Any) -> Path:
    """The server's row, lazy; writes are allowed by a rule, `ask_first` needs approval. Its log of messages."""
    file, log = directory / "tools.json", directory / "messages.log"
    file.write_text(json.dumps(TOOLS))
    launch = raw("raw", "--tools", str(file), "--log", str(log))
    make_server(launch, **{"exposure": Exposure.LAZY, **columns})
    Rule.objects.create(name="writes", server="raw", tool="write", effect="allow")
    Rule.objects.create(name="ask", server="raw", tool="ask_first", effect="require_approval")
    return log


def sent(log: Path, tool: str) -> int:
    """How many calls of that tool have reached the server."""
    messages = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return sum(one.get("method") == "tools/call" and one["params"]["name"] == tool for one in messages)


class Engine:
    """What of a MEAH process takes part: its runner, its executor, its children."""

    def __init__(self, *, allow_writes: bool = False) -> None:
        self.membership = Membership(Process.Kind.RUNMCP, version="test")
        self.runner = Runner(self.membership.public_id, allow_writes=allow_writes)
        self.executor = Executor(self.membership.public_id)
        self.running: Any = None

    async def run(self, given: dict[str, Any] | None = None, *, name: str = "ritual", version: str = "") -> MethodRun:
        public_id = await self.runner.start(name, version, given or {}, principal=AGENT)
        await self.runner.wait(public_id, 30)
        return await in_db(method_runs.find, public_id)

    async def answer(self, given: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        run = await self.run(given, **more)
        return await in_db(method_runs.as_answer, run)

    async def until_over(self, public_id: str, within_s: float = 20) -> MethodRun:
        """As the engine does it: look, again and again."""
        deadline = time.monotonic() + within_s
        while True:
            await self.executor.look()
            await self.runner.look()
            await self.runner.wait(public_id, 1)
            run = await in_db(method_runs.find, public_id)
            if run.state not in MethodRun.OPEN:
                return run
            assert time.monotonic() < deadline, run.state
            await asyncio.sleep(0.05)


@asynccontextmanager
async def engine(*, allow_writes: bool = False, learns: bool = True) -> AsyncIterator[Engine]:
    one = Engine(allow_writes=allow_writes)
    await in_db(one.membership.join)
    async with gateway() as running:
        one.running = running
        if learns:
            await learn(running)
            await in_db(Tool.objects.filter(name="write").update, effect_class=EffectClass.WRITE)
        try:
            yield one
        finally:
            await one.runner.stop()
            await one.executor.stop()
    await in_db(one.membership.leave)


def approve(public_id: str, *, rejects: bool = False) -> None:
    user = get_user_model()._default_manager.filter(username="ann").first()
    if user is None:
        user = reviewer("ann", "decide_approval")
    decide = approvals.reject if rejects else approvals.approve
    decide(Approval.objects.get(public_id=public_id), user=user, note="looked at", door="admin")
