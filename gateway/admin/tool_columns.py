"""What lists of tools say of each: policy is read once for all of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import admin
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.display import badge
from approvals.policy import Policy
from approvals.policy_store import current
from core.errors import JsonObject, MeahError
from core.text import one_line, visible
from gateway import presentation
from gateway.models import PinState, Tool

_HINTS: Final = {
    "readOnlyHint": "read-only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open-world",
}


@dataclass(frozen=True)
class ToolLine:
    """A tool as the page of its server lists it."""

    tool: Tool
    listed_as: str
    description: str
    posture: str
    rule: str
    hints: str
    why: str

    @property
    def effect(self) -> str:
        """The first word of the posture, which its badge shows."""
        return self.posture.partition(",")[0]


class Postures:
    """The policy of one page; a policy that can not be used is said, and is no error of this page."""

    @cached_property
    def policy(self) -> Policy | None:
        try:
            return current()
        except MeahError:
            return None

    def line(self, tool: Tool) -> ToolLine:
        found = presentation.tool_object(tool, self.policy or Policy())
        definition: Any = tool.pinned or json.loads(tool.candidate or "{}")
        return ToolLine(
            tool,
            listed_as=visible(found["listedAs"] or ""),
            description=one_line(str(definition.get("description") or ""), 200),
            posture=visible(found["posture"]) if self.policy else "the policy can not be used",
            rule=visible(found["rule"]) if self.policy else "",
            hints=visible(", ".join(hints_in_words(found["hints"]))),
            why=visible(why_waits(tool)),
        )

    @admin.display(description="posture")
    def posture(self, tool: Tool) -> SafeString:
        line = self.line(tool)
        return format_html('{}<div class="meah-id">{}</div>', badge(line.effect, line.posture), line.rule)

    @admin.display(description="hints")
    def hints(self, tool: Tool) -> str:
        return self.line(tool).hints or "none"


def hints_in_words(hints: JsonObject) -> list[str]:
    """`read-only`, `not destructive`: what a server says of its tool, which is only its word."""
    words = [(_HINTS.get(name, name), value) for name, value in hints.items()]
    said = [word if value is True else f"not {word}" if value is False else f"{word}={value}" for word, value in words]
    return sorted(said, key=lambda text: (text.startswith("not "), text))


def why_waits(tool: Tool) -> str:
    """Why a tool is not offered; for one that is, that its prose has drifted."""
    if tool.pin_state == PinState.QUARANTINED:
        return {"new": "new: nobody has accepted it yet", "changed": "changed since it was accepted"}.get(
            tool.quarantine_reason, tool.quarantine_reason
        )
    if tool.pin_state == PinState.GONE:
        return "the server does not list it any more"
    return "its prose differs by now; agents read what was accepted" if tool.candidate else ""
