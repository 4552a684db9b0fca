from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals import models, policy_store
from approvals.conditions import Condition
from approvals.policy import Defaults, Rule, Subject, Verification, judge
from approvals.policy_store import columns_of, current, register_server_defaults, rule_of, stored_rules
from approvals.shipped import SHIPPED_RULES, add_shipped_rules
from core.errors import MeahError

pytestmark = pytest.mark.django_db

WHOLE = Rule(
    "whole",
    "require_approval",
    order=7,
    server="crm",
    tool="issue_*",
    except_tools=("issue_note",),
    principal="agent:*",
    conditions=(Condition("amount", "gt", 100), Condition("note", "exists"), Condition("to", "in", ["a", 1, None])),
    reason="money",
    owner="eva",
    ttl_s=600,
    approvals=2,
    group="finance",
    verification=Verification("get", {"id": "id"}, {"amount": {"argument": "amount"}}),
)


@pytest.fixture(autouse=True)
def nothing_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    models.Rule.objects.all().delete()
    monkeypatch.setattr(policy_store, "_sources", [])


def store(rule: Rule) -> models.Rule:
    return models.Rule.objects.create(**columns_of(rule))


def effect(*, tool: str = "put", effect_class: str = "write", **arguments: Any) -> str:
    schema = {"properties": {"amount": {}}}
    return judge(current(), Subject("agent:a", "crm", tool, effect_class, arguments, schema)).effect


def test_a_rule_survives_the_database() -> None:
    store(WHOLE)
    store(Rule("bare", "deny"))
    assert list(current().rules) == [WHOLE, Rule("bare", "deny")]
    assert stored_rules() == list(current().rules)


def test_nothing_stored_is_the_shipped_defaults() -> None:
    assert (current().rules, current().defaults) == ((), Defaults())
    assert [effect(effect_class=name) for name in ("read", "write", "destructive")] == [
        "allow",
        "require_approval",
        "require_approval",
    ]


def test_the_settings_row_gives_the_defaults() -> None:
    models.ApprovalSettings.objects.update_or_create(pk=1, defaults={"read_default": "deny", "write_default": "allow"})
    assert current().defaults == Defaults("deny", "allow", "require_approval")


def test_rules_that_are_switched_off_do_not_decide() -> None:
    store(Rule("off", "deny", enabled=False))
    assert effect() == "require_approval"
    assert [rule.name for rule in stored_rules()] == ["off"]


def test_a_change_of_any_row_counts_from_the_next_call_on() -> None:
    row = store(Rule("r", "deny"))
    seen = [effect()]
    models.Rule.objects.filter(pk=row.pk).update(effect="allow")
    seen.append(effect())
    with connection.cursor() as cursor:
        cursor.execute("UPDATE approvals_rule SET effect = 'deny'")
    seen.append(effect())
    row.delete()
    seen.append(effect())
    models.ApprovalSettings.objects.update_or_create(pk=1, defaults={"write_default": "deny"})
    seen.append(effect())
    assert seen == ["deny", "allow", "deny", "require_approval", "deny"]


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), ("1", 1), (None, "")])
def test_a_change_between_values_that_python_takes_for_equal_is_seen(before: Any, after: Any) -> None:
    row = store(Rule("r", "deny", conditions=(Condition("amount", "eq", before),)))
    first = current().digest
    row.conditions = [{"path": "amount", "op": "eq", "value": after}]
    row.save()
    assert current().rules[0].conditions[0].value is after
    assert current().digest != first


def test_what_did_not_change_is_not_compiled_again() -> None:
    store(WHOLE)
    assert current() is current()


def test_one_query_reads_the_rules_and_one_the_defaults() -> None:
    for number in range(5):
        store(replace(WHOLE, name=f"r{number}"))
    with CaptureQueriesContext(connection) as queries:
        current()
    assert len(queries) == 2


def test_servers_override_the_defaults_by_hook() -> None:
    effects = {"crm": {"write": "allow", "read": ""}}
    register_server_defaults(lambda: effects)
    register_server_defaults(lambda: {"crm": {"destructive": "deny"}, "bank": {"write": "deny"}})
    assert [effect(effect_class=name) for name in ("read", "write", "destructive")] == ["allow", "allow", "deny"]
    effects["crm"] = {"write": "deny"}
    assert effect() == "deny"


@pytest.mark.parametrize(
    "columns",
    [
        {"conditions": [{"path": "amount", "op": "gt", "value": "100"}]},
        {"conditions": [{"path": "amount", "op": "between", "value": 1}]},
        {"conditions": {"path": "amount", "op": "gt", "value": 1}},
        {"conditions": ["amount > 1"]},
        {"conditions": None},
        {"except_tools": "get_*"},
        {"except_tools": [5]},
        {"verification": {}},
        {"verification": [1]},
        {"verification": {"tool": "get", "expect": {}}},
        {"approvals": 0},
        {"ttl_s": 0},
        {"server": ""},
    ],
)
def test_a_row_that_can_not_be_understood_stops_everything_and_is_named(columns: dict[str, Any]) -> None:
    row = columns_of(Rule("broken", "allow")) | columns
    with pytest.raises(MeahError) as caught:
        rule_of(row)
    assert (caught.value.code, caught.value.details["rule"]) == ("E_CONFIG", "broken")
    if None not in columns.values():
        models.Rule.objects.create(**row)
        with pytest.raises(MeahError):
            current()
        models.Rule.objects.update(enabled=False)
        assert effect() == "require_approval"


def test_the_shipped_rules_hold_back_workers_that_run_commands_and_nothing_else() -> None:
    add_shipped_rules(models.Rule)
    assert models.Rule.objects.count() == len(SHIPPED_RULES)

    def of(tool: str, **arguments: Any) -> str:
        return judge(current(), Subject("agent:a", "meah", tool, "write", arguments)).effect

    exec_profile, other = {"permissionProfile": "workspace-exec"}, {"permissionProfile": "read-only"}
    assert of("meah_run_agent", **other) == of("meah_delegate_task", **other) == "allow"
    assert of("meah_run_agent", **exec_profile) == of("meah_delegate_task", **exec_profile) == "require_approval"
    assert of("meah_parallel_agents", workers=[other, other]) == "allow"
    assert of("meah_parallel_agents", workers=[other, exec_profile]) == "require_approval"
    assert of("meah_cancel_agent") == of("meah_cleanup_workspace") == "allow"


def test_an_operators_rule_of_the_same_name_stays() -> None:
    store(Rule("meah-tools", "deny"))
    add_shipped_rules(models.Rule)
    assert models.Rule.objects.get(name="meah-tools").effect == "deny"
