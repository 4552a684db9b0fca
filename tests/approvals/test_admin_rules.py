"""Rules and defaults in the admin: checked before they are saved, audited, tried without doing anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from approvals.models import Approval, ApprovalSettings, Call, Rule
from approvals.policy_store import current
from audit.models import Entry
from tests.approvals.requests import DECIDE, payload, person, registered_box
from tests.approvals.targets import CountingTarget
from tests.rows import SHOWN_SPOOF, SPOOF, make_call, page, posted, staff_client

pytestmark = pytest.mark.django_db

LIST = "/admin/approvals/rule/"
TRY = f"{LIST}try/"
SETTINGS = "/admin/approvals/approvalsettings/1/change/"
FORM = {
    "name": "big refunds",
    "effect": "require_approval",
    "reason": "Money moves.",
    "owner": "finance",
    "order": "10",
    "enabled": "on",
    "server": "box",
    "tool": "put",
    "except_tools": "",
    "principal": "*",
    "conditions": '[{"path": "amount", "op": "gt", "value": 100}]',
    "approvals": "1",
    "group": "",
    "ttl_s": "",
    "verification": "",
}


@pytest.fixture(autouse=True)
def box() -> Iterator[CountingTarget]:
    with registered_box() as target:
        yield target


def added(client: Client, **changes: str) -> str:
    return posted(client, f"{LIST}add/", **(FORM | changes))


# -- the list


def test_rules_are_listed_in_their_order_with_their_conditions_in_words(admin_client: Client) -> None:
    Rule.objects.create(
        name="second",
        order=20,
        effect="deny",
        server="crm",
        tool="delete_*",
        except_tools=["delete_draft"],
        principal="agent:*",
        conditions=[{"path": "amount", "op": "gt", "value": 100}],
    )
    Rule.objects.create(name="first", order=10, effect="allow", owner="ops")
    html = page(admin_client, LIST)
    table = html[html.index("result_list") :]
    assert table.index(">first<") < table.index(">second<")
    for shown in ("crm/delete_*", "but not delete_draft", "for agent:*", "amount &gt; 100", "always", "ops"):
        assert shown in html


def test_what_a_rule_can_hardly_mean_is_said_on_the_list(admin_client: Client) -> None:
    Rule.objects.create(name="typo", effect="deny", server="box", tool="putt")
    html = page(admin_client, LIST)
    assert "Hardly meant so" in html
    assert "It matches no known tool (box/putt). Did you mean box/put?" in html


def test_a_policy_that_can_not_be_used_is_said_on_the_list(admin_client: Client) -> None:
    Rule.objects.create(name="broken", effect="deny", conditions=[{"path": "x", "op": "like", "value": 1}])
    html = page(admin_client, LIST)
    assert "The policy can not be used" in html
    assert "can not be understood" in html


def test_without_rules_the_list_says_what_then_decides(admin_client: Client) -> None:
    Rule.objects.all().delete()
    assert "the defaults decide" in page(admin_client, LIST)


# -- the form


def test_a_rule_is_added_with_its_entry(admin_client: Client) -> None:
    added(admin_client, except_tools="put_draft\n put_note \n", ttl_s="60")
    rule = Rule.objects.get(name="big refunds")
    assert rule.conditions == [{"path": "amount", "op": "gt", "value": 100}]
    assert rule.except_tools == ["put_draft", "put_note"]
    assert rule.verification is None
    assert "Money moves." in json.dumps(payload("rule.added"))
    assert any(found.name == "big refunds" for found in current().rules)


def test_a_change_is_recorded_with_what_was_before(admin_client: Client) -> None:
    added(admin_client)
    rule = Rule.objects.get(name="big refunds")
    html = page(admin_client, f"{LIST}{rule.pk}/change/")
    assert "&quot;op&quot;: &quot;gt&quot;" in html
    posted(admin_client, f"{LIST}{rule.pk}/change/", **(FORM | {"effect": "deny"}))
    data = payload("rule.changed")["data"]
    assert data["changed"] == ["effect"]
    assert "require_approval" in data["before"]
    posted(admin_client, f"{LIST}{rule.pk}/delete/", post="yes")
    assert payload("rule.deleted")["subject"] == "big refunds"


def test_a_change_of_one_to_true_is_a_change(admin_client: Client) -> None:
    added(admin_client, conditions='[{"path": "amount", "op": "eq", "value": 1}]')
    changed = FORM | {"conditions": '[{"path": "amount", "op": "eq", "value": true}]'}
    posted(admin_client, f"{LIST}{Rule.objects.get(owner='finance').pk}/change/", **changed)
    assert payload("rule.changed")["data"]["changed"] == ["conditions"]


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("conditions", '[{"path": "amount", "op": "like", "value": 1}]', "unknown operator"),
        ("conditions", '[{"path": "amount", "op": "gt", "value": "100"}]', "takes a number"),
        ("conditions", '[{"path": "a..b", "op": "exists"}]', "can not be read"),
        ("conditions", '[{"path": "a", "op": "exists", "op": "absent"}]', "no JSON that can be used"),
        ("conditions", '[{"path": "a", "op": "gt", "value": NaN}]', "no JSON that can be used"),
        ("conditions", '{"path": "a", "op": "exists"}', "are a list"),
        ("conditions", '["amount"]', "A condition is an object"),
        ("conditions", "amount > 100", "no JSON that can be used"),
        ("verification", '{"tool": "get"}', "A verification is an object"),
        ("verification", '{"tool": "get", "expect": {}}', "expects nothing"),
        ("except_tools", "*", "excepts every tool"),
        ("approvals", "11", "11"),
        ("name", "default: mine", "needs a name of its own"),
        ("server", "", "required"),
        ("effect", "maybe", "not one of the available choices"),
    ],
)
def test_what_could_not_be_obeyed_is_not_saved_and_said_at_its_field(
    admin_client: Client, field: str, value: str, problem: str
) -> None:
    html = added(admin_client, **{field: value})
    row = html[html.index(f"field-{field}") :]
    assert problem in row[: row.index("</textarea>") if "<textarea" in row[:900] else 3_000]
    assert not Rule.objects.filter(order=10, owner="finance").exists()
    assert not Entry.objects.filter(kind="rule.added").exists()


def test_foreign_text_in_rules_is_escaped_and_shown(admin_client: Client) -> None:
    Rule.objects.create(
        name=SPOOF,
        effect="allow",
        server=SPOOF,
        owner="x",
        except_tools=[SPOOF],
        principal=SPOOF,
        conditions=[{"path": "a", "op": "eq", "value": SPOOF}],
    )
    html = page(admin_client, LIST)
    assert SHOWN_SPOOF in html
    assert "<script>alert" not in html


def test_who_only_looks_changes_no_rule() -> None:
    looker = staff_client("approvals.view_rule")
    page(looker, LIST)
    assert looker.post(f"{LIST}add/", FORM).status_code == 403
    _, approver = person("approver", DECIDE)
    assert approver.get(LIST).status_code == 403
    assert approver.get(TRY).status_code == 403


# -- defaults


def test_the_defaults_are_one_form_whose_changes_are_recorded(admin_client: Client) -> None:
    assert "time to decide" in page(admin_client, SETTINGS).lower()
    assert not ApprovalSettings.objects.exists()
    values: dict[str, Any] = {
        "read_default": "allow",
        "write_default": "deny",
        "destructive_default": "deny",
        "ttl_s": 60,
        "execute_within_s": 60,
        "duplicate_window_s": 0,
        "max_open_holds": 5,
        "result_days": 3,
    }
    posted(admin_client, SETTINGS, **values)
    assert current().defaults.write == "deny"
    assert "write_default" in payload("policy.changed")["data"]["changed"]
    assert "greater than or equal to 1" in posted(admin_client, SETTINGS, **(values | {"ttl_s": 0}))


# -- trying


def tried(client: Client, **changes: str) -> str:
    call = {"server": "box", "tool": "put", "arguments": '{"id": "a", "amount": 250}', "principal": "agent:claude"}
    return posted(client, TRY, **(call | changes))


def test_a_call_is_tried_and_every_rule_says_why(admin_client: Client) -> None:
    Rule.objects.create(name="everything", effect="allow", server="box")
    Rule.objects.create(
        name="big",
        effect="require_approval",
        server="box",
        tool="put",
        reason="Money moves.",
        approvals=2,
        conditions=[{"path": "amount", "op": "gt", "value": 100}],
    )
    html = tried(admin_client)
    for shown in ("require approval", "Money moves.", "2 approvals of anybody", "amount &gt; 100: true", "everything"):
        assert shown in html
    assert "[policy: allow, require_approval if amount &gt; 100]" in html
    small = tried(admin_client, arguments='{"id": "a", "amount": 5}')
    assert "amount &gt; 100: false" in small
    assert "2 approvals of anybody" not in small


def test_trying_does_nothing(admin_client: Client, box: CountingTarget) -> None:
    before = Entry.objects.count()
    tried(admin_client)
    tried(admin_client, tool="get")
    assert not Call.objects.exists()
    assert not Approval.objects.exists()
    assert (box.effects, box.reads) == ([], 0)
    assert Entry.objects.count() == before


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tool": "putt"}, "Did you mean box put?"),
        ({"server": "nowhere"}, "There is no tool put on nowhere"),
        ({"arguments": '{"id": 1}'}, "id: is not a string"),
        ({"arguments": '{"id": "a", "id": "b"}'}, "no JSON that the gate would take"),
        ({"arguments": "[]"}, "The arguments are a JSON object"),
        ({"tool": SPOOF}, SHOWN_SPOOF.replace("<", "&lt;")),
    ],
)
def test_what_the_gate_would_refuse_is_refused_in_the_same_words(
    admin_client: Client, changes: dict[str, str], told: str
) -> None:
    html = tried(admin_client, **changes)
    assert told in html
    assert "<script>alert" not in html


def test_a_call_that_there_was_fills_the_form(admin_client: Client) -> None:
    call = make_call(server="box", tool="put", arguments='{"id":"T-1001"}', principal="token:ci")
    html = page(admin_client, TRY, call=call.public_id)
    assert "T-1001" in html
    assert "token:ci" in html
