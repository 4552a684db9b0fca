"""What must hold of every policy, tried on thousands of random ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from approvals.conditions import Condition
from approvals.policy import Defaults, Policy, Rule, Subject, Verdict, Verification, is_stricter, judge

POLICIES = 10_000
EFFECTS: Any = ("allow", "require_approval", "deny")
CLASSES = ("read", "write", "destructive")
NAMES = ("crm", "bank", "a.b", "x/y")
TOOLS = ("get_ticket", "issue_refund", "delete_customer", "fs/write", "a.b.c")
PRINCIPALS = ("agent:claude", "token:ci", "user:eva", "agent:@x/y")
GLOBS = ("*_*", "get_*", "issue_refund", "*t*", "a.*", "crm", "bank", "*/*", "no[pe]")
VALUES: tuple[Any, ...] = (0, 1, 100, 2.5, -1, "a", "get", "", True, False, None, [], [1], ["a"], {}, {"k": 1})
PATHS = ("amount", "note", "customer.id", "items[*].price", "items[0]", "ghost", "tags[*]")
SCHEMA = {
    "type": "object",
    "properties": {
        "amount": {"type": "number"},
        "note": {"type": "string"},
        "customer": {"properties": {"id": {"type": "string"}}},
        "items": {"items": {"properties": {"price": {"type": "number"}}}},
        "tags": {"items": {"type": "string"}},
    },
}


def assembled(rules: Iterable[Rule], like: Policy | None = None) -> Policy:
    """`Policy.of` without its digest, which is most of its cost."""
    like = like or Policy()
    ordered = tuple(sorted(rules, key=lambda rule: (rule.order, rule.name)))
    return Policy(ordered, like.defaults, like.server_defaults)


class Maker:
    """Random policies and calls, the same for the same seed; rules are dealt from a large random stock."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.stock = [self.rule(f"r{number}") for number in range(3_000)]
        self.allowing = [rule for rule in self.stock if rule.effect == "allow"]
        self.strict = [rule for rule in self.stock if rule.effect != "allow"]

    def condition(self) -> Condition:
        op = self.pick.choice(("eq", "ne", "lt", "lte", "gt", "gte", "in", "not_in", "matches", "contains", "exists"))
        op = self.pick.choice((op, "absent", "starts_with")) if self.pick.random() < 0.2 else op
        return Condition(self.pick.choice(PATHS), op, self._wanted(op))

    def _wanted(self, op: str) -> Any:
        if op in ("exists", "absent"):
            return None
        if op in ("lt", "lte", "gt", "gte"):
            return self.pick.choice((0, 1, 100, 2.5, -1))
        if op in ("in", "not_in"):
            return self.pick.sample(VALUES, self.pick.randint(1, 3))
        if op in ("matches", "starts_with"):
            return self.pick.choice(("a.*", "", "get", ".*"))
        return self.pick.choice(VALUES)

    def rule(self, name: str) -> Rule:
        pick = self.pick
        values: dict[str, Any] = {
            "order": pick.randint(0, 5),
            "server": pick.choice(("*",) * 20 + GLOBS + NAMES),
            "tool": pick.choice(("*",) * 20 + GLOBS + TOOLS),
            "principal": pick.choice(("*", "*", "*", "agent:*", "token:ci", "*:*")),
            "except_tools": tuple(pick.sample(("get_*", "a.b*", "delete_customer"), pick.choice((0, 0, 0, 1, 2)))),
            "conditions": tuple(self.condition() for _ in range(pick.choice((0, 0, 0, 1, 2)))),
            "approvals": pick.randint(1, 3),
            "group": pick.choice(("", "", "finance", "legal")),
            "ttl_s": pick.choice((None, 60, 3600)),
            "verification": pick.choice((None, None, Verification("get_ticket", {}, {"a": pick.randint(0, 3)}))),
            "enabled": pick.random() < 0.95,
        }
        return Rule(name, pick.choice(EFFECTS), **values)

    def added(self, stock: list[Rule]) -> Rule:
        return replace(self.pick.choice(stock), name="added", order=self.pick.choice((0, 3, 99)))

    def policy(self) -> Policy:
        rules = self.pick.sample(self.stock, self.pick.randint(0, 9))
        defaults = Defaults(*(self.pick.choice(EFFECTS) for _ in CLASSES))
        servers = {name: {self.pick.choice(CLASSES): self.pick.choice(EFFECTS)} for name in self.pick.sample(NAMES, 1)}
        return assembled(rules, Policy((), defaults, servers))

    def subject(self) -> Subject:
        pick = self.pick
        arguments: dict[str, Any] = {}
        for name in ("amount", "note", "customer", "items", "tags", "other"):
            if pick.random() < 0.6:
                arguments[name] = self._argument(name)
        schema = pick.choice((SCHEMA, SCHEMA, None, {}))
        who = (pick.choice(PRINCIPALS), pick.choice(NAMES), pick.choice(TOOLS), pick.choice(CLASSES))
        return Subject(*who, arguments, schema)

    def _argument(self, name: str) -> Any:
        if self.pick.random() < 0.3:
            return self.pick.choice(VALUES)
        if name == "customer":
            return {"id": self.pick.choice(VALUES)}
        if name == "items":
            return [{"price": self.pick.choice(VALUES)} for _ in range(self.pick.randint(0, 3))]
        return self.pick.choice(VALUES)


