"""What `mcp_discover` answers: servers, tools and Methods, from rows and cached schemas. Nothing is started for it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.db.models import Count, Q
from django.utils import timezone

from approvals.holds import refuse_while_halted
from approvals.policy import Policy, posture
from approvals.policy_store import current as current_policy
from audit.dbthread import in_db
from core.errors import JsonObject, MeahError
from core.text import one_line

from . import methods, sessions
from .catalogue_index import Catalogue, Found, search_servers
from .launch import Launch
from .models import Exposure, PinState, Server, Tool
from .search import Hit

MAX_DESCRIPTION_CHARS: Final = 300

_NEXT_TOOLS: Final = "Search with query, or name a server to list its tools."


class Discovery:
    """One per process, over its catalogue. `wanted` is what `schemas.DISCOVER` lets through."""

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self._catalogue = catalogue or Catalogue()

    async def discover(self, wanted: JsonObject, *, principal: str) -> JsonObject:
        """Raises MeahError: E_NOT_FOUND for an unknown server, E_INVALID_REQUEST, what a refresh fails with."""
        if wanted["refresh"]:
            await _refresh(await in_db(_launch_to_refresh, wanted.get("server", "")))
        query, server = wanted.get("query", "").strip(), wanted.get("server", "")
        found = Found()
        if query and _asks(wanted, "tool"):
            found = await self._catalogue.search(query, server=server)
        here = sessions.open_here()
        answer = await in_db(_answer, wanted, query, found.hits, here, principal)
        if query:
            answer["search"] = found.mode
        if found.note:
            answer["searchNote"] = found.note
        return answer


def _asks(wanted: JsonObject, kind: str) -> bool:
    return wanted["kind"] in ("all", kind)


# -- refreshing one server --------------------------------------------------------------------------------------------


def _launch_to_refresh(name: str) -> Launch:
    if not name:
        raise MeahError(
            "E_INVALID_REQUEST",
            "refresh needs a server.",
            hint="Name the one server that is to be started and listed anew.",
            reason="arguments",
        )
    server = _server(name)
    refuse_while_halted(True)
    return server.launch()


async def _refresh(launch: Launch) -> None:
    async with sessions.current().use(launch) as connection:
        await connection.list_again()


# -- the answer -------------------------------------------------------------------------------------------------------


def _answer(wanted: JsonObject, query: str, hits: list[Hit], here: frozenset[str], principal: str) -> JsonObject:
    """Sync, for the database thread. The three lists are paged together, each from the cursor's place on."""
    server = _server(wanted["server"]) if wanted.get("server") else None
    start = _from_cursor(wanted.get("cursor", ""))
    page = slice(start, start + wanted["limit"])
    data: JsonObject = {"servers": [], "tools": [], "methods": []}
    totals = []
    if _asks(wanted, "server"):
        servers = [server] if server else _servers(query)
        totals.append(len(servers))
        data["servers"] = _server_objects(servers[page], here)
    if _asks(wanted, "tool"):
        found = _tool_keys(wanted, query, hits, server)
        totals.append(len(found))
        data["tools"] = _tool_objects(found[page], wanted, server, here, principal)
    if _asks(wanted, "method") and server is None:
        versions = methods.offered(query)
        totals.append(len(versions))
        data["methods"] = [methods.as_discovered(version) for version in versions[page]]
    data["nextCursor"] = _to_cursor(page.stop) if any(total > page.stop for total in totals) else None
    if not query and server is None and wanted["kind"] == "all":
        data["next"] = _NEXT_TOOLS
    return data


def _server(name: str) -> Server:
    """Raises MeahError E_NOT_FOUND, also for one that is off: agents need not know of it."""
    server = Server.objects.filter(name=name).exclude(exposure=Exposure.OFF).first()
    if server is None:
        raise MeahError(
            "E_NOT_FOUND",
            f"There is no server named {one_line(name, 100)!r}.",
            hint="mcp_discover with kind server lists them.",
        )
    return server


def _servers(query: str) -> list[Server]:
    rows = Server.objects.exclude(exposure=Exposure.OFF).order_by("name")
    return search_servers(rows, query) if query else list(rows)


