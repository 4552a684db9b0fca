"""Commands of workers: whether any may run, in what, as whom, and whether what is allowed is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from core.errors import MeahError
from meah_site.doctor.findings import Finding, info, ok, warning
from workers.housekeeping import workspace_root
from workers.routing import Config
from workers.terminal import probes, sandbox
from workers.terminal.allowlist import require_usable


def examine(config: Config) -> Iterator[Finding]:
    if not config.terminal.enabled:
        yield ok("commands", "off: workers run none")
        return
    yield _held(f"switched on, {len(config.terminal.allowlist)} executables allowed")
    yield from _wrong_entries(config)
    if sandbox.is_root():
        yield info(
            "commands as root",
            "MEAH runs as root; commands run as nobody, without a capability, and their workspaces are nobody's",
            "Run MEAH under a user of its own: what root can read is one flaw of the kernel away.",
        )


def _held(allowed: str) -> Finding:
    why = asyncio.run(probes.holes())
    if not why:
        return ok("commands", f"{allowed}; the sandbox holds (six ways out were tried)")
    if sandbox.is_unsandboxed_allowed():
        return warning(
            "commands",
            f"{allowed}, WITHOUT a sandbox ({why}): {sandbox.UNSANDBOXED} is set",
            "Install bubblewrap and take the variable away: until then commands run as MEAH's own user.",
        )
    return warning(
        "commands",
        f"{allowed}, but {why}: workspace-exec is refused with E_SANDBOX_UNAVAILABLE",
        "Install bubblewrap, or switch terminal.enabled off.",
    )


def _wrong_entries(config: Config) -> Iterator[Finding]:
    for path in dict.fromkeys(entry.path for entry in config.terminal.allowlist):
        try:
            require_usable(path, workspaces=workspace_root(config))
        except MeahError as error:
            yield warning("commands allowed", error.message, error.hint)
