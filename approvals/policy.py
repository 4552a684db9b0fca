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
from core.errors import JsonObject

from .conditions import Condition, evaluate, holds_strictly, holds_surely

EffectName = Literal["allow", "require_approval", "deny"]
ClassName = Literal["read", "write", "destructive"]

ALLOW: Final = "allow"
REQUIRE_APPROVAL: Final = "require_approval"
DENY: Final = "deny"
_STRICTNESS: Final[Mapping[str, int]] = {ALLOW: 0, REQUIRE_APPROVAL: 1, DENY: 2}
_DIGEST_TAG: Final = "meah/policy/v1"


@dataclass(frozen=True)
class Verification:
    """Read after write: call `tool` with arguments from the write's, and expect values in its structured answer.

    `arguments` maps the check's arguments to paths in the write's; `expect` maps paths in the check's answer to a
    value, or to {"argument": path} for what the write was told.
    """

    tool: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> JsonObject:
        return {"tool": self.tool, "arguments": dict(self.arguments), "expect": dict(self.expect)}


@dataclass(frozen=True)
class Rule:
    name: str
    effect: EffectName
    order: int = 100
    server: str = "*"
    tool: str = "*"
    except_tools: tuple[str, ...] = ()
    principal: str = "*"
    conditions: tuple[Condition, ...] = ()
    reason: str = ""
    owner: str = ""
    ttl_s: int | None = None
    approvals: int = 1
    group: str = ""
    verification: Verification | None = None
    enabled: bool = True

    def speaks_of(self, principal: str, server: str, tool: str) -> bool:
        """Whether its globs match, whatever the arguments."""
        return (
            self.enabled
            and glob_matches(self.server, server)
            and glob_matches(self.tool, tool)
            and glob_matches(self.principal, principal)
            and not any(glob_matches(glob, tool) for glob in self.except_tools)
        )

    def matches(self, subject: Subject) -> bool:
        if not self.speaks_of(subject.principal, subject.server, subject.tool):
            return False
        holds = holds_surely if self.effect == ALLOW else holds_strictly
        return all(holds(evaluate(condition, subject.arguments, subject.schema)) for condition in self.conditions)

    def as_dict(self) -> JsonObject:
        """Everything that decides, for the policy's digest and for files."""
        return {
            "name": self.name,
            "effect": self.effect,
            "order": self.order,
            "server": self.server,
            "tool": self.tool,
            "except": list(self.except_tools),
            "principal": self.principal,
            "conditions": [condition.as_dict() for condition in self.conditions],
            "reason": self.reason,
            "owner": self.owner,
            "ttl_s": self.ttl_s,
            "approvals": self.approvals,
            "group": self.group,
            "verification": self.verification.as_dict() if self.verification else None,
            "enabled": self.enabled,
        }


@dataclass(frozen=True)
class Defaults:
    read: EffectName = "allow"
    write: EffectName = "require_approval"
    destructive: EffectName = "require_approval"

    def of(self, effect_class: str) -> EffectName:
        effect: EffectName = getattr(self, effect_class)
        return effect


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
        """A policy with its rules in order and its digest computed."""
        ordered = tuple(sorted(rules, key=lambda rule: (rule.order, rule.name)))
        chosen, overrides = defaults or Defaults(), server_defaults or {}
        whole = {
            "rules": [rule.as_dict() for rule in ordered],
            "defaults": vars(chosen),
            "servers": {server: dict(effects) for server, effects in overrides.items()},
        }
        return cls(ordered, chosen, overrides, digest(_DIGEST_TAG, canonical_text(whole).encode()))

    def default(self, server: str, effect_class: str) -> EffectName:
        return self.server_defaults.get(server, {}).get(effect_class) or self.defaults.of(effect_class)


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
    demands = tuple(dict.fromkeys(Demand(rule.approvals, rule.group) for rule in speakers))
    return Verdict(
        effect=effect,
        rule=speaker.name,
        reason=speaker.reason,
        ttl_s=speaker.ttl_s,
        demands=demands if effect == REQUIRE_APPROVAL else (),
        verification=next((rule.verification for rule in matching if rule.verification), None),
        note_required=effect == REQUIRE_APPROVAL and subject.effect_class == "destructive",
        policy_digest=policy.digest,
    )


def _by_default(policy: Policy, subject: Subject) -> Verdict:
    effect = policy.default(subject.server, subject.effect_class)
    return Verdict(
        effect=effect,
        rule=f"default: {subject.effect_class}",
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
    parts: list[str] = [base]
    for rule in speaking:
        # Beside a rule that always matches only stricter ones can change the outcome; beside a default any other can.
        if rule.conditions and (is_stricter(rule.effect, base) if always else rule.effect != base):
            parts.append(f"{rule.effect} if {' and '.join(condition.as_text() for condition in rule.conditions)}")
    return ", ".join(dict.fromkeys(parts))


def glob_matches(glob: str, name: str) -> bool:
    """Exact and case-sensitive; `*` stands for any run of characters but `/`, everything else for itself."""
    return _glob(glob).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def _glob(glob: str) -> re.Pattern[str]:
    # Runs of stars are one star: without this a hostile pattern could make the match slow.
    return re.compile("[^/]*".join(re.escape(part) for part in re.split(r"\*+", glob)), re.DOTALL)
