"""What running connections found out, written down by MEAH itself: a listing compared with the pins, a state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from approvals import endings
from approvals.models import Approval, ApprovalState
from approvals.processes import ring_after_commit
from audit.services import NewEntry, record_many
from core.errors import JsonObject
from core.text import one_line

from .launch import Launch
from .models import PinScope, PinState, Server, ServerState, Tool
from .pins import Listed, contract_of, pin_of, proposed_class, read_listing
from .sessions import Report

SYSTEM: Final = "system"
NEW: Final = "new"
CHANGED: Final = "changed"
MAX_STDERR_CHARS: Final = 100_000


@dataclass
class _Comparison:
    """One listing of a known server, tool by tool, with everything that has to be written because of it."""

    server: Server
    identity: JsonObject
    pins: dict[str, str] = field(default_factory=dict)
    entries: list[NewEntry] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)

    def note(self, kind: str, tool: Tool, **data: Any) -> None:
        self.entries.append(NewEntry(kind, SYSTEM, f"{self.server.name}/{tool.name}", data))

    def look_at(self, listed: Listed, tool: Tool | None) -> None:
        pin = pin_of(listed.text, self.identity) if listed.text else ""
        if tool is None:
            tool = Tool(server=self.server, name=listed.name, pin_state=PinState.QUARANTINED)
            self._quarantine(tool, listed, pin, listed.problem or NEW)
        elif listed.problem:
            self._quarantine(tool, listed, pin, listed.problem)
        elif pin == tool.pin:
            self._is_as_accepted(tool)
        elif self._keeps_the_contract(listed, tool):
            self._drifts(tool, listed, pin)
        else:
            self._quarantine(tool, listed, pin, CHANGED if tool.pin else NEW)

    def is_gone(self, tool: Tool) -> None:
        if tool.pin_state == PinState.GONE:
            return
        tool.pin_state = PinState.GONE
        tool.save(update_fields=["pin_state"])
        self.stopped.append(tool.name)
        self.note("tool.gone", tool)

    def _is_as_accepted(self, tool: Tool) -> None:
        self.pins[tool.name] = tool.pin
        if tool.pin_state == PinState.ACCEPTED and not tool.candidate:
            return
        was = tool.pin_state
        tool.pin_state = PinState.ACCEPTED
        tool.candidate = tool.candidate_pin = tool.quarantine_reason = ""
        tool.save()
        if was != PinState.ACCEPTED:
            self.note("tool.returned", tool, pin=tool.pin, was=was)

    def _keeps_the_contract(self, listed: Listed, tool: Tool) -> bool:
        if self.server.pin_scope != PinScope.CONTRACT or tool.pin_state == PinState.QUARANTINED or not tool.pin:
            return False
        accepted = contract_of(tool.definition, self.identity)
        # The same identity, or the pin would not be of this server any more.
        same_server = pin_of(tool.definition, self.identity) == tool.pin
        return same_server and contract_of(listed.text, self.identity) == accepted

    def _drifts(self, tool: Tool, listed: Listed, pin: str) -> None:
        """Its prose differs: agents go on reading what was accepted."""
        self.pins[tool.name] = tool.pin
        if tool.candidate_pin == pin and tool.pin_state == PinState.ACCEPTED:
            return
        tool.pin_state, tool.candidate, tool.candidate_pin = PinState.ACCEPTED, listed.text, pin
        tool.save()
        self.note("tool.drifted", tool, pin=tool.pin, now=pin)

    def _quarantine(self, tool: Tool, listed: Listed, pin: str, reason: str) -> None:
        known = (tool.pin_state, tool.candidate_pin, tool.candidate, tool.quarantine_reason)
        now = (PinState.QUARANTINED, pin, listed.text, one_line(reason, 500))
        if tool.pk is not None and known == now:
            return
        tool.pin_state, tool.candidate_pin, tool.candidate, tool.quarantine_reason = now
        if listed.text:
            tool.proposed_class = proposed_class(listed.definition)
            if not tool.pin:
                tool.effect_class = tool.proposed_class
        tool.save()
        self.stopped.append(tool.name)
        self.note("tool.quarantined", tool, reason=now[3], pin=tool.pin, now=pin)


def compare(launch: Launch, listing: list[Any]) -> dict[str, str]:
    """Compare what a server lists with what was accepted, and write down every difference.

    Returns the tools that are what a person accepted, with their pins: only those may be called.
    """
    with transaction.atomic():
        server = Server.objects.filter(name=launch.server).first()
        if server is None:
            return {}
        pins, entries = compare_listed(server, launch.identity, read_listing(listing))
        if entries:
            ring_after_commit()
            record_many(entries)
    return pins


def compare_listed(
    server: Server, identity: JsonObject, listing: list[Listed]
) -> tuple[dict[str, str], list[NewEntry]]:
    """`compare` inside the caller's transaction, who records the entries last."""
    listed = {tool.name: tool for tool in listing}
    comparison = _Comparison(server, identity)
    known = {tool.name: tool for tool in server.tools.all()}
    for name, found in listed.items():
        comparison.look_at(found, known.get(name))
    for name in known.keys() - listed.keys():
        comparison.is_gone(known[name])
    now = timezone.now()
    server.tools.filter(name__in=list(listed)).update(seen_at=now)
    Server.objects.filter(pk=server.pk).update(listed_at=now)
    void_held_calls(server.name, comparison.stopped)
    return comparison.pins, comparison.entries


def void_held_calls(server: str, tools: Iterable[str]) -> None:
    """End the requests that wait for a tool which may not be called any more."""
    waiting = Approval.objects.filter(
        state__in=[ApprovalState.PENDING, ApprovalState.APPROVED], call__server=server, call__tool__in=list(tools)
    )
    for approval in waiting.select_related("call"):
        endings.void(approval, f"the tool {server}/{approval.call.tool} is not what was accepted any more")


def report(what: Report) -> None:
    """Write down what became of a server's connection; into the chain where it started, or newly failed."""
    with transaction.atomic():
        server = Server.objects.filter(name=what.server).first()
        if server is None:
            return
        was = server.state
        server.state = what.state
        server.last_error = one_line(what.error, 1000) if what.error else ""
        server.stderr_tail = what.stderr[-MAX_STDERR_CHARS:]
        server.era = what.era or server.era
        server.reported_at = timezone.now()
        server.save(update_fields=["state", "last_error", "stderr_tail", "era", "reported_at"])
        if what.state == was:
            return
        if what.state == ServerState.ACTIVE:
            record_many([NewEntry("server.started", SYSTEM, server.name, {"era": server.era})])
        elif what.state == ServerState.FAILED:
            record_many([NewEntry("server.failed", SYSTEM, server.name, {"error": server.last_error})])
