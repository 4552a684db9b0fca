"""What MEAH does not keep anybody from doing: said in every report, so that nobody takes it for more than it is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from meah_site.doctor import commands, search
from meah_site.doctor.findings import Check, Finding, Group, examined, info
from meah_site.doctor.processes import this_user
from workers.routing import Config


def examine(config: Config | None) -> Group:
    """`config` is None where it can not be known."""
    checks: list[tuple[str, Check]] = [] if config is None else [("commands", partial(commands.examine, config))]
    return examined("Limits", *checks, ("search", search.examine), ("boundary", boundary))


def boundary() -> Iterator[Finding]:
    yield info(
        "boundary",
        f"An agent with a shell under {this_user()} can write the database or take a login link, past every rule",
        "Run MEAH under a user of its own, and let agents reach it over HTTP only.",
    )
