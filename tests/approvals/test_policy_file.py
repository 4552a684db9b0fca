from __future__ import annotations

from typing import Any

import pytest

from approvals import models
from approvals.conditions import OPERATORS, Condition
from approvals.policy import Defaults, Rule, Verification
from approvals.policy_file import _File, _Rule, loads, to_yaml
from approvals.policy_yaml import MAX_BYTES
from core.errors import MeahError
from tests.approvals.test_policy_properties import Maker

WHOLE = Rule(
    "whole: 'odd' \u202ename",
    "require_approval",
    order=7,
    server="crm",
    tool="issue_*",
    except_tools=("issue_note", "*_x"),
    principal="agent:*",
    conditions=(Condition("amount", "gt", 1e-7), Condition("note", "exists"), Condition("to", "in", ["no", 1, None])),
    reason="yes",
    owner="eva\n& co",
    ttl_s=600,
    approvals=2,
    group="finance",
    verification=Verification("get", {"id": "id"}, {"amount": {"argument": "amount"}, "state": "010"}),
)


def problems(text: str) -> list[str]:
    with pytest.raises(MeahError) as caught:
        loads(text.encode())
    assert (caught.value.code, caught.value.reason) == ("E_CONFIG", "policy_file")
    told: list[str] = caught.value.details["problems"]
    return told


def test_a_policy_survives_being_written_and_read() -> None:
    rules = [WHOLE, Rule("off", "deny", enabled=False), Rule("bare", "allow")]
    found = loads(to_yaml(rules, Defaults("deny", "allow", "deny")).encode())
    assert list(found.rules.values()) == rules
    assert found.defaults == {"read": "deny", "write": "allow", "destructive": "deny"}


def test_a_thousand_random_rules_survive_too() -> None:
    rules = Maker(7).stock[:1000]
    assert [rule.as_dict() for rule in loads(to_yaml(rules, Defaults()).encode()).rules.values()] == [
        rule.as_dict() for rule in rules
    ]


def test_the_file_explains_itself_and_leaves_out_what_goes_without_saying() -> None:
    text = to_yaml([Rule("bare", "allow")], Defaults())
    head, _, body = text.partition("version: 1\n")
    assert all(line.startswith("#") for line in head.splitlines())
    assert all(
        word in head for word in (*OPERATORS, *(known.alias or name for name, known in _Rule.model_fields.items()))
    )
    assert body.endswith(
        "rules:\n\n  - name: bare\n    effect: allow\n    order: 100\n    server: '*'\n    tool: '*'\n"
    )


def test_a_policy_without_rules_can_be_written_and_read() -> None:
    assert loads(to_yaml([], Defaults()).encode()).rules == {}


def test_defaults_that_are_not_mentioned_are_not_there() -> None:
    assert loads(b"version: 1\nrules: []\ndefaults:\n  write: deny\n").defaults == {"write": "deny"}
    assert loads(b"version: 1\nrules: []\n").defaults == {}


