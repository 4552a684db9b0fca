"""The example policy against the example CRM's own tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from approvals.policy import Policy, Subject, judge
from approvals.policy_check import KnownTool, check
from approvals.policy_file import loads
from examples.crm.tools import TOOLS

FILE = Path(__file__).resolve().parents[2] / "examples" / "policy.yaml"


def policy() -> Policy:
    return Policy.of(loads(FILE.read_bytes()).rules.values())


def known() -> list[KnownTool]:
    classes = {True: "read", False: "write"}
    return [
        KnownTool("crm", tool.name, "destructive" if tool.destructive else classes[tool.read_only], tool.input_schema)
        for tool in TOOLS
    ]


@pytest.mark.parametrize(
    ("tool", "arguments", "effect", "rule"),
    [
        ("search_tickets", {}, "allow", "crm-search"),
        ("get_ticket", {"ticket_id": "T-1001"}, "allow", "crm-reads"),
        ("get_customer", {"customer_id": "C-1"}, "allow", "crm-reads"),
        ("add_comment", {"ticket_id": "T-1001", "body": "x"}, "allow", "crm-comments"),
        ("update_ticket", {"ticket_id": "T-1001", "status": "closed"}, "require_approval", "crm-updates"),
        ("issue_refund", {"customer_id": "C-1", "amount": 1, "reason": "x"}, "require_approval", "crm-refunds"),
        ("delete_customer", {"customer_id": "C-1"}, "deny", "crm-deletes"),
    ],
)
def test_every_tool_gets_what_the_example_promises(
    tool: str, arguments: dict[str, Any], effect: str, rule: str
) -> None:
    there = {item.name: item for item in known()}[tool]
    verdict = judge(policy(), Subject("agent:claude", "crm", tool, there.effect_class, arguments, there.schema))
    assert (verdict.effect, verdict.rule) == (effect, rule)
    assert (verdict.verification.tool if verdict.verification else "") == (
        "get_ticket" if tool == "update_ticket" else ""
    )


def test_there_is_nothing_to_mend_in_it() -> None:
    assert check(policy(), known(), lambda group: 1) == []
