from __future__ import annotations

from typing import Any

from approvals.conditions import Condition
from approvals.explanation import Explanation, explain
from approvals.policy import Policy, Rule, Subject, judge

SCHEMA = {"properties": {"amount": {"type": "number"}, "items": {"items": {"properties": {"price": {}}}}}}
BIG = Condition("amount", "gt", 100)


def explained(*rules: Rule, **arguments: Any) -> Explanation:
    subject = Subject("agent:claude", "crm", "issue_refund", "write", arguments, SCHEMA)
    explanation = explain(Policy.of(rules), subject)
    assert explanation.verdict == judge(Policy.of(rules), subject)
    return explanation


def reasons(*rules: Rule, **arguments: Any) -> dict[str, tuple[bool, tuple[str, ...]]]:
    return {item.rule.name: (item.matched, item.why) for item in explained(*rules, **arguments).considered}


def test_every_rule_about_the_tool_says_why_it_matched_or_not() -> None:
    found = reasons(
        Rule("always", "allow", order=9),
        Rule("big", "require_approval", conditions=(BIG, Condition("note", "exists"))),
        Rule("ci", "allow", principal="token:*"),
        Rule("else", "deny", tool="delete_*"),
        Rule("but", "deny", except_tools=("issue_*",)),
        Rule("off", "deny", enabled=False),
        amount=500,
    )
    assert found == {
        "always": (True, ("it has no conditions",)),
        "big": (False, ("amount > 100: true", "note exists: false")),
        "ci": (False, ("it is about the principal token:*",)),
        "but": (False, ("it excepts issue_*",)),
        "off": (False, ("it is switched off",)),
    }


def test_what_can_not_be_told_is_explained_for_both_kinds_of_rule() -> None:
    found = reasons(Rule("a", "allow", conditions=(BIG,)), Rule("b", "deny", conditions=(BIG,)))
    assert found == {
        "b": (True, ("amount > 100: unknown (what can not be told counts as met)",)),
        "a": (False, ("amount > 100: unknown (what can not be told does not satisfy allow)",)),
    }


def test_elements_are_counted() -> None:
    rule = Rule("r", "deny", conditions=(Condition("items[*].price", "gt", 10),))
    items = [{"price": 5}, {"price": 50}, {"price": 60}]
    assert reasons(rule, items=items) == {"r": (True, ("items[*].price > 10: false 1×, true 2×",))}
    assert reasons(rule, items=[]) == {"r": (False, ("items[*].price > 10: there is no such element",))}


def test_rules_that_matched_come_first_each_in_their_order() -> None:
    rules = [
        Rule("late", "allow", order=9),
        Rule("early", "allow", order=1),
        Rule("not", "deny", order=0, conditions=(BIG,)),
    ]
    assert list(reasons(*rules, amount=5)) == ["early", "late", "not"]


def test_the_default_and_the_posture_are_told_too() -> None:
    explanation = explained(Rule("big", "deny", conditions=(BIG,)), amount=5)
    assert explanation.verdict.rule == "default: write"
    assert (explanation.default, explanation.posture) == ("require_approval", "require_approval, deny if amount > 100")