def _server_objects(servers: Iterable[Server], here: frozenset[str]) -> list[JsonObject]:
    rows = list(servers)
    accepted = Count("tools", filter=Q(tools__pin_state=PinState.ACCEPTED))
    waiting = Count("tools", filter=Q(tools__pin_state=PinState.QUARANTINED))
    keys = [server.pk for server in rows]
    counts = {
        key: (tools, quarantined)
        for key, tools, quarantined in Server.objects.filter(pk__in=keys)
        .order_by()
        .annotate(accepted=accepted, waiting=waiting)
        .values_list("pk", "accepted", "waiting")
    }
    return [_server_object(server, *counts[server.pk], here) for server in rows]


def _server_object(server: Server, tools: int, quarantined: int, here: frozenset[str]) -> JsonObject:
    found: JsonObject = {
        "server": server.name,
        "state": server.state,
        "exposure": server.exposure,
        "transport": server.transport,
        "tools": tools,
        **_schema_source(server, here),
    }
    if quarantined:
        found["quarantined"] = quarantined
    if server.last_error:
        found["lastError"] = one_line(server.last_error, MAX_DESCRIPTION_CHARS)
    return found


def _schema_source(server: Server, here: frozenset[str]) -> JsonObject:
    """Where its schemas come from, and how old (ms) they are: `live` while a connection tells of every change."""
    if server.listed_at is None:
        return {"schemaSource": "unknown", "schemaAgeMs": None}
    age = timezone.now() - server.listed_at
    source = "live" if server.name in here else "cache"
    return {"schemaSource": source, "schemaAgeMs": max(0, round(age.total_seconds() * 1000))}


# -- tools ------------------------------------------------------------------------------------------------------------


def _tool_keys(wanted: JsonObject, query: str, hits: list[Hit], server: Server | None) -> list[Hit]:
    """What was found; without a query a named server's tools, or every tool where only tools are asked for."""
    if query:
        return hits
    rows = Tool.objects.filter(pin_state=PinState.ACCEPTED).exclude(server__exposure=Exposure.OFF)
    if server is not None:
        rows = rows.filter(server=server)
    elif wanted["kind"] == "all":
        return []
    return [Hit(key, 0.0) for key in rows.order_by("server__name", "name").values_list("pk", flat=True)]


def _tool_objects(
    hits: list[Hit], wanted: JsonObject, server: Server | None, here: frozenset[str], principal: str
) -> list[JsonObject]:
    offered = Tool.objects.select_related("server").filter(pin_state=PinState.ACCEPTED)
    rows: Mapping[int, Tool] = offered.exclude(server__exposure=Exposure.OFF).in_bulk([hit.key for hit in hits])
    policy = current_policy()
    whole = wanted["detail"] == "full" or server is not None
    return [
        _tool_object(rows[hit.key], hit, policy, principal, here, whole=whole or hit.exact)
        for hit in hits
        if hit.key in rows
    ]


def _tool_object(
    tool: Tool, hit: Hit, policy: Policy, principal: str, here: frozenset[str], *, whole: bool
) -> JsonObject:
    definition = tool.pinned
    description = str(definition.get("description") or "")
    found: JsonObject = {
        "server": tool.server.name,
        "tool": tool.name,
        "title": definition.get("title"),
        "description": description if whole else one_line(description, MAX_DESCRIPTION_CHARS),
        "posture": posture(
            policy,
            principal=principal,
            server=tool.server.name,
            tool=tool.name,
            effect_class=tool.effect_class,
        ),
        "score": hit.score,
        "schemaSource": _schema_source(tool.server, here)["schemaSource"],
    }
    if whole:
        found |= {"inputSchema": definition["inputSchema"], "outputSchema": definition.get("outputSchema")}
    return {name: value for name, value in found.items() if value is not None}


# -- pages ------------------------------------------------------------------------------------------------------------


def _to_cursor(start: int) -> str:
    return base64.urlsafe_b64encode(b"d1:%d" % start).decode()


def _from_cursor(cursor: Any) -> int:
    if not cursor:
        return 0
    try:
        version, _, number = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        if version == "d1" and number.isascii() and number.isdigit() and len(number) < 10:
            return int(number)
    except ValueError:
        pass
    raise MeahError("E_INVALID_REQUEST", "The cursor is not one of this list.", hint="Use nextCursor, or none.")
