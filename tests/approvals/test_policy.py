from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import pytest

from approvals.conditions import Condition
from approvals.policy import (
    Defaults,
    Demand,
    Policy,
    Rule,
    Subject,
    Verdict,
    Verification,
    glob_matches,
    is_stricter,
    judge,
    posture,
)
from core.errors import MeahError

SCHEMA = {
    "type": "object",
    "properties": {
        "amount": {"type": "number"},
        "items": {"type": "array", "items": {"properties": {"price": {"type": "number"}}}},
    },
}
BIG = Condition("amount", "gt", 100)
SMALL = Condition("amount", "lte", 100)


def subject(**changes: Any) -> Subject:
    plain = Subject("agent:claude", "crm", "issue_refund", "write", {"amount": 50}, SCHEMA)
    return replace(plain, **changes)


def verdict(*rules: Rule, defaults: Defaults | None = None, servers: Any = None, **changes: Any) -> Verdict:
    return judge(Policy.of(rules, defaults, servers), subject(**changes))


# -- globs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("glob", "name", "expected"),
    [
        ("get_ticket", "get_ticket", True),
        ("get_ticket", "Get_Ticket", False),
        ("get_ticket", "get_tickets", False),
        ("get_ticket", "xget_ticket", False),
        ("get_ticket", "get_ticket\n", False),
        ("get_*", "get_", True),
        ("get_*", "get_ticket", True),
        ("get_*", "GET_ticket", False),
        ("*", "", True),
        ("*", "anything at all", True),
        ("*", "a.b.c", True),
        ("*", "a/b", False),
        ("*/*", "a/b", True),
        ("*/*", "a/b/c", False),
        ("fs.*", "fs.read.all", True),
        ("fs.*", "fsx", False),
        ("fs.*", "fs/read", False),
        ("a*/c", "ab/c", True),
        ("a*/c", "a/b/c", False),
        ("*_ticket", "get_ticket", True),
        ("*tick*", "get_tickets", True),
        ("*a*a*", "aa", True),
        ("*a*a*", "a", False),
        ("a**b", "axxb", True),
        ("**", "x/y", False),
        ("get_[ab]", "get_a", False),
        ("get_[ab]", "get_[ab]", True),
        ("get_?", "get_a", False),
        ("get_?", "get_?", True),
        ("a.b", "axb", False),
        ("a+", "aa", False),
        ("(a|b)", "a", False),
        ("^a$", "a", False),
        ("", "", True),
        ("", "a", False),
        ("caf\u00e9", "cafe\u0301", False),
        ("get_*", "get_\n", True),
        ("delete", "\uff44elete", False),
        ("*ab/c*d", "xaab/cxd", True),
        ("*ab*b/c", "abb/c", True),
    ],
)
def test_globs(glob: str, name: str, expected: bool) -> None:
    assert glob_matches(glob, name) is expected


def test_globs_agree_with_trying_everything() -> None:
    """The linear matcher against the plainest definition, over all short globs and names."""

    def plainly(glob: str, name: str) -> bool:
        if not glob:
            return not name
        if glob[0] == "*":
            return plainly(glob[1:], name) or (bool(name) and name[0] != "/" and plainly(glob, name[1:]))
        return bool(name) and name[0] == glob[0] and plainly(glob[1:], name[1:])

    globs = ["".join(letters) for n in range(6) for letters in itertools.product("ab*/", repeat=n)]
    names = ["".join(letters) for n in range(5) for letters in itertools.product("ab/", repeat=n)]
    wrong = [(g, n) for g in globs[::3] for n in names[::2] if glob_matches(g, n) is not plainly(g, n)]
    assert wrong == []


def test_a_glob_full_of_stars_is_no_trap() -> None:
    begun = time.monotonic()
    assert not glob_matches("*a" * 60 + "*b", "a" * 20_000)
    assert time.monotonic() - begun < 2


def test_a_star_alone_is_everybody_and_every_tool() -> None:
    """Otherwise a client that calls itself `a/b` would slip past every rule that names no principal."""
    rule = Rule("no", "deny")
    assert verdict(rule, principal="agent:@scope/client", server="a/b", tool="c/d").effect == "deny"


