"""The commands of one worker: checked when it is started, run in order before its provider is asked."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from core.errors import MeahError
from workers.prompt import ContextItem
from workers.routing import TerminalConfig

from . import probes, sandbox
from .allowlist import require_usable
from .execution import Ran, hand_over, run
from .words import argv_of

OUTPUT_NAME: Final = "command output"


def checked(
    commands: Sequence[str | Sequence[str]], config: TerminalConfig, *, profile_allows: bool, workspaces: Path
) -> list[list[str]]:
    """Argument lists of what is allowed, nothing started. `workspaces` is where those of all workers lie.

    Raises MeahError: E_PERMISSION where commands are off or one is not allowed, E_SANDBOX_UNAVAILABLE where none can
    be run at all, E_INVALID_REQUEST for what is no command, E_CONFIG where what is allowed can not be.
    """
    if not profile_allows:
        if commands:
            raise MeahError(
                "E_PERMISSION",
                "Commands are refused under this permissionProfile.",
                hint="They need both permissionProfile: workspace-exec and terminal.enabled in the configuration.",
                reason="commands_refused",
            )
        return []
    if not config.enabled:
        raise MeahError(
            "E_PERMISSION",
            "permissionProfile workspace-exec is refused: commands are switched off (terminal.enabled).",
            hint="Use workspace-write, or let the operator switch commands on and name the executables allowed.",
            reason="terminal_disabled",
        )
    require_sandbox(sandbox.missing() or probes.known())
    if len(commands) > config.max_commands_per_worker:
        raise MeahError(
            "E_PERMISSION",
            f"{len(commands)} commands are more than the {config.max_commands_per_worker} that a worker may bring.",
            hint="Send fewer, or raise terminal.maxCommandsPerWorker.",
            reason="too_many_commands",
        )
    found = [argv_of(command, config.allowlist) for command in commands]
    for argv in found:
        require_usable(argv[0], workspaces=workspaces)
    return found


def require_sandbox(why: str) -> None:
    """`why` is what keeps it from holding. Raises MeahError E_SANDBOX_UNAVAILABLE, unless commands may do without."""
    if why and not sandbox.is_unsandboxed_allowed():
        raise sandbox.unavailable(why)


async def run_all(
    commands: Sequence[Sequence[str]], *, workspace: Path, config: TerminalConfig, sandboxed: bool
) -> list[Ran]:
    """One after another; a command that fails keeps no other from running."""
    await asyncio.to_thread(hand_over, workspace)
    return [
        await run(
            argv,
            workspace=workspace,
            timeout_s=config.timeout_ms / 1000,
            keep_bytes=config.max_output_bytes,
            sandboxed=sandboxed,
        )
        for argv in commands
    ]


def as_context(results: Sequence[Ran]) -> list[ContextItem]:
    """What the model is shown of it: one item a command, as untrusted as any other context."""
    several = len(results) > 1
    return [
        ContextItem(f"{OUTPUT_NAME} {number}" if several else OUTPUT_NAME, _shown(ran))
        for number, ran in enumerate(results, start=1)
    ]


def _shown(ran: Ran) -> str:
    """How it ended comes first: what is too long for the prompt is cut at its end."""
    end = f"ended by MEAH: {ran.ended}" if ran.ended else f"exit status {ran.status}"
    return f"$ {shlex.join(ran.argv)}\n[{end}]\n{ran.output.rstrip()}"
