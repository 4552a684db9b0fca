"""What a door of the MCP server is made of: each app lists its tools, the site collects and serves them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from core.errors import JsonObject

# The envelope of every answer; errors match it too, so that no client's output check refuses them.
ENVELOPE_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "data": {"type": "object"}, "error": {"type": "object"}},
    "required": ["ok"],
}


class Caller(Protocol):
    """Who calls, through which process, and how to talk back while the call runs."""

    principal: str
    owner: str
    role: str
    user_id: int | None
    run: str
    step: str

    async def progress(self, message: str) -> None:
        """Tell the client that the call is alive; nothing where it did not ask for that."""
        ...

    def cancelled_on_purpose(self) -> bool:
        """Inside a cancelled call: whether the client took it back.

        False when the client only ran out of patience (its own time-out), and when it went away or MEAH is stopping:
        what becomes of its work is then decided for all of it at once.
        """
        ...

    async def pass_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """A downstream server's own progress, under the client's token."""
        ...


@dataclass(frozen=True)
class AsItWas:
    """A downstream tool's result, which goes out as it came instead of in the envelope."""

    result: JsonObject


Handler = Callable[[JsonObject, Caller], Awaitable[JsonObject | AsItWas]]


@dataclass(frozen=True)
class Tool:
    """A tool as `tools/list` shows it, and what runs it. `handler` returns data, or raises MeahError."""

    name: str
    title: str
    description: str
    input_schema: JsonObject
    handler: Handler
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    output_schema: JsonObject | None = field(default_factory=lambda: ENVELOPE_SCHEMA)

    def as_listed(self) -> JsonObject:
        annotations: dict[str, Any] = {"readOnlyHint": self.read_only, "openWorldHint": self.open_world}
        if not self.read_only:
            annotations |= {"destructiveHint": self.destructive, "idempotentHint": self.idempotent}
        listed: JsonObject = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "annotations": annotations,
        }
        if self.output_schema is not None:
            listed["outputSchema"] = self.output_schema
        return listed
