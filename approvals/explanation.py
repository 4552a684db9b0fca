"""Why a call gets the verdict that it gets: every rule that had a say, and what it said. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .conditions import Condition, Truth, evaluate
from .policy import ALLOW, EffectName, Policy, Rule, Subject, Verdict, glob_matches, judge, posture


@dataclass(frozen=True)
class Considered:
    """A rule that is about this tool; `why` says what made it match, or what kept it from matching."""

    rule: Rule
    matched: bool
    why: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """`default` is what would apply if no rule matched."""

    verdict: Verdict
    considered: tuple[Considered, ...]
    default: EffectName
    posture: str


def explain(policy: Policy, subject: Subject) -> Explanation:
    """The verdict on one call, and how it came about."""
    about = [rule for rule in policy.rules if rule.names_tool(subject.server, subject.tool)]
    considered = [Considered(rule, rule.matches(subject), tuple(_reasons(rule, subject))) for rule in about]
    return Explanation(
        verdict=judge(policy, subject),
        considered=tuple(sorted(considered, key=lambda item: not item.matched)),
        default=policy.default(subject.server, subject.effect_class),
        posture=posture(
            policy,
            principal=subject.principal,
            server=subject.server,
            tool=subject.tool,
            effect_class=subject.effect_class,
        ),
    )


def _reasons(rule: Rule, subject: Subject) -> list[str]:
    if not rule.enabled:
        return ["it is switched off"]
    if not rule.names_principal(subject.principal):
        return [f"it is about the principal {rule.principal}"]
    if excepted := [glob for glob in rule.except_tools if glob_matches(glob, subject.tool)]:
        return [f"it excepts {', '.join(excepted)}"]
    if not rule.conditions:
        return ["it has no conditions"]
    return [_reason(rule, condition, subject) for condition in rule.conditions]


def _reason(rule: Rule, condition: Condition, subject: Subject) -> str:
    truths = evaluate(condition, subject.arguments, subject.schema)
    said = f"{condition.as_text()}: {_counted(truths)}"
    if Truth.UNKNOWN in truths:
        return f"{said} (what can not be told {'does not satisfy allow' if rule.effect == ALLOW else 'counts as met'})"
    return said


def _counted(truths: list[Truth]) -> str:
    """`true`, or `true 2×, unknown 1×` where the path leads to several values."""
    if not truths:
        return "there is no such element"
    counts = Counter(truth.value for truth in truths)
    if len(truths) == 1:
        return truths[0].value
    return ", ".join(f"{value} {count}×" for value, count in counts.items())