# -- which rules match ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (Rule("r", "deny"), True),
        (Rule("r", "deny", server="crm"), True),
        (Rule("r", "deny", server="CRM"), False),
        (Rule("r", "deny", server="cr*", tool="issue_*"), True),
        (Rule("r", "deny", tool="delete_*"), False),
        (Rule("r", "deny", principal="agent:claude"), True),
        (Rule("r", "deny", principal="agent:*"), True),
        (Rule("r", "deny", principal="token:*"), False),
        (Rule("r", "deny", except_tools=("issue_refund",)), False),
        (Rule("r", "deny", except_tools=("get_*", "issue_*")), False),
        (Rule("r", "deny", except_tools=("get_*",)), True),
        (Rule("r", "deny", except_tools=("Issue_refund",)), True),
        (Rule("r", "deny", enabled=False), False),
        (Rule("r", "deny", conditions=(SMALL,)), True),
        (Rule("r", "deny", conditions=(BIG,)), False),
        (Rule("r", "deny", conditions=(SMALL, BIG)), False),
    ],
)
def test_a_rule_matches_by_all_that_it_names(rule: Rule, matches: bool) -> None:
    assert rule.matches(subject()) is matches
    assert (verdict(rule).effect == "deny") is matches


@pytest.mark.parametrize(
    "arguments", [{}, {"amount": None}, {"amount": "500"}, {"amount": True}, {"amount": [500]}, {"amount": {}}]
)
@pytest.mark.parametrize("condition", [BIG, SMALL, Condition("amount", "ne", 7), Condition("amount", "not_in", [7])])
def test_what_can_not_be_told_makes_strict_rules_match_and_allow_not(
    arguments: dict[str, Any], condition: Condition
) -> None:
    for effect in ("deny", "require_approval"):
        assert verdict(Rule("r", effect, conditions=(condition,)), arguments=arguments).effect == effect
    allow = verdict(Rule("r", "allow", conditions=(condition,)), arguments=arguments)
    assert (allow.effect, allow.rule) == ("require_approval", "default: write")


def test_a_path_that_nobody_knows_is_false_for_every_effect() -> None:
    condition = Condition("amnt", "gt", 1)
    for effect in ("deny", "require_approval", "allow"):
        assert verdict(Rule("r", effect, conditions=(condition,))).rule == "default: write"
        assert verdict(Rule("r", effect, conditions=(condition,)), schema=None).rule == "default: write"


@pytest.mark.parametrize(
    ("prices", "deny", "allow"),
    [([5, 500], True, False), ([5, 6], False, False), ([500, 600], True, True), ([], False, False)],
)
def test_a_path_over_elements(prices: list[int], deny: bool, allow: bool) -> None:
    condition = Condition("items[*].price", "gt", 100)
    arguments = {"items": [{"price": price} for price in prices]}
    assert Rule("r", "deny", conditions=(condition,)).matches(subject(arguments=arguments)) is deny
    assert Rule("r", "allow", conditions=(condition,)).matches(subject(arguments=arguments)) is allow


# -- precedence -----------------------------------------------------------------------------------------------------


def test_deny_beats_require_approval_beats_allow_in_every_order() -> None:
    effects = ("allow", "require_approval", "deny")
    for size in (1, 2, 3):
        for chosen in itertools.permutations(effects, size):
            rules = [Rule(effect, effect, order=number) for number, effect in enumerate(chosen)]
            strictest = max(chosen, key=effects.index)
            for given in itertools.permutations(rules):
                found = verdict(*given)
                assert (found.effect, found.rule) == (strictest, strictest)


def test_order_then_name_chooses_who_speaks() -> None:
    first = Rule("b", "deny", order=10, reason="first")
    assert verdict(Rule("a", "deny", order=20, reason="second"), first).reason == "first"
    assert verdict(Rule("c", "deny", order=10), first).rule == "b"


def test_time_to_live_and_verification_are_those_of_the_first_rule_that_has_one() -> None:
    check, other = Verification("get", {}, {"a": 1}), Verification("look", {}, {"b": 1})
    found = verdict(
        Rule("a", "require_approval", order=1),
        Rule("b", "require_approval", order=2, ttl_s=60, verification=check),
        Rule("c", "require_approval", order=3, ttl_s=5, verification=other),
    )
    assert (found.rule, found.ttl_s, found.verification) == ("a", 60, check)


def test_a_check_that_an_allow_rule_asks_for_stays_but_never_hides_a_stricter_rules_check() -> None:
    lax, real = Verification("lax", {}, {"a": 1}), Verification("real", {}, {"a": 1})
    allow = Rule("a", "allow", order=1, verification=lax)
    assert verdict(allow).verification == lax
    assert verdict(allow, Rule("b", "require_approval", order=2)).verification == lax
    assert verdict(allow, Rule("b", "require_approval", order=2, verification=real)).verification == real
    assert verdict(allow, Rule("b", "deny")).verification is None


