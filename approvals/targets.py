"""What the gate needs to know of the things behind it. Wings register their targets when their apps load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from approvals.models import Call, EffectClass
from audit.services import NewEntry
from core.errors import JsonObject, MeahError


@dataclass(frozen=True)
class CallRequest:
    """A call as it came in at a door: who wants what, with which arguments.

    `owner` is the process that accepted it, `run` and `step` are the caller's own names for a retry.
    """

    principal: str
    server: str
    tool: str
    arguments: JsonObject
    door: str
    owner: str = ""
    run: str = ""
    step: str = ""


@dataclass(frozen=True)
class ToolFacts:
    """What policy may know of a tool.

    effect_class: read, write or destructive, by the operator's marking.
    recorded: whether a call makes a row and entries; polling does not.
    local: whether the whole effect is rows of this database, made by `Target.apply` in the deciding transaction.
    """

    effect_class: EffectClass
    recorded: bool = True
    local: bool = False


@dataclass(frozen=True)
class Verdict:
    """What the policy said, and by which rule."""

    effect: str
    rule: str

    def as_dict(self) -> JsonObject:
        return {"effect": self.effect, "rule": self.rule}


@dataclass
class Applied:
    """What a local call did: its result, and the entries that say so.

    With `replaces_call_entries` they take the place of `call.sent` and `call.done`, as the starts of workers do; the
    first of them then carries the view of the arguments.
    """

    result: Any
    entries: list[NewEntry] = field(default_factory=list)
    replaces_call_entries: bool = False


@dataclass
class CallContext:
    """What a running call may use of its door: a way to report progress, where the door has one."""

    progress: Callable[[str], Awaitable[None]] | None = None


class Target(Protocol):
    """One server behind the gate. `run` is the only place where its side effects outside MEAH happen."""

    server: str

    def tools(self) -> Sequence[str]: ...

    def facts(self, tool: str, arguments: JsonObject) -> ToolFacts:
        """Raises MeahError E_NOT_FOUND for an unknown tool."""
        ...

    def check(self, request: CallRequest) -> Any:
        """The arguments in the target's own form; raises MeahError before any person is asked.

        Called outside of any transaction: whatever takes time belongs here, not into `apply`.
        """
        ...

    def apply(self, request: CallRequest, checked: Any, call: Call | None, verdict: Verdict) -> Applied:
        """For local tools, sync, inside the deciding transaction: make the rows, and say what to record.

        `call` is None where the tool's facts say that its calls are not recorded; there is no transaction then.
        """
        ...

    async def run(self, request: CallRequest, checked: Any, context: CallContext | None) -> Any:
        """For all others: do it, and return the result. Cancelling it stops it, where it can be stopped."""
        ...


_targets: dict[str, Target] = {}


def register(target: Target) -> None:
    """Raises ValueError when the server's name is taken: never last one wins."""
    if target.server in _targets:
        raise ValueError(f"a target named {target.server!r} is registered already")
    _targets[target.server] = target


def target_of(server: str) -> Target:
    if server not in _targets:
        raise MeahError("E_NOT_FOUND", f"There is no server named {server!r}.")
    return _targets[server]
