"""The policy: which effect a call gets, by which rule. Pure: rules in, verdict out.

`deny` beats `require_approval` beats `allow`, whatever the order of the rules. Order only chooses whose reason, time
to live and verification apply. Where no rule matches, the default for the tool's class does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal

from core.canonical import canonical_text, digest
from core.errors import JsonObject, MeahError

from .argument_paths import problem_of_path
from .conditions import Condition, Truth, evaluate, holds_strictly, holds_surely

EffectName = Literal["allow", "require_approval", "deny"]

ALLOW: Final = "allow"
REQUIRE_APPROVAL: Final = "require_approval"
DENY: Final = "deny"
ANY: Final = "*"
MAX_APPROVALS: Final = 10
DEFAULT_RULE: Final = "default: "
_STRICTNESS: Final[Mapping[str, int]] = {ALLOW: 0, REQUIRE_APPROVAL: 1, DENY: 2}
_DIGEST_TAG: Final = "meah/policy/v1"


@dataclass(frozen=True)
class Verification:
    """Read after write: call `tool` with arguments from the write's, and expect values in its structured answer.

    `arguments` maps the check's arguments to paths in the write's; `expect` maps paths in the check's answer to a
    value, or to {"argument": path} for what the write was told (nothing is expected where it was told nothing).
    Raises MeahError E_CONFIG when it could not show anything.
    """

    tool: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if problem := _problem_of_verification(self):
            raise _bad(f"The verification by {self.tool!r} {problem}.")

    @classmethod
    def from_dict(cls, data: Any) -> Verification:
        known = {"tool", "arguments", "expect"}
        if not isinstance(data, Mapping) or not {"tool", "expect"} <= data.keys() <= known:
            raise _bad("A verification is an object with tool, arguments and expect, and nothing else.")
        tool, arguments, expect = data["tool"], data.get("arguments", {}), data["expect"]
        if not (isinstance(tool, str) and isinstance(arguments, Mapping) and isinstance(expect, Mapping)):
            raise _bad("A verification's tool is a name, its arguments and what it expects are objects.")
        return cls(tool, arguments, expect)

    def as_dict(self) -> JsonObject:
        return {"tool": self.tool, "arguments": dict(self.arguments), "expect": dict(self.expect)}


def argument_of(expected: Any) -> Any:
    """The path in {"argument": path}; None for a plain value."""
    is_reference = isinstance(expected, Mapping) and expected.keys() == {"argument"}
    return expected["argument"] if is_reference else None


def _problem_of_verification(verification: Verification) -> str:
    if not verification.tool:
        return "names no tool"
    if not verification.expect:
        return "expects nothing, so it could not fail"
    wanted = [path for path in map(argument_of, verification.expect.values()) if path is not None]
    for path in [*verification.arguments.values(), *verification.expect, *wanted]:
        if problem := problem_of_path(path):
            return f"has the path {path!r}, which can not be read: {problem}"
        if "[*]" in path:
            return f"has the path {path!r}: [*] is no single value"
    return ""


def _bad(message: str) -> MeahError:
    return MeahError("E_CONFIG", message, hint="Correct the rule.", reason="bad_rule")


@dataclass(frozen=True)
class Rule:
    """One rule. The globs are over exact names; an empty group is every approver.

    Raises MeahError E_CONFIG for what could not be obeyed, such as an approval by nobody.
    """

    name: str
    effect: EffectName
    order: int = 100
    server: str = ANY
    tool: str = ANY
    except_tools: tuple[str, ...] = ()
    principal: str = ANY
    conditions: tuple[Condition, ...] = ()
    reason: str = ""
    owner: str = ""
    ttl_s: int | None = None
    approvals: int = 1
    group: str = ""
    verification: Verification | None = None
    enabled: bool = True

    def __post_init__(self) -> None:
        if problem := _problem_of_rule(self):
            raise _bad(f"Rule {self.name!r} {problem}.")

    def speaks_of(self, principal: str, server: str, tool: str) -> bool:
        """Whether its globs match, whatever the arguments."""
        return (
            self.enabled
            and self.names_tool(server, tool)
            and self.names_principal(principal)
            and not any(glob_matches(glob, tool) for glob in self.except_tools)
        )

    def names_tool(self, server: str, tool: str) -> bool:
        """Whether it is about this tool, exceptions aside."""
        return _names(self.server, server) and _names(self.tool, tool)

    def names_principal(self, principal: str) -> bool:
        return _names(self.principal, principal)

    def matches(self, subject: Subject) -> bool:
        return self.speaks_of(subject.principal, subject.server, subject.tool) and all(
            self.is_met(evaluate(condition, subject.arguments, subject.schema)) for condition in self.conditions
        )

    def is_met(self, truths: list[Truth]) -> bool:
        """What can not be told makes a strict rule match, and keeps an `allow` rule from matching."""
        return holds_surely(truths) if self.effect == ALLOW else holds_strictly(truths)

    def as_dict(self) -> JsonObject:
        """Everything that decides, for the policy's digest and for files."""
        return {
            "name": self.name,
            "order": self.order,
            "server": self.server,
            "tool": self.tool,
            "except": list(self.except_tools),
            "principal": self.principal,
            "conditions": [condition.as_dict() for condition in self.conditions],
            "effect": self.effect,
            "reason": self.reason,
            "owner": self.owner,
            "ttl_s": self.ttl_s,
            "approvals": self.approvals,
            "group": self.group,
            "verification": self.verification.as_dict() if self.verification else None,
            "enabled": self.enabled,
        }


