from __future__ import annotations

from typing import Any

import pytest

from approvals.conditions import Condition
from approvals.policy import Defaults, Policy, Rule, Verification
from approvals.policy_check import Finding, KnownTool, check

REFUND = {"properties": {"amount": {"type": "number"}, "customer": {"properties": {"id": {}}}}}
TICKET = {"properties": {"ticket_id": {}, "status": {}}}
TOOLS = [
    KnownTool("crm", "get_ticket", "read", {"properties": {"ticket_id": {}}}),
    KnownTool("crm", "update_ticket", "write", TICKET),
    KnownTool("crm", "issue_refund", "write", REFUND),
    KnownTool("crm", "delete_customer", "destructive", {"properties": {}}),
    KnownTool("files", "write/all", "write", None),
]
EVERYTHING = Rule("everything", "allow", order=900)
BIG = Condition("amount", "gt", 100)


def findings(*rules: Rule, approvers: dict[str, int] | None = None, tools: Any = TOOLS) -> list[Finding]:
    groups = {"": 3} | (approvers or {})
    return [item for item in check(Policy.of(rules), tools, groups.get) if not item.is_note]


def told(*rules: Rule, **options: Any) -> list[tuple[str, str]]:
    return [(item.kind, item.rule) for item in findings(*rules, **options)]


def test_a_sensible_policy_has_nothing_to_mend() -> None:
    assert (
        told(
            Rule("reads", "allow", tool="get_*"),
            Rule("updates", "require_approval", tool="update_ticket", approvals=3),
            Rule("refunds", "require_approval", tool="issue_refund", conditions=(BIG,)),
            Rule("small refunds", "allow", tool="issue_refund"),
            Rule("deletes", "deny", tool="delete_*"),
            Rule("files", "deny", server="files"),
        )
        == []
    )


@pytest.mark.parametrize(
    ("rule", "hint"),
    [
        (Rule("r", "deny", server="crn", tool="get_ticket"), "crm/get_ticket"),
        (Rule("r", "deny", server="crm", tool="Get_Ticket"), "crm/get_ticket"),
        (Rule("r", "deny", server="crm", tool="get_tickets"), "crm/get_ticket"),
        (Rule("r", "deny", server="bank"), ""),
        (Rule("r", "deny", tool="delete_customer", except_tools=("delete_*",)), ""),
        (Rule("r", "deny", server="files", tool="write*"), ""),
    ],
)
def test_a_rule_that_matches_no_known_tool(rule: Rule, hint: str) -> None:
    (found,) = findings(rule)
    assert (found.kind, found.rule) == ("no_tool", "r")
    assert (f"Did you mean {hint}?" in found.message) == bool(hint)


def test_a_rule_that_is_switched_off_is_not_looked_at() -> None:
    assert told(Rule("r", "deny", server="bank", enabled=False, conditions=(Condition("x", "eq", 1),))) == []


def test_an_exception_that_excepts_nothing() -> None:
    assert told(Rule("r", "allow", server="crm", except_tools=("delte_*", "get_*"))) == [("no_exception", "r")]


@pytest.mark.parametrize(
    ("rule", "shadows", "shadowed"),
    [
        (Rule("r", "allow", tool="issue_refund"), [Rule("s", "deny")], True),
        (Rule("r", "allow", tool="issue_refund"), [Rule("s", "require_approval", server="crm")], True),
        (Rule("r", "require_approval", tool="issue_refund"), [Rule("s", "deny", tool="*_refund")], True),
        (Rule("r", "require_approval", tool="issue_refund"), [Rule("s", "require_approval")], False),
        (Rule("r", "deny", tool="issue_refund"), [Rule("s", "allow")], False),
        (Rule("r", "allow", tool="issue_refund"), [Rule("s", "deny", conditions=(BIG,))], False),
        (Rule("r", "allow", tool="issue_refund", conditions=(BIG,)), [Rule("s", "deny")], True),
        (
            Rule("r", "allow", tool="issue_refund", conditions=(BIG, Condition("customer.id", "exists"))),
            [Rule("s", "deny", tool="issue_refund", conditions=(BIG,))],
            True,
        ),
        (
            Rule("r", "allow", tool="issue_refund", conditions=(Condition("amount", "eq", True),)),
            [Rule("s", "deny", tool="issue_refund", conditions=(Condition("amount", "eq", 1),))],
            False,
        ),
        (Rule("r", "allow", tool="issue_refund"), [Rule("s", "deny", principal="agent:claude")], False),
        (
            Rule("r", "allow", tool="issue_refund", principal="agent:claude"),
            [Rule("s", "deny", principal="agent:*")],
            True,
        ),
        (
            Rule("r", "allow", tool="issue_refund", principal="agent:*"),
            [Rule("s", "deny", principal="agent:c*")],
            False,
        ),
        (Rule("r", "allow", tool="*_*", server="crm"), [Rule("s", "deny", tool="get_*")], False),
        (
            Rule("r", "allow", tool="*_ticket"),
            [Rule("s", "deny", tool="get_*"), Rule("t", "require_approval", tool="update_*")],
            True,
        ),
        (
            Rule("r", "allow", tool="*_ticket"),
            [Rule("s", "deny", tool="*_ticket", except_tools=("get_ticket",))],
            False,
        ),
    ],
)
def test_a_rule_that_a_stricter_one_shadows(rule: Rule, shadows: list[Rule], shadowed: bool) -> None:
    found = [item for item in findings(rule, *shadows) if item.kind == "shadowed"]
    assert [item.rule for item in found] == (["r"] if shadowed else [])
    assert all(shadow.name in found[0].message for shadow in shadows if shadowed)


