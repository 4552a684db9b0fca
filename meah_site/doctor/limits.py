"""What MEAH does not keep anybody from doing: said in every report, so that nobody takes it for more than it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from meah_site.doctor import search
from meah_site.doctor.findings import Check, Finding, Group, examined, info, ok, warning
from meah_site.doctor.processes import this_user
from workers.routing import Config, TerminalConfig
from workers.terminal import probes, sandbox


def examine(config: Config | None) -> Group:
    """`config` is None where it can not be known."""
    checks: list[tuple[str, Check]] = [] if config is None else [("commands", partial(commands, config.terminal))]
    return examined("Limits", *checks, ("search", search.examine), ("boundary", boundary))


def commands(terminal: TerminalConfig) -> Iterator[Finding]:
    if not terminal.enabled:
        yield ok("commands", "off: workers run none")
        return
    allowed = f"switched on, {len(terminal.allowlist)} executables allowed"
    why = asyncio.run(probes.holes())
    if not why:
        yield ok("commands", f"{allowed}; the sandbox holds (six ways out were tried)")
    elif sandbox.is_unsandboxed_allowed():
        yield warning(
            "commands",
            f"{allowed}, WITHOUT a sandbox ({why}): {sandbox.UNSANDBOXED} is set",
            "Install bubblewrap and take the variable away: until then commands run as MEAH's own user.",
        )
    else:
        yield warning(
            "commands",
            f"{allowed}, but {why}: workspace-exec is refused with E_SANDBOX_UNAVAILABLE",
            "Install bubblewrap, or switch terminal.enabled off.",
        )


def boundary() -> Iterator[Finding]:
    yield info(
        "boundary",
        f"An agent with a shell under {this_user()} can write the database or take a login link, past every rule",
        "Run MEAH under a user of its own, and let agents reach it over HTTP only.",
    )
