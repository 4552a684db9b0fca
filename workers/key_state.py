"""Which processes have a provider's key: by the name of its variable, never by its value."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from approvals.models import Process
from core.secrets import read_secret


@dataclass(frozen=True)
class KeyState:
    """`here`: whether this very process has it. The others say of themselves what they have."""

    variable: str
    here: bool
    having: tuple[Process, ...]
    lacking: tuple[Process, ...]

    @property
    def state(self) -> str:
        """`none` where no key is needed, else `set`, `not_set`, or `partly` where only some processes have it."""
        if not self.variable:
            return "none"
        if not self.here and not self.having:
            return "not_set"
        return "set" if self.here and not self.lacking else "partly"


def is_this_process(process: Process) -> bool:
    return process.pid == os.getpid() and process.host == socket.gethostname()


def key_state(variable: str, processes: Sequence[Process]) -> KeyState:
    """Where the key of this variable is, among these living processes and in this one."""
    others = [process for process in processes if not is_this_process(process)]
    return KeyState(
        variable=variable,
        here=bool(variable and read_secret(variable)),
        having=tuple(process for process in others if variable in process.key_variables),
        lacking=tuple(process for process in others if variable not in process.key_variables),
    )
