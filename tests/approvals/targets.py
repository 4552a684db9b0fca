"""A target of the tests: it counts its effects, and fails in whatever way it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from approvals.models import Call, EffectClass
from approvals.policy import Verdict
from approvals.targets import Applied, CallContext, CallRequest, Checked, ToolFacts
from core.errors import JsonObject, MeahError

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "amount": {"type": "number"}, "status": {"type": "string"}},
}


class CountingTarget:
    """`get` reads, `put` writes, `drop` destroys. `fail` is raised before the effect, `fail_late` after `hang_s`."""

    server = "box"

    def __init__(self) -> None:
        self.effects: list[tuple[str, JsonObject]] = []
        self.reads = 0
        self.pin = "pin-1"
        self.fail: Exception | None = None
        self.fail_late: Exception | None = None
        self.hang_s = 0.0
        self.drop_writes = False
        self.needed: list[str] = []
        self.values: dict[str, JsonObject] = {}
        self.keys: list[str] = []
        self.read_hang_s = 0.0
        self.clean_up_s = 0.0
        self.cleaned_up = 0
        self.began = False
        self.answer: JsonObject = {"content": [{"type": "text", "text": "ok"}], "isError": False}

    def tools(self) -> Sequence[str]:
        return ["get", "put", "drop"]

    def facts(self, tool: str, arguments: JsonObject) -> ToolFacts:
        classes = {"get": EffectClass.READ, "put": EffectClass.WRITE, "drop": EffectClass.DESTRUCTIVE}
        if tool not in classes:
            raise MeahError("E_NOT_FOUND", f"There is no tool named {tool!r}.")
        return ToolFacts(classes[tool], pin=self.pin, schema=SCHEMA, timeout_s=2.0)

    def check(self, request: CallRequest) -> Checked:
        if not isinstance(request.arguments.get("id", ""), str):
            raise MeahError("E_INVALID_REQUEST", "id: is not a string")
        return Checked(dict(request.arguments))

    def needs(self, tool: str) -> Sequence[str]:
        return self.needed

    def apply(self, request: CallRequest, checked: Checked, call: Call | None, verdict: Verdict) -> Applied:
        raise AssertionError("nothing of this target is local")

    async def run(self, request: CallRequest, checked: Checked, context: CallContext) -> Any:
        arguments = checked.arguments
        self.began = True
        if request.tool == "get":
            self.reads += 1
            await asyncio.sleep(self.read_hang_s or self.hang_s)
            return {"structuredContent": self.values.get(arguments["id"], {}), "content": [], "isError": False}
        self.keys.append(context.idempotency_key)
        if self.fail is not None:
            raise self.fail
        if not self.drop_writes:
            self.effects.append((request.tool, arguments))
            self.values.setdefault(arguments.get("id", ""), {}).update(arguments)
        try:
            await asyncio.sleep(self.hang_s)
        except asyncio.CancelledError:
            await asyncio.sleep(self.clean_up_s)
            self.cleaned_up += 1
            raise
        if self.fail_late is not None:
            raise self.fail_late
        return self.answer

    def store(self, result: Any) -> Any:
        return result

    def revive(self, request: CallRequest, checked: Checked, stored: Any) -> Any:
        return stored
