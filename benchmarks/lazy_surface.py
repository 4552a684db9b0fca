"""What the lazy surface costs a model's context, beside listing the same servers' tools; and what a search takes."""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from benchmarks.measure import Aim, Measure, Outcome, Skipped
from benchmarks.tokens import compact, counted, missing

TOKENS: Final = "tokens of the three lazy tools, whatever the number of servers"
SEARCH: Final = "mcp_discover with a query"
SERVERS: Final = 1_000
VERBS: Final = ("read", "write", "list", "create", "delete", "update", "search", "move", "copy", "send", "run", "stop")
NOUNS: Final = ("file", "issue", "branch", "ticket", "invoice", "customer", "order", "page", "user", "channel", "alarm")


def measure_tokens(home: Path) -> Outcome:
    if why := missing():
        return Skipped("lazy-tokens", TOKENS, why)
    from gateway.runner import Runner
    from gateway.tools import tools

    lazy = [tool.as_listed() for tool in tools(Runner(""))]
    direct, servers = _direct(home)
    each = ", ".join(f"{tool['name']} {counted(compact(tool))}" for tool in lazy)
    return Measure(
        "lazy-tokens",
        TOKENS,
        counted(compact({"tools": lazy})),
        "tokens",
        Aim("value", "at most", 900),
        yardstick=counted(compact({"tools": direct})) if direct else None,
        yardstick_title=f"the {len(direct)} tools of {servers}, listed directly",
        notes=(f"Each: {each}.",),
    )


def _direct(home: Path) -> tuple[list[Any], str]:
    """What the reference servers list, where they can be installed here."""
    from _pytest.outcomes import Skipped as CanNotBeInstalled

    from gateway.launch import Launch
    from gateway.probing import probe_all
    from tests.gateway.real_servers import npm, pypi

    try:
        reals = {
            "everything": npm("server-everything"),
            "filesystem": npm("server-filesystem", str(home)),
            "memory": npm("server-memory"),
            "time": pypi("mcp-server-time", "--local-timezone=UTC"),
            "git": pypi("mcp-server-git"),
        }
    except CanNotBeInstalled:
        return [], ""
    launches = [Launch(server=name, command=real.command, args=real.args) for name, real in reals.items()]
    probes = asyncio.run(probe_all(launches, directory=home, home=home, at_once=2))
    listed = [
        tool.definition | {"name": f"{name}__{tool.name}"} for name, probe in probes.items() for tool in probe.tools
    ]
    return listed, ", ".join(probes)


def measure_search(home: Path, *, tools: int = 10_000, queries: int = 60) -> Outcome:
    """The whole of it: the index in memory, rows, postures, the answer. The index is made by the first search."""
    _fill(tools)
    first_ms, took = asyncio.run(_searches(queries))
    return Measure(
        "lazy-search",
        SEARCH,
        median(took),
        "ms",
        Aim("value", "at most", 50),
        notes=(
            f"{tools:,} tools of {min(SERVERS, tools):,} servers, {queries} queries of one to four words; "
            f"p95 {quantiles(took, n=20)[-1]:.1f} ms. The first search, which makes the index: {first_ms:,.0f} ms.",
        ),
    )


def _fill(tools: int) -> None:
    from django.db import transaction

    from gateway.models import Server, Tool

    rng = random.Random(3)
    with transaction.atomic():
        Tool.objects.all().delete()
        Server.objects.all().delete()
        rows = [Server(name=f"server-{number}", transport="stdio", exposure="lazy") for number in range(SERVERS)]
        Server.objects.bulk_create(rows)
        servers = list(Server.objects.all())
        Tool.objects.bulk_create([_tool(servers[number % SERVERS], number, rng) for number in range(tools)])


def _tool(server: Any, number: int, rng: random.Random) -> Any:
    from gateway.models import Tool

    verb, noun, other = rng.choice(VERBS), rng.choice(NOUNS), rng.choice(NOUNS)
    definition = {
        "name": f"{verb}_{noun}_{number}",
        "description": f"{verb.title()} a {noun} of the workspace, with options for its {other} and how it answers.",
        "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}, other: {"type": "string"}}},
    }
    return Tool(
        server=server,
        name=definition["name"],
        definition=json.dumps(definition),
        pin="0" * 64,
        pin_state="accepted",
        effect_class="read",
    )


async def _searches(queries: int) -> tuple[float, list[float]]:
    from gateway import schemas
    from gateway.lazy import Discovery

    rng = random.Random(5)
    one, took = Discovery(), []
    for _ in range(queries + 1):
        words = rng.sample([*VERBS, *NOUNS], rng.randint(1, 4))
        wanted = schemas.parse(schemas.DISCOVER, {"query": " ".join(words)})
        began = time.perf_counter()
        await one.discover(wanted, principal="agent:benchmark")
        took.append((time.perf_counter() - began) * 1000)
    return took[0], took[1:]
