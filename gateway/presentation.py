"""Servers, tools and imports as lines for a terminal: aligned, short, hidden characters visible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from approvals.policy import Policy, posture
from core.errors import JsonObject
from core.text import one_line, visible

from .catalog import speaking_rules
from .models import PinState, Server, Tool
from .services import Preview, ToolPreview

# Whom a posture is shown for where nobody in particular asks.
ANYBODY = "agent:*"


def table(rows: Iterable[Sequence[str]], *, indent: str = "") -> Iterator[str]:
    """Columns as wide as they have to be."""
    shown = [[one_line(cell, 160) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        yield (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()


def preview_lines(shown: Preview) -> Iterator[str]:
    launch = shown.entry.launch
    where = " ".join([launch.command, *launch.args]) if launch.transport == "stdio" else launch.url
    state = "known" if shown.known else "new"
    yield f"{visible(shown.name)}  ({state}, {launch.transport}, {shown.exposure})  {one_line(where, 200)}"
    for note in shown.entry.notes:
        yield f"  note: {visible(note)}"
    for problem in shown.problems:
        yield f"  refused: {visible(problem)}"
    if not shown.probe.worked:
        yield f"  not started: {one_line(shown.probe.error, 500)}"
        yield from (f"  | {line}" for line in visible(shown.probe.stderr).splitlines()[-5:])
    yield from table((_preview_row(tool) for tool in shown.tools), indent="  ")


def _preview_row(tool: ToolPreview) -> list[str]:
    why = tool.problem or ", ".join(f"{key}={value}" for key, value in sorted(tool.hints.items())) or "no hints"
    return [tool.listed_name or tool.name, tool.effect_class, tool.status, tool.pin[:12] or "-", why]


def server_row(server: Server) -> list[str]:
    return [server.name, server.transport, server.exposure, server.state, str(server.tools.count()), server.last_error]


def server_object(server: Server) -> JsonObject:
    return {
        "name": server.name,
        "transport": server.transport,
        "exposure": server.exposure,
        "state": server.state,
        "tools": server.tools.count(),
        "quarantined": server.tools.filter(pin_state=PinState.QUARANTINED).count(),
        "lastError": server.last_error or None,
        "era": server.era or None,
    }


def tool_object(tool: Tool, policy: Policy) -> JsonObject:
    """A tool with its posture, the rules that give it, hints, class, pin state and exposure."""
    definition: Any = tool.pinned or {}
    hints = definition.get("annotations") or {}
    return {
        "server": tool.server.name,
        "tool": tool.name,
        "listedAs": tool.listed_name if tool.offered and tool.server.exposure == "direct" else None,
        "posture": tool_posture(tool, policy),
        "rule": speaking_rules(policy, tool, principal=ANYBODY),
        "class": tool.effect_class,
        "proposedClass": tool.proposed_class,
        "hints": {key: value for key, value in hints.items() if key.endswith("Hint")},
        "pinState": tool.pin_state,
        "pin": tool.pin or None,
        "why": tool.quarantine_reason or None,
        "exposure": tool.server.exposure,
        "acceptedBy": tool.accepted_by or None,
    }


def tool_posture(tool: Tool, policy: Policy) -> str:
    return posture(policy, principal=ANYBODY, server=tool.server.name, tool=tool.name, effect_class=tool.effect_class)


def tool_row(found: JsonObject) -> list[str]:
    hints = ", ".join(f"{key}={value}" for key, value in sorted(found["hints"].items())) or "no hints"
    state = found["pinState"] + (f": {found['why']}" if found["why"] else "")
    return [
        f"{found['server']}/{found['tool']}",
        found["posture"],
        found["rule"],
        found["class"],
        hints,
        state,
        found["exposure"],
    ]


TOOL_HEADINGS = ["tool", "posture", "rule", "class", "hints", "pin", "exposure"]
SERVER_HEADINGS = ["server", "transport", "exposure", "state", "tools", "last error"]