def _problem_of_rule(rule: Rule) -> str:
    if not rule.name or rule.name.startswith(DEFAULT_RULE):
        return "needs a name of its own"
    if rule.effect not in _STRICTNESS:
        return f"has the unknown effect {rule.effect!r} (there are {', '.join(_STRICTNESS)})"
    if not all(isinstance(glob, str) and glob for glob in (rule.server, rule.tool, rule.principal, *rule.except_tools)):
        return "has an empty glob, which matches nothing (write * for everything)"
    if ANY in rule.except_tools:
        return "excepts every tool, so it speaks of none"
    if not 1 <= rule.approvals <= MAX_APPROVALS:
        return f"asks for {rule.approvals} approvals; it can ask for 1 to {MAX_APPROVALS}"
    if rule.ttl_s is not None and rule.ttl_s < 1:
        return "leaves no time to decide"
    return ""


@dataclass(frozen=True)
class Defaults:
    read: EffectName = "allow"
    write: EffectName = "require_approval"
    destructive: EffectName = "require_approval"

    def of(self, effect_class: str) -> EffectName:
        """A class that is not known is taken for the worst."""
        return self.as_dict().get(effect_class, self.destructive)

    def as_dict(self) -> dict[str, EffectName]:
        return {"read": self.read, "write": self.write, "destructive": self.destructive}


@dataclass(frozen=True)
class Policy:
    """`server_defaults` override the defaults for some classes of one server: {server: {class: effect}}."""

    rules: tuple[Rule, ...] = ()
    defaults: Defaults = Defaults()
    server_defaults: Mapping[str, Mapping[str, EffectName]] = field(default_factory=dict)
    digest: str = ""

    @classmethod
    def of(
        cls,
        rules: Iterable[Rule],
        defaults: Defaults | None = None,
        server_defaults: Mapping[str, Mapping[str, EffectName]] | None = None,
    ) -> Policy:
        """A policy with its rules in order and its digest computed. Raises MeahError E_CONFIG for an unknown effect."""
        ordered = tuple(sorted(rules, key=lambda rule: (rule.order, rule.name)))
        chosen, overrides = defaults or Defaults(), server_defaults or {}
        for effect in [*chosen.as_dict().values(), *(e for effects in overrides.values() for e in effects.values())]:
            if effect not in _STRICTNESS:
                raise _bad(f"A default has the unknown effect {effect!r} (there are {', '.join(_STRICTNESS)}).")
        whole = {
            "rules": [rule.as_dict() for rule in ordered],
            "defaults": chosen.as_dict(),
            "servers": {server: dict(effects) for server, effects in overrides.items()},
        }
        return cls(ordered, chosen, overrides, digest(_DIGEST_TAG, canonical_text(whole).encode()))

    def default(self, server: str, effect_class: str) -> EffectName:
        known = effect_class if effect_class in self.defaults.as_dict() else "destructive"
        return self.server_defaults.get(server, {}).get(known) or self.defaults.of(known)


@dataclass(frozen=True)
class Subject:
    """What is judged: who calls which tool, of which class, with which arguments under which pinned schema."""

    principal: str
    server: str
    tool: str
    effect_class: str
    arguments: Mapping[str, Any]
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Demand:
    """So many persons of that group; an empty group is every approver."""

    count: int
    group: str = ""


