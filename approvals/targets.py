"""What the gate needs to know of the things behind it. Wings register their targets when their apps load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from audit.services import NewEntry
from core.errors import JsonObject, MeahError

from .models import Call, EffectClass
from .policy import Verdict


@dataclass(frozen=True)
class CallRequest:
    """A call as it came in at a door: who wants what, with which arguments.

    `owner` is the process that accepted it, `run` and `step` are the caller's own names for a retry; `user_id` is the
    person behind the principal, where there is one.
    """

    principal: str
    server: str
    tool: str
    arguments: JsonObject
    door: str
    owner: str = ""
    run: str = ""
    step: str = ""
    user_id: int | None = None


@dataclass(frozen=True)
class ToolFacts:
    """What policy may know of a tool.

    effect_class: read, write or destructive, by the operator's marking.
    recorded: whether a call makes a row and entries; polling does not.
    local: whether the whole effect is rows of this database, made by `Target.apply` in the deciding transaction.
    pin: digest of the definition that the call is judged under; schema: its input schema.
    timeout_s: how long an answer is waited for; None leaves that to the target.
    grace_s: how much longer the target may take to clean up, where it keeps to the time limit itself.
    """

    effect_class: EffectClass
    recorded: bool = True
    local: bool = False
    pin: str = ""
    schema: JsonObject | None = None
    timeout_s: float | None = None
    grace_s: float = 0.0


@dataclass(frozen=True)
class Checked:
    """Arguments that passed the tool's schema: as they are judged, shown and sent, and in the target's own form."""

    arguments: JsonObject
    value: Any = None


@dataclass
class Applied:
    """What a local call did: its result, and the entries that say so.

    With `replaces_call_entries` they take the place of `call.sent` and `call.done`, as the starts of workers do.
    """

    result: Any
    entries: list[NewEntry] = field(default_factory=list)
    replaces_call_entries: bool = False


@dataclass
class CallContext:
    """What a running call may use of its door: a way to report progress, and its idempotency key.

    takes_questions: whether a client is there that may be asked for more (`input_required`, from MCP 2026-07-28 on).
    """

    progress: Callable[[float, float | None, str | None], Awaitable[None]] | None = None
    takes_questions: bool = False
    idempotency_key: str = ""
    timeout_s: float | None = None


class Target(Protocol):
    """One server behind the gate. `run` is the only place where its side effects outside MEAH happen."""

    server: str

    def tools(self) -> Sequence[str]: ...

    def facts(self, tool: str, arguments: JsonObject) -> ToolFacts:
        """Raises MeahError: E_NOT_FOUND for an unknown tool, E_DENIED for one that is not offered."""
        ...

    def check(self, request: CallRequest) -> Checked:
        """Raises MeahError before any person is asked."""
        ...

    def needs(self, tool: str) -> Sequence[str]:
        """Names of the variables that a process must have set to run it."""
        ...

    def apply(self, request: CallRequest, checked: Checked, call: Call | None, verdict: Verdict) -> Applied:
        """For local tools, sync, inside the deciding transaction: make the rows, and say what to record."""
        ...

    async def run(self, request: CallRequest, checked: Checked, context: CallContext) -> Any:
        """For all others: do it, and return the result.

        Raises MeahError; one with `details.sent` false says that nothing had reached the server.
        """
        ...

    def store(self, result: Any) -> Any:
        """The result as JSON, to be kept with the call."""
        ...

    def revive(self, request: CallRequest, checked: Checked, stored: Any) -> Any:
        """The inverse of `store`, for a replay."""
        ...


Resolver = Callable[[str], Target | None]

_targets: dict[str, Target] = {}
_resolvers: list[tuple[Resolver, Callable[[], Iterable[str]]]] = []


def register(target: Target) -> None:
    """A target with a fixed name. Raises ValueError when the name is taken: never last one wins."""
    if target.server in _targets:
        raise ValueError(f"a target named {target.server!r} is registered already")
    _targets[target.server] = target


def register_resolver(resolver: Resolver, servers: Callable[[], Iterable[str]] = tuple) -> None:
    """A way to targets whose names live in rows; `servers` says which names there are at the moment."""
    _resolvers.append((resolver, servers))


def target_of(server: str) -> Target:
    """Raises MeahError E_NOT_FOUND."""
    if server in _targets:
        return _targets[server]
    for resolver, _ in _resolvers:
        if (target := resolver(server)) is not None:
            return target
    raise MeahError("E_NOT_FOUND", f"There is no server named {server!r}.")


def registered() -> list[Target]:
    """The targets with fixed names."""
    return list(_targets.values())


def known() -> list[Target]:
    """Every target that there is at the moment, by name."""
    names = {server for _, servers in _resolvers for server in servers()} - _targets.keys()
    return [target_of(name) for name in sorted({*names, *_targets})]