def with_rule(policy: Policy, rule: Rule) -> Policy:
    return assembled([*policy.rules, rule], policy)


def by_a_rule(verdict: Verdict) -> bool:
    return not verdict.rule.startswith("default: ")


def test_an_added_allow_rule_never_loosens_what_a_rule_decided() -> None:
    maker = Maker(1)
    tally = Counter[str]()
    for _ in range(POLICIES):
        policy, call = maker.policy(), maker.subject()
        before = judge(policy, call)
        after = judge(with_rule(policy, maker.added(maker.allowing)), call)
        if by_a_rule(before) and before.effect != "allow":
            assert replace(after, verification=None) == replace(before, verification=None)
            deciding = [rule for rule in policy.rules if rule.effect == before.effect and rule.matches(call)]
            assert after.verification == before.verification or not any(rule.verification for rule in deciding)
            tally[f"held back: {before.effect}"] += 1
        elif not by_a_rule(before) and after.effect != before.effect:
            tally["replaced a default"] += 1
    assert all(tally[kind] > POLICIES / 10 for kind in ("held back: deny", "held back: require_approval"))
    assert tally["replaced a default"] > POLICIES / 50
    print(f"{POLICIES} policies, {dict(tally)}")


def test_an_added_deny_without_conditions_always_denies() -> None:
    maker = Maker(2)
    for number in range(POLICIES):
        call = maker.subject()
        named = maker.pick.random() < 0.5
        globs = {"server": call.server, "tool": call.tool, "principal": call.principal} if named else {}
        rule = Rule("added", "deny", order=number % 7, **globs)
        assert judge(with_rule(maker.policy(), rule), call).effect == "deny"


def test_an_added_strict_rule_never_loosens_a_rule_and_never_drops_a_demand() -> None:
    maker = Maker(3)
    for _ in range(POLICIES // 2):
        policy, call = maker.policy(), maker.subject()
        before = judge(policy, call)
        after = judge(with_rule(policy, maker.added(maker.strict)), call)
        if by_a_rule(before):
            assert not is_stricter(before.effect, after.effect)
        if by_a_rule(before) and before.effect == after.effect:
            most = {demand.group: demand.count for demand in after.demands}
            assert all(most[demand.group] >= demand.count for demand in before.demands)


def test_the_order_in_which_rules_are_given_decides_nothing() -> None:
    maker = Maker(4)
    for _ in range(POLICIES // 20):
        policy, call = maker.policy(), maker.subject()
        shuffled = maker.pick.sample(policy.rules, len(policy.rules))
        again = judge(Policy.of(shuffled, policy.defaults, policy.server_defaults), call)
        assert replace(again, policy_digest="") == judge(policy, call)


def test_order_numbers_never_change_the_effect() -> None:
    maker = Maker(5)
    for _ in range(POLICIES // 4):
        policy, call = maker.policy(), maker.subject()
        moved = [replace(rule, order=maker.pick.randint(0, 9)) for rule in policy.rules]
        again = judge(assembled(moved, policy), call)
        before = judge(policy, call)
        assert again.effect == before.effect
        assert set(again.demands) == set(before.demands)


@pytest.mark.parametrize("effect", ["deny", "require_approval"])
def test_taking_an_argument_away_or_spoiling_it_never_escapes_a_strict_rule(effect: Any) -> None:
    """For declared paths without wildcards: who hides a value is treated as if it were the worst."""
    maker = Maker(6)
    plain = [path for path in PATHS if "[" not in path and path != "ghost"]
    for _ in range(POLICIES // 2):
        condition = maker.condition()
        if condition.path not in plain or condition.op in ("exists", "absent"):
            continue
        rule = Rule("r", effect, conditions=(condition,))
        call = replace(maker.subject(), schema=SCHEMA)
        gone = {name: value for name, value in call.arguments.items() if name != condition.path.split(".")[0]}
        assert rule.matches(replace(call, arguments=gone))
