"""What the page of one server shows, and the page of its tools that wait for a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from approvals.models import EffectClass
from core.redaction import redact
from core.secrets import name_secrets, read_secret
from core.text import visible
from gateway import services
from gateway.admin.tool_columns import Postures, ToolLine
from gateway.admin.tools import diff_lines
from gateway.launch import references
from gateway.models import PinState, Server, Tool
from gateway.pins import stricter

MAX_STDERR_CHARS = 20_000


def server_context(server: Server) -> dict[str, Any]:
    postures = Postures()
    tools = list(server.tools.all())
    launch = server.launch()
    # So that their values are known, and taken out of what the server wrote.
    name_secrets(sorted(launch.variables))
    return {
        "title": visible(server.name),
        "subtitle": None,
        "server": server,
        "lines": [postures.line(tool) for tool in tools],
        "quarantined": sum(tool.pin_state == PinState.QUARANTINED for tool in tools),
        "classes": EffectClass.choices,
        "command_line": visible(" ".join([server.command, *map(str, server.args)])),
        "variables": [(visible(name), bool(read_secret(name))) for name in sorted(launch.variables)],
        "passed_on": [visible(name) for name in server.inherit_env],
        "environment": _shown(server.env),
        "headers": _shown(server.headers),
        "stderr": visible(redact(server.stderr_tail[-MAX_STDERR_CHARS:])),
        "listed_prefix": visible(server.listed_prefix),
    }


def _shown(values: dict[str, str]) -> list[tuple[str, str]]:
    """References as they are written; what stands there in clear is redacted all the same."""
    return [
        (visible(name), visible(value if any(references(value)) else redact(value))) for name, value in values.items()
    ]


@dataclass(frozen=True)
class Candidate:
    """A tool that waits, with what differs; `why_not` says why nobody can accept it as it is."""

    tool: Tool
    line: ToolLine
    difference: list[tuple[str, str]]
    effect_class: str
    why_not: str


def accept_context(server: Server, *, only: str = "") -> dict[str, Any]:
    """`only` is the key of one tool; otherwise all that wait."""
    postures = Postures()
    waiting = server.tools.filter(pin_state=PinState.QUARANTINED)
    if only.isdigit():
        waiting = waiting.filter(pk=only)
    found = [_candidate(tool, postures) for tool in waiting]
    return {
        "server": server,
        "candidates": [item for item in found if not item.why_not],
        "refused": [item for item in found if item.why_not],
        "classes": EffectClass.choices,
    }


def _candidate(tool: Tool, postures: Postures) -> Candidate:
    known = stricter(tool.effect_class, tool.proposed_class) if tool.pin else tool.proposed_class
    return Candidate(
        tool,
        postures.line(tool),
        diff_lines(tool) if tool.candidate else [],
        effect_class=known,
        why_not=visible(services.why_not_acceptable(tool)),
    )
