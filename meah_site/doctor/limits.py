"""What MEAH does not keep anybody from doing: said in every report, so that nobody takes it for more than it is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from meah_site.doctor.findings import Check, Finding, Group, examined, info, ok, warning
from meah_site.doctor.processes import this_user
from workers.routing import Config, TerminalConfig


def examine(config: Config | None) -> Group:
    """`config` is None where it can not be known."""
    checks: list[tuple[str, Check]] = [] if config is None else [("commands", partial(commands, config.terminal))]
    return examined("Limits", *checks, ("boundary", boundary))


def commands(terminal: TerminalConfig) -> Iterator[Finding]:
    if not terminal.enabled:
        yield ok("commands", "off: workers run none")
        return
    allowed = len(terminal.allowlist)
    yield warning(
        "commands",
        f"switched on with {allowed} allowed, but this version has no sandbox for them: workspace-exec is refused "
        "with E_SANDBOX_UNAVAILABLE",
        "Switch terminal.enabled off, or use another permissionProfile.",
    )


def boundary() -> Iterator[Finding]:
    yield info(
        "boundary",
        f"An agent with a shell under {this_user()} can write the database or take a login link, past every rule",
        "Run MEAH under a user of its own, and let agents reach it over HTTP only.",
    )