def test_a_condition_on_an_argument_that_a_tool_does_not_have() -> None:
    rule = Rule("r", "deny", server="crm", except_tools=("delete_*",), conditions=(BIG,))
    (found,) = findings(rule)
    assert (found.kind, found.rule) == ("undeclared", "r")
    assert "amount > 100" in found.message
    assert "crm/get_ticket, crm/update_ticket has no argument amount" in found.message
    typo = Rule("r", "deny", tool="issue_refund", conditions=(Condition("customer.ID", "eq", "C-1"),))
    assert told(typo) == [("undeclared", "r")]
    presence = Rule("r", "deny", tool="issue_refund", conditions=(Condition("note", "absent"),))
    assert told(presence) == [("undeclared", "r")]
    assert told(Rule("r", "deny", server="files", conditions=(BIG,))) == []


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (Rule("r", "deny", tool="get_t\u0456cket"), "CYRILLIC SMALL LETTER BYELORUSSIAN-UKRAINIAN I"),
        (Rule("r", "deny", server="\uff43rm"), "FULLWIDTH LATIN SMALL LETTER C"),
        (Rule("r", "deny", principal="agent:claude\u200b"), "ZERO WIDTH SPACE"),
        (Rule("r", "deny", except_tools=("gét_*",)), "LATIN SMALL LETTER E WITH ACUTE"),
        (
            Rule("r", "deny", tool="update_ticket", conditions=(Condition("status", "eq", "\uff43losed"),)),
            "FULLWIDTH LATIN SMALL LETTER C",
        ),
        (
            Rule("r", "deny", tool="update_ticket", conditions=(Condition("status", "in", ["a", "b\u202e"]),)),
            "RIGHT-TO-LEFT OVERRIDE",
        ),
    ],
)
def test_characters_that_look_like_others_are_named(rule: Rule, name: str) -> None:
    found = [item for item in findings(rule) if item.kind == "lookalike"]
    assert len(found) == 1
    assert name in found[0].message
    assert not any(hidden in found[0].message for hidden in "\u200b\u202e")


def test_plain_text_of_any_language_in_a_value_is_no_lookalike() -> None:
    rule = Rule("r", "deny", tool="update_ticket", conditions=(Condition("status", "eq", "geschlossen: größer"),))
    assert told(rule) == []


@pytest.mark.parametrize(
    ("rule", "approvers", "says"),
    [
        (Rule("r", "require_approval", group="finance"), {}, "does not exist"),
        (Rule("r", "require_approval", group="finance"), {"finance": 0}, "0 of the group finance"),
        (Rule("r", "require_approval", group="finance", approvals=3), {"finance": 2}, "asks for 3"),
        (Rule("r", "require_approval", approvals=4), {}, "3 users can decide"),
        (Rule("r", "require_approval", group="finance", approvals=2), {"finance": 2}, ""),
        (Rule("r", "deny", group="finance"), {}, ""),
        (Rule("r", "require_approval"), {"": 0}, "approvals.decide_approval"),
    ],
)
def test_demands_that_nobody_can_meet(rule: Rule, approvers: dict[str, int], says: str) -> None:
    found = findings(rule, approvers=approvers)
    assert [item.kind for item in found] == (["no_approver"] if says else [])
    assert not says or says in found[0].message


@pytest.mark.parametrize(
    ("check_by", "says"),
    [
        (Verification("get_ticket", {"ticket_id": "ticket_id"}, {"status": {"argument": "status"}}), []),
        (Verification("get_tickets", {}, {"a": 1}), ["crm has no tool get_tickets"]),
        (Verification("issue_refund", {"amount": "status"}, {"a": 1}), ["crm/issue_refund is no read but write"]),
        (Verification("get_ticket", {"id": "ticket_id"}, {"a": 1}), ["crm/get_ticket has no argument id"]),
        (Verification("get_ticket", {"ticket_id": "id"}, {"a": 1}), ["crm/update_ticket has no argument id"]),
        (
            Verification("get_ticket", {"ticket_id": "ticket_id"}, {"a": {"argument": "state"}}),
            ["crm/update_ticket has no argument state"],
        ),
    ],
)
def test_a_verification_that_can_not_work(check_by: Verification, says: list[str]) -> None:
    rule = Rule("r", "require_approval", tool="update_ticket", verification=check_by)
    found = findings(rule)
    assert [item.kind for item in found] == ["verification"] * len(says)
    assert all(text in item.message for text, item in zip(says, found, strict=True))


def test_tools_that_no_rule_speaks_of_are_noted_with_what_they_get() -> None:
    policy = Policy.of([Rule("r", "deny", server="crm", except_tools=("get_*",))], Defaults(read="deny"))
    notes = [item for item in check(policy, TOOLS, lambda group: 1) if item.is_note]
    assert [(item.kind, item.message) for item in notes] == [
        ("no_rule", "crm/get_ticket is matched by no rule: as read it gets deny by default."),
        ("no_rule", "files/write/all is matched by no rule: as write it gets require_approval by default."),
    ]


def test_a_rule_for_everything_covers_every_tool() -> None:
    assert check(Policy.of([EVERYTHING]), TOOLS, lambda group: 1) == []
