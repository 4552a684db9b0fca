"""The tools that agents get directly: what `tools/list` shows of them, and what a listed name means."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from django.db.models import Q, QuerySet

from approvals.policy import Policy
from core.errors import JsonObject, MeahError
from core.text import one_line

from .models import Exposure, PinState, Server, Tool

# Names of MEAH's own tools: a bare name of a server must not take one.
OWN_NAMES: Final = re.compile(
    r"(meah_.*|mcp_(discover|call|run)|approval_status|list_pending|approve|reject)", re.IGNORECASE
)


@dataclass(frozen=True)
class DirectTool:
    """One tool as agents know it. `definition` is the pinned one, with the server's own name in it."""

    listed_name: str
    server: str
    tool: str
    definition: JsonObject
    effect_class: str
    pin: str


def direct_tools() -> list[DirectTool]:
    """Every tool that is listed by itself, by its listed name. What collides is left out altogether."""
    found = [_direct(tool) for tool in _offered().order_by("server__name", "name")]
    by_name = defaultdict(list)
    for tool in found:
        by_name[tool.listed_name.casefold()].append(tool)
    return [tool for tools in by_name.values() if len(tools) == 1 for tool in tools]


def find(listed_name: str) -> DirectTool:
    """The tool that an agent means. Raises MeahError E_NOT_FOUND, also where two could be meant."""
    rows = list(_offered().filter(_meanings(listed_name))[:2])
    if len(rows) != 1:
        raise MeahError("E_NOT_FOUND", f"There is no tool named {one_line(listed_name, 100)!r}.")
    return _direct(rows[0])


def speaking_rules(policy: Policy, tool: Tool, *, principal: str) -> str:
    """The rules that give a tool its posture, by name; the default where none speaks."""
    names = [rule.name for rule in policy.rules if rule.speaks_of(principal, tool.server.name, tool.name)]
    return ", ".join(names) or f"default: {tool.effect_class}"


def collisions(names: Iterable[tuple[str, str]], *, apart_from: Iterable[str] = ()) -> list[str]:
    """What is wrong with these new (listed name, server) pairs, beside those of all direct servers but some."""
    taken: dict[str, tuple[str, str]] = {}
    problems = []
    for listed_name, server in [*_taken(set(apart_from)), *names]:
        key = listed_name.casefold()
        if OWN_NAMES.fullmatch(listed_name):
            problems.append(f"{listed_name} of {server} would take the name of a tool of MEAH's own.")
        elif key in taken and taken[key][1] != server:
            other, owner = taken[key]
            problems.append(f"{listed_name} of {server} would be listed like {other} of {owner}.")
        else:
            taken[key] = (listed_name, server)
    return [f"{problem} Give one of the servers another prefix." for problem in problems]


def _taken(apart_from: set[str]) -> Iterator[tuple[str, str]]:
    rows = Tool.objects.filter(server__exposure=Exposure.DIRECT, pin_state=PinState.ACCEPTED).exclude(
        server__name__in=apart_from
    )
    for name, server, prefix in rows.values_list("name", "server__name", "server__prefix"):
        yield Server(name=server, prefix=prefix).listed_prefix + name, server


def _offered() -> QuerySet[Tool]:
    return Tool.objects.select_related("server").filter(server__exposure=Exposure.DIRECT, pin_state=PinState.ACCEPTED)


def _meanings(listed_name: str) -> Q:
    """A prefix has no __ in it, a tool's name may: so every place where the name can be cut is asked for."""
    meant = Q(server__prefix="", name=listed_name)
    for cut in re.finditer("(?=__)", listed_name):
        prefix, name = listed_name[: cut.start()], listed_name[cut.start() + 2 :]
        meant |= Q(name=name) & (Q(server__prefix=prefix) | Q(server__prefix=None, server__name=prefix))
    return meant


def _direct(tool: Tool) -> DirectTool:
    return DirectTool(
        listed_name=tool.listed_name,
        server=tool.server.name,
        tool=tool.name,
        definition=tool.pinned,
        effect_class=tool.effect_class,
        pin=tool.pin,
    )