def test_the_demands_of_every_matching_rule_must_be_met() -> None:
    found = verdict(
        Rule("a", "require_approval", order=1, approvals=1),
        Rule("b", "require_approval", order=2, approvals=2, group="finance"),
        Rule("c", "require_approval", order=3, approvals=3, group="finance"),
        Rule("d", "require_approval", order=4, approvals=2),
        Rule("e", "require_approval", order=5, approvals=9, group="legal", conditions=(BIG,)),
        Rule("f", "allow", order=0, approvals=7, group="nobody"),
    )
    assert found.demands == (Demand(2), Demand(3, "finance"))
    assert verdict(Rule("a", "deny", approvals=2)).demands == ()
    assert verdict(Rule("a", "allow", approvals=2)).demands == ()


def test_something_destructive_needs_a_note() -> None:
    hold = Rule("a", "require_approval")
    assert verdict(hold, effect_class="destructive").note_required
    assert verdict(effect_class="destructive").note_required
    assert not verdict(hold).note_required
    assert not verdict(Rule("a", "allow"), effect_class="destructive").note_required


# -- defaults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect_class", "effect"),
    [("read", "allow"), ("write", "require_approval"), ("destructive", "require_approval"), ("of", "require_approval")],
)
def test_the_shipped_defaults(effect_class: str, effect: str) -> None:
    found = verdict(effect_class=effect_class)
    assert (found.effect, found.rule) == (effect, f"default: {effect_class}")
    assert found.demands == ((Demand(1),) if effect == "require_approval" else ())


def test_one_deny_rule_and_no_other_leaves_the_rest_to_the_defaults() -> None:
    rule = Rule("no deletes", "deny", tool="delete_*")
    assert verdict(rule, effect_class="read", tool="get_ticket").effect == "allow"
    assert verdict(rule).effect == "require_approval"
    assert verdict(rule, tool="delete_customer").effect == "deny"


def test_a_server_overrides_some_defaults() -> None:
    servers = {"crm": {"write": "allow"}, "bank": {"read": "deny", "destructive": "deny"}}
    defaults = Defaults(read="require_approval", write="deny", destructive="deny")

    def of(server: str, effect_class: str) -> str:
        return verdict(defaults=defaults, servers=servers, server=server, effect_class=effect_class).effect

    assert [of("crm", name) for name in ("read", "write", "destructive")] == ["require_approval", "allow", "deny"]
    assert [of("bank", name) for name in ("read", "write", "destructive")] == ["deny", "deny", "deny"]
    assert of("elsewhere", "write") == "deny"
    assert verdict(servers={"crm": {"destructive": "deny"}}, effect_class="strange").effect == "deny"


def test_a_rule_replaces_a_default_in_both_directions() -> None:
    assert verdict(Rule("a", "allow")).effect == "allow"
    assert verdict(Rule("a", "require_approval"), effect_class="read").effect == "require_approval"


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "default: write"},
        {"effect": "permit"},
        {"effect": "Allow"},
        {"approvals": 0},
        {"approvals": -1},
        {"approvals": 11},
        {"ttl_s": 0},
        {"server": ""},
        {"tool": ""},
        {"principal": ""},
        {"except_tools": ("",)},
        {"except_tools": ("get_*", "*")},
        {"except_tools": (5,)},
    ],
)
def test_a_rule_that_could_not_be_obeyed_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(MeahError) as caught:
        Rule(**{"name": "r", "effect": "deny"} | changes)
    assert (caught.value.code, caught.value.reason) == ("E_CONFIG", "bad_rule")


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"tool": "get"},
        {"tool": "get", "expect": {}},
        {"tool": "", "expect": {"a": 1}},
        {"tool": 5, "expect": {"a": 1}},
        {"tool": "get", "expect": ["a"]},
        {"tool": "get", "expect": {"a": 1}, "more": 1},
        {"tool": "get", "expect": {"a..b": 1}},
        {"tool": "get", "expect": {"a[*]": 1}},
        {"tool": "get", "expect": {"a": {"argument": "x[*]"}}},
        {"tool": "get", "expect": {"a": {"argument": 5}}},
        {"tool": "get", "arguments": {"id": ""}, "expect": {"a": 1}},
        {"tool": "get", "arguments": {"id": 7}, "expect": {"a": 1}},
        {"tool": "get", "arguments": [], "expect": {"a": 1}},
    ],
)
def test_a_verification_that_could_show_nothing_is_refused(data: Any) -> None:
    with pytest.raises(MeahError):
        Verification.from_dict(data)