def rule_with(line: str) -> str:
    return f"version: 1\nrules:\n  - name: x\n    effect: deny\n    {line}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", ["The file must hold an object with version and rules."]),
        ("", ["The file must hold an object with version and rules."]),
        ("version: 1\n", ["rules (line 1) is missing."]),
        ("rules: []\n", ["version (line 1) is missing."]),
        ("version: 2\nrules: []", ["version (line 1) is wrong: it should be less than or equal to 1."]),
        ("version: true\nrules: []", ["version (line 1) is wrong: it should be a valid integer."]),
        ("version: '1'\nrules: []", ["version (line 1) is wrong: it should be a valid integer."]),
        ("version: 1\nrules:\n", ["rules (line 2) is wrong: it should be a valid list."]),
        ("version: 1\nruls: []\nrules: []", ["ruls (line 2) is not known. Did you mean rules?"]),
        ("version: 1\nrules: []\nkey: x", ["key (line 3) is not known. Known are: version, defaults, rules."]),
        (
            "version: 1\nrules: []\ndefaults:\n  writes: deny",
            ["defaults.writes (line 4) is not known. Did you mean write?"],
        ),
        (
            "version: 1\nrules:\n  - nmae: x\n    effect: alow\n    Excpet: []\n",
            [
                "rules[0].name (line 3) is missing.",
                "rules[0].effect (line 4) is wrong: it should be 'allow', 'require_approval' or 'deny'.",
                "rules[0].nmae (line 3) is not known. Did you mean name?",
                "rules[0].Excpet (line 5) is not known. Did you mean except?",
            ],
        ),
        (rule_with("except_tools: []"), ["rules[0].except_tools (line 5) is not known. Did you mean except?"]),
        (rule_with("excepted: []"), ["rules[0].excepted (line 5) is not known. Did you mean except?"]),
        (rule_with("order: '5'"), ["rules[0].order (line 5) is wrong: it should be a valid integer."]),
        (rule_with("order: 1.0"), ["rules[0].order (line 5) is wrong: it should be a valid integer."]),
        (rule_with("order: -1"), ["rules[0].order (line 5) is wrong: it should be greater than or equal to 0."]),
        (rule_with("approvals: 0"), ["rules[0].approvals (line 5) is wrong: it should be greater than or equal to 1."]),
        (rule_with("approvals: 11"), ["rules[0].approvals (line 5) is wrong: it should be less than or equal to 10."]),
        (rule_with("enabled: yes"), ["rules[0].enabled (line 5) is wrong: it should be a valid boolean."]),
        (rule_with("reason: 5"), ["rules[0].reason (line 5) is wrong: it should be a valid string."]),
        (rule_with("except: get_*"), ["rules[0].except (line 5) is wrong: it should be a valid list."]),
        (rule_with("conditions:"), ["rules[0].conditions (line 5) is wrong: it should be a valid list."]),
        (rule_with("conditions: [{path: a}]"), ["rules[0].conditions[0].op (line 5) is missing."]),
        (
            rule_with("conditions: [{path: a, op: eq, vlaue: 1}]"),
            ["rules[0].conditions[0].vlaue (line 5) is not known. Did you mean value?"],
        ),
        (
            rule_with("conditions: [{path: a, op: eq}]"),
            ["rules[0] (line 3) (x) can not be used: The condition on 'a' has no value to compare with."],
        ),
        (
            rule_with("conditions: [{path: a, op: gt, value: '1'}]"),
            ["rules[0] (line 3) (x) can not be used: The condition on 'a' compares with gt, which takes a number."],
        ),
        (
            rule_with("verification: {tool: a, expects: {}}"),
            [
                "rules[0].verification.expect (line 5) is missing.",
                "rules[0].verification.expects (line 5) is not known. Did you mean expect?",
            ],
        ),
        (
            rule_with("verification: {tool: a, expect: {}}"),
            ["rules[0] (line 3) (x) can not be used: The verification by 'a' expects nothing, so it could not fail."],
        ),
        (
            rule_with("server: ''"),
            ["rules[0].server (line 5) is wrong: String should have at least 1 character."],
        ),
        (
            "version: 1\nrules:\n  - {name: x, effect: deny}\n  - {name: x, effect: allow}\n",
            ["rules[1] (line 4) has the name 'x', which another rule has already."],
        ),
        ("version: 1\nrules: [5]", ["rules[0] (line 2) is wrong: it should be a valid dictionary: Rule."]),
        ("a: 1\na: 2", ["The file (line 2) the key 'a' stands here twice."]),
        ("a: !!python/name:os.system", ["The file (line 1) tags are not accepted."]),
    ],
)
def test_what_is_wrong_is_named_with_its_path_its_line_and_a_way_out(text: str, told: list[str]) -> None:
    assert problems(text) == told


def test_several_problems_are_told_at_once() -> None:
    text = "version: 1\nrules:\n" + "".join(f"  - {{name: r{number}, effect: no}}\n" for number in range(30))
    with pytest.raises(MeahError) as caught:
        loads(text.encode())
    assert "29 more problems" in caught.value.message
    assert len(caught.value.details["problems"]) == 20


@pytest.mark.parametrize("data", [b"\xff\xfe", b"version: 1\nrules: []\n" + b"#" * MAX_BYTES, b"a: \x00"])
def test_what_is_no_text_of_a_sensible_size_is_refused(data: bytes) -> None:
    with pytest.raises(MeahError):
        loads(data)


def test_the_files_limits_are_those_of_the_columns() -> None:
    """SQLite keeps a text of any length: what the file lets through must fit PostgreSQL too."""
    columns = {field.name: field.max_length for field in models.Rule._meta.get_fields() if hasattr(field, "max_length")}
    schema: dict[str, Any] = _Rule.model_json_schema()["properties"]
    limits = {name: said["maxLength"] for name, said in schema.items() if "maxLength" in said}
    assert limits == {name: columns[name] for name in limits}
    assert limits.keys() == {"name", "server", "tool", "principal", "reason", "owner", "group"}
    assert list(_File.model_fields) == ["version", "defaults", "rules"]
