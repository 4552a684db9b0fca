"""What people do with servers and tools: import, accept, mark. Each is one transaction with its entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from approvals.models import EffectClass
from approvals.processes import ring_after_commit
from audit.services import NewEntry, change, record_many, user_principal
from core.errors import JsonObject, MeahError

from . import catalog
from .mcpfile import Entry
from .models import Exposure, PinState, Server, ServerState, Tool
from .observations import compare_listed, void_held_calls
from .pins import Listed, difference, pin_of, proposed_class, read_listing, stricter
from .probing import Probe

ACCEPT: Final = "gateway.accept_pin"
_CONFIGURATION: Final = (
    "name",
    "transport",
    "command",
    "args",
    "env",
    "inherit_env",
    "url",
    "headers",
    "private",
    "exposure",
    "prefix",
    "timeout_ms",
    "keep_alive",
    "concurrent",
    "pin_scope",
    "read_default",
    "write_default",
    "destructive_default",
)


@dataclass(frozen=True)
class ToolPreview:
    """A tool as an import would add it. `status`: new, same, changed, quarantined."""

    name: str
    listed_name: str
    effect_class: str
    pin: str
    status: str
    problem: str = ""
    hints: JsonObject = field(default_factory=dict)


@dataclass
class Preview:
    """A server as an import would add it. With `problems` it is not added; without `probe.worked` without tools."""

    entry: Entry
    exposure: str
    probe: Probe
    known: bool
    tools: list[ToolPreview]
    problems: list[str]

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def prefix(self) -> str:
        return Server(name=self.name, prefix=self.entry.prefix).listed_prefix


def preview(entries: Iterable[Entry], probes: Mapping[str, Probe], *, exposure: str | None) -> list[Preview]:
    """What an import of these servers would do; writes nothing. `exposure` speaks where an entry does not."""
    servers = {server.name: server for server in Server.objects.prefetch_related("tools")}
    found = []
    for entry in entries:
        server = servers.get(entry.name)
        chosen = entry.exposure or exposure or (server.exposure if server else Exposure.OFF)
        probe = probes.get(entry.name, Probe(entry.name, error="It was not started."))
        problems = entry.check(chosen) + _name_problems(entry.name, servers)
        found.append(Preview(entry, chosen, probe, server is not None, [], problems))
        found[-1].tools = [_tool_preview(found[-1], listed, server) for listed in probe.tools]
    _find_collisions(found)
    return found


def apply(previews: Iterable[Preview], *, principal: str) -> list[Server]:
    """Add or change the servers of an import that have no problems, with their tools, in one transaction.

    A new server's tools are accepted as they were shown; of a known one they are compared with their pins.
    """
    with transaction.atomic():
        entries: list[NewEntry] = []
        servers = [_apply(shown, entries, principal) for shown in previews if not shown.problems]
        ring_after_commit()
        record_many(entries)
    return servers


def accept(
    server: Server, choices: Mapping[str, str], *, user: Any, classes: Mapping[str, str] | None = None
) -> list[Tool]:
    """A person accepts what the server says now: `choices` holds, by tool, the candidate pin that they have seen.

    A tool keeps the operator's class, or gets the stricter one that its new hints suggest, unless `classes` says.
    Raises MeahError: E_PERMISSION, E_NOT_FOUND, E_INVALID_REQUEST when it can not be accepted or has changed since.
    """
    if not user.is_active or not user.has_perm(ACCEPT):
        raise MeahError("E_PERMISSION", f"{user.get_username()} lacks the permission {ACCEPT}.")
    principal = user_principal(user)
    with transaction.atomic():
        tools = [_accepted(server, name, pin, principal, (classes or {}).get(name)) for name, pin in choices.items()]
        if server.exposure == Exposure.DIRECT:
            _refuse_collisions(server)
        ring_after_commit()
        record_many([_pinned_entry(tool, principal) for tool in tools])
    return tools


def acceptable(server: Server) -> dict[str, str]:
    """Tools that wait for a person, with the pin of what the server says now."""
    waiting = server.tools.filter(pin_state=PinState.QUARANTINED).exclude(candidate="")
    return {tool.name: tool.candidate_pin for tool in waiting if not why_not_acceptable(tool)}


def why_not_acceptable(tool: Tool) -> str:
    """Why nobody can accept it as it is; empty where a person may."""
    if tool.pin_state != PinState.QUARANTINED:
        return f"it is {tool.pin_state}, so there is nothing to accept"
    if not tool.candidate:
        return tool.quarantine_reason
    [listed] = read_listing([Listed("", tool.candidate).definition])
    if not listed.problem and tool.quarantine_reason.startswith("another tool"):
        return tool.quarantine_reason
    return listed.problem


def changes_of(tool: Tool) -> list[str]:
    """What differs between what was accepted and what the server says now, as lines of a diff."""
    return difference(tool.definition, tool.candidate)


def mark(tool: Tool, effect_class: str, *, principal: str) -> None:
    """The operator says what a tool does to the world."""
    if effect_class not in EffectClass.values:
        raise MeahError("E_INVALID_REQUEST", f"A class is one of {', '.join(EffectClass.values)}.")
    before = {"effectClass": str(tool.effect_class)}
    with transaction.atomic():
        tool.effect_class = effect_class
        tool.save(update_fields=["effect_class"])
        entry = change(
            "tool.marked", principal=principal, subject=str(tool), before=before, after={"effectClass": effect_class}
        )
        if entry is not None:
            ring_after_commit()
            record_many([entry])


def server_named(name: str) -> Server:
    """Raises MeahError E_NOT_FOUND."""
    server = Server.objects.filter(name=name).first()
    if server is None:
        raise MeahError("E_NOT_FOUND", f"There is no server named {name!r}.", hint="`manage.py servers list`")
    return server


def configuration(server: Server) -> JsonObject:
    """What the operator configured, for entries."""
    return {name: getattr(server, name) for name in _CONFIGURATION}


def server_defaults() -> dict[str, dict[str, Any]]:
    """The defaults of policy that servers override, by server and class."""
    found: dict[str, dict[str, Any]] = {}
    with connection.cursor() as cursor:
        cursor.execute(*_overriding())
        for name, *effects in cursor.fetchall():
            by_class = zip(("read", "write", "destructive"), effects, strict=True)
            found[name] = {kind: effect for kind, effect in by_class if effect}
    return found


@cache
def _overriding() -> tuple[str, tuple[Any, ...]]:
    """Built once: every call asks."""
    columns = ("read_default", "write_default", "destructive_default")
    overriding = Q(read_default__gt="") | Q(write_default__gt="") | Q(destructive_default__gt="")
    statement: tuple[str, tuple[Any, ...]] = (
        Server.objects.filter(overriding).order_by().values_list("name", *columns).query.sql_with_params()
    )
    return statement


# -- importing ------------------------------------------------------------------------------------------------------


def _name_problems(name: str, servers: Mapping[str, Server]) -> list[str]:
    others = [other for other in servers if other != name and other.casefold() == name.casefold()]
    return [f"There is a server {others[0]} already, which differs in upper and lower case only."] if others else []


def _tool_preview(shown: Preview, listed: Listed, server: Server | None) -> ToolPreview:
    row = next((tool for tool in server.tools.all() if tool.name == listed.name), None) if server else None
    pin = pin_of(listed.text, shown.entry.launch.identity) if listed.text else ""
    hints = listed.definition.get("annotations") or {}
    proposed = proposed_class(listed.definition)
    return ToolPreview(
        name=listed.name,
        listed_name=shown.prefix + listed.name if shown.exposure == Exposure.DIRECT else "",
        effect_class=row.effect_class if row and row.pin else proposed,
        pin=pin,
        status=_status(listed, pin, server, row),
        problem=listed.problem,
        hints={key: value for key, value in hints.items() if key.endswith("Hint")},
    )


def _status(listed: Listed, pin: str, server: Server | None, row: Tool | None) -> str:
    if listed.problem:
        return "quarantined"
    if row is None:
        return "new" if server is None else "new, to be accepted"
    return "same" if row.pin == pin else "changed, to be accepted"


def _find_collisions(previews: list[Preview]) -> None:
    for shown in previews:
        if shown.exposure != Exposure.DIRECT or shown.problems:
            continue
        others = [other for other in previews if other is not shown and other.exposure == Exposure.DIRECT]
        names = [(tool.listed_name, one.name) for one in [*others, shown] for tool in one.tools if not tool.problem]
        found = catalog.collisions(names, apart_from=[one.name for one in previews])
        shown.problems += [problem for problem in found if f" of {shown.name} " in problem]


def _apply(shown: Preview, entries: list[NewEntry], principal: str) -> Server:
    server = Server.objects.filter(name=shown.name).first()
    before = configuration(server) if server else None
    server = server or Server(name=shown.name)
    _configure(server, shown)
    entry = change(
        "server.changed" if before else "server.added",
        principal=principal,
        subject=server.name,
        before=before,
        after=configuration(server),
    )
    entries += [entry] if entry else []
    if not shown.probe.worked:
        return server
    if before is None:
        entries += [_pinned_entry(tool, principal) for tool in _first_tools(server, shown, principal) if tool.pin]
    else:
        _, found = compare_listed(server, shown.entry.launch.identity, shown.probe.tools)
        entries += found
    return server


def _configure(server: Server, shown: Preview) -> None:
    launch, entry, probe = shown.entry.launch, shown.entry, shown.probe
    server.transport, server.command, server.args = launch.transport, launch.command, list(launch.args)
    server.env, server.inherit_env = dict(launch.env), list(launch.inherit_env)
    server.url, server.headers, server.private = launch.url, dict(launch.headers), launch.private
    server.timeout_ms, server.exposure, server.prefix = launch.timeout_ms, shown.exposure, entry.prefix
    server.keep_alive, server.concurrent = launch.keep_alive, launch.concurrent
    server.pin_scope = entry.pin_scope
    for column, effect in entry.defaults.items():
        setattr(server, column, effect)
    server.era, server.last_error, server.stderr_tail = probe.era or server.era, probe.error[:1000], probe.stderr
    server.state = ServerState.IDLE if probe.worked else ServerState.FAILED
    if probe.worked:
        server.listed_at = timezone.now()
    server.save()


def _first_tools(server: Server, shown: Preview, principal: str) -> list[Tool]:
    """What was shown is what is pinned; what can not be offered waits in quarantine, with its reason."""
    now = timezone.now()
    rows = []
    for listed, tool in zip(shown.probe.tools, shown.tools, strict=True):
        row = Tool(server=server, name=tool.name, proposed_class=tool.effect_class, effect_class=tool.effect_class)
        row.seen_at = now
        if tool.problem:
            row.pin_state, row.quarantine_reason = PinState.QUARANTINED, tool.problem[:500]
            row.candidate, row.candidate_pin = listed.text, tool.pin
        else:
            row.pin_state, row.definition, row.pin = PinState.ACCEPTED, listed.text, tool.pin
            row.accepted_by, row.accepted_at = principal, now
        rows.append(row)
    return Tool.objects.bulk_create(_distinct(rows))


def _distinct(rows: list[Tool]) -> list[Tool]:
    return list({row.name: row for row in rows}.values())


# -- accepting ------------------------------------------------------------------------------------------------------


def _accepted(server: Server, name: str, pin: str, principal: str, effect_class: str | None) -> Tool:
    tool = Tool.objects.filter(server=server, name=name).first()
    if tool is None:
        raise MeahError("E_NOT_FOUND", f"The server {server.name} has no tool named {name!r}.")
    if why := why_not_acceptable(tool):
        raise MeahError("E_INVALID_REQUEST", f"{server.name}/{name} can not be accepted: {why}.")
    if tool.candidate_pin != pin:
        raise MeahError(
            "E_INVALID_REQUEST",
            f"{server.name}/{name} has changed again since you looked at it.",
            hint="Look at the difference once more, then accept that.",
            reason="changed_again",
        )
    tool.proposed_class = proposed_class(Listed("", tool.candidate).definition)
    tool.effect_class = effect_class or (
        stricter(tool.effect_class, tool.proposed_class) if tool.pin else tool.proposed_class
    )
    void_held_calls(server.name, [name] if tool.pin else [])
    tool.definition, tool.pin, tool.pin_state = tool.candidate, tool.candidate_pin, PinState.ACCEPTED
    tool.candidate = tool.candidate_pin = tool.quarantine_reason = ""
    tool.accepted_by, tool.accepted_at = principal, timezone.now()
    tool.save()
    return tool


def _refuse_collisions(server: Server) -> None:
    names = [
        (server.listed_prefix + name, server.name)
        for name in server.tools.filter(pin_state=PinState.ACCEPTED).values_list("name", flat=True)
    ]
    if problems := catalog.collisions(names, apart_from=[server.name]):
        raise MeahError("E_INVALID_REQUEST", " ".join(problems), reason="collision")


def _pinned_entry(tool: Tool, principal: str) -> NewEntry:
    data = {"pin": tool.pin, "class": str(tool.effect_class), "proposed": str(tool.proposed_class)}
    return NewEntry("tool.pinned", principal, f"{tool.server.name}/{tool.name}", data)