def test_a_verification_survives_being_written_down() -> None:
    data = {"tool": "get", "arguments": {"id": "ticket.id"}, "expect": {"a[0].b": {"argument": "x"}, "c": None}}
    assert Verification.from_dict(data).as_dict() == data


@pytest.mark.parametrize("defaults", [Defaults(write="nothing"), Defaults(read="")])  # type: ignore[arg-type]
def test_an_unknown_default_is_refused(defaults: Defaults) -> None:
    with pytest.raises(MeahError):
        Policy.of([], defaults)
    with pytest.raises(MeahError):
        Policy.of([], None, {"crm": {"read": "Allow"}})  # type: ignore[dict-item]


# -- digest and posture ---------------------------------------------------------------------------------------------


def test_the_digest_is_of_what_decides_and_of_nothing_else() -> None:
    a, b = Rule("a", "deny"), Rule("b", "allow", conditions=(Condition("x", "eq", 1),))
    whole = Policy.of([a, b]).digest
    assert len(whole) == 64
    assert Policy.of([b, a]).digest == whole
    assert verdict(a, b).policy_digest == whole
    others = [
        Policy.of([a]),
        Policy.of([a, replace(b, conditions=(Condition("x", "eq", True),))]),
        Policy.of([a, replace(b, conditions=(Condition("x", "eq", "1"),))]),
        Policy.of([a, replace(b, order=99)]),
        Policy.of([a, b], Defaults(read="deny")),
        Policy.of([a, b], None, {"crm": {"read": "deny"}}),
    ]
    assert len({whole, *(policy.digest for policy in others)}) == len(others) + 1


@pytest.mark.parametrize(
    ("rules", "effect_class", "expected"),
    [
        ([], "read", "allow"),
        ([], "write", "require_approval"),
        ([Rule("a", "deny")], "read", "deny"),
        ([Rule("a", "allow"), Rule("b", "deny")], "write", "deny"),
        ([Rule("a", "allow", principal="token:ci")], "write", "require_approval"),
        ([Rule("a", "allow", except_tools=("issue_*",))], "write", "require_approval"),
        (
            [Rule("a", "allow"), Rule("b", "require_approval", conditions=(BIG,))],
            "write",
            "allow, require_approval if amount > 100",
        ),
        ([Rule("a", "deny"), Rule("b", "require_approval", conditions=(BIG,))], "write", "deny"),
        ([Rule("a", "require_approval"), Rule("b", "allow", conditions=(SMALL,))], "write", "require_approval"),
        ([Rule("b", "allow", conditions=(SMALL,))], "write", "require_approval, allow if amount ≤ 100"),
        ([Rule("b", "require_approval", conditions=(SMALL,))], "write", "require_approval"),
        (
            [
                Rule("a", "allow", order=1, conditions=(SMALL,)),
                Rule("b", "require_approval", order=2, conditions=(Condition("note", "absent"), BIG)),
            ],
            "write",
            "require_approval, allow if amount ≤ 100, require_approval if note absent and amount > 100",
        ),
    ],
)
def test_the_posture_says_what_an_agent_can_expect(rules: list[Rule], effect_class: str, expected: str) -> None:
    said = posture(
        Policy.of(rules), principal="agent:claude", server="crm", tool="issue_refund", effect_class=effect_class
    )
    assert said == expected


def test_the_posture_is_that_of_the_principal_who_asks() -> None:
    policy = Policy.of([Rule("a", "deny", principal="agent:*"), Rule("b", "allow", principal="token:ci")])

    def of(principal: str) -> str:
        return posture(policy, principal=principal, server="crm", tool="x", effect_class="write")

    assert [of("agent:claude"), of("token:ci"), of("user:eva")] == ["deny", "allow", "require_approval"]


def test_stricter_is_an_order() -> None:
    assert is_stricter("deny", "require_approval")
    assert is_stricter("require_approval", "allow")
    assert not is_stricter("allow", "allow")


def test_a_verdict_says_for_the_chain_what_it_was() -> None:
    found = verdict(Rule("a", "require_approval", reason="money", approvals=2, group="finance"))
    assert found.as_dict() == {
        "effect": "require_approval",
        "rule": "a",
        "reason": "money",
        "demands": [{"count": 2, "group": "finance"}],
        "policy": found.policy_digest,
    }