@dataclass(frozen=True)
class Verdict:
    """What the policy says of one call, and the rule that spoke."""

    effect: EffectName
    rule: str
    reason: str = ""
    ttl_s: int | None = None
    demands: tuple[Demand, ...] = ()
    verification: Verification | None = None
    note_required: bool = False
    policy_digest: str = ""

    def as_dict(self) -> JsonObject:
        """For the chain and the call's row."""
        data: JsonObject = {"effect": self.effect, "rule": self.rule, "policy": self.policy_digest}
        if self.reason:
            data["reason"] = self.reason
        if self.demands:
            data["demands"] = [{"count": demand.count, "group": demand.group} for demand in self.demands]
        return data


def judge(policy: Policy, subject: Subject) -> Verdict:
    """The verdict on one call."""
    matching = [rule for rule in policy.rules if rule.matches(subject)]
    if not matching:
        return _by_default(policy, subject)
    effect = strictest(rule.effect for rule in matching)
    speakers = [rule for rule in matching if rule.effect == effect]
    speaker = speakers[0]
    # A check is asked for by any rule that matches; those that decide come first, so that a laxer one hides none.
    checks = (rule.verification for rule in [*speakers, *matching] if rule.verification)
    return Verdict(
        effect=effect,
        rule=speaker.name,
        reason=speaker.reason,
        ttl_s=next((rule.ttl_s for rule in speakers if rule.ttl_s), None),
        demands=_demands(speakers) if effect == REQUIRE_APPROVAL else (),
        verification=next(checks, None) if effect != DENY else None,
        note_required=effect == REQUIRE_APPROVAL and subject.effect_class == "destructive",
        policy_digest=policy.digest,
    )


def _demands(rules: Iterable[Rule]) -> tuple[Demand, ...]:
    """What every rule asks for: of each group the most that any of them does."""
    most: dict[str, int] = {}
    for rule in rules:
        most[rule.group] = max(rule.approvals, most.get(rule.group, 0))
    return tuple(Demand(count, group) for group, count in most.items())


def _by_default(policy: Policy, subject: Subject) -> Verdict:
    effect = policy.default(subject.server, subject.effect_class)
    return Verdict(
        effect=effect,
        rule=f"{DEFAULT_RULE}{subject.effect_class}",
        demands=(Demand(1),) if effect == REQUIRE_APPROVAL else (),
        note_required=effect == REQUIRE_APPROVAL and subject.effect_class == "destructive",
        policy_digest=policy.digest,
    )


def strictest(effects: Iterable[EffectName]) -> EffectName:
    return max(effects, key=lambda effect: _STRICTNESS[effect])


def is_stricter(effect: str, than: str) -> bool:
    return _STRICTNESS[effect] > _STRICTNESS[than]


def posture(policy: Policy, *, principal: str, server: str, tool: str, effect_class: str) -> str:
    """What an agent is told of a tool before it calls: `allow`, or `allow, require_approval if amount > 100`."""
    speaking = [rule for rule in policy.rules if rule.speaks_of(principal, server, tool)]
    always = [rule.effect for rule in speaking if not rule.conditions]
    base = strictest(always) if always else policy.default(server, effect_class)
    # Beside a rule that always matches only stricter ones change the outcome; in place of a default any other does.
    sometimes = [rule for rule in speaking if rule.conditions and not (always and not is_stricter(rule.effect, base))]
    if all(rule.effect == base for rule in sometimes):
        return base
    parts = [f"{rule.effect} if {conditions_text(rule)}" for rule in sometimes]
    return ", ".join(dict.fromkeys([base, *parts]))


def conditions_text(rule: Rule) -> str:
    return " and ".join(condition.as_text() for condition in rule.conditions)


def _names(glob: str, name: str) -> bool:
    """`*` alone is every name, also one with a `/`: no caller and no tool slips past a rule by what it is called."""
    return glob == ANY or glob_matches(glob, name)


def glob_matches(glob: str, name: str) -> bool:
    """Exact and case-sensitive; `*` stands for any run of characters but `/`, everything else for itself."""
    return _glob(glob).fullmatch(name) is not None if ANY in glob else glob == name


@lru_cache(maxsize=4096)
def _glob(glob: str) -> re.Pattern[str]:
    """Linear in the name's length: each part between stars is taken where it first occurs, for good."""
    first, *others = (re.escape(part) for part in re.split(r"\*+", glob))
    last = others.pop()
    middle = "".join(f"(?>[^/]*?{part})" for part in others)
    return re.compile(f"{first}{middle}[^/]*{last}", re.DOTALL)
