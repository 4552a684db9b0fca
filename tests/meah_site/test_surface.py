"""What MEAH shows of itself is kept as files: a change of surface is a visible diff."""

from __future__ import annotations

import pytest

from approvals.tools import tools as approval_tools
from tests.snapshots.update import TOOLS, text
from workers.tools import listed


@pytest.mark.parametrize("role", TOOLS)
def test_a_change_of_the_tools_is_a_change_of_the_snapshot(role: str) -> None:
    shown = [*listed(), *(tool.as_listed() for tool in approval_tools(role))]
    assert text({"tools": shown}) == TOOLS[role].read_text(), "python -m tests.snapshots.update"


def test_an_agent_is_shown_no_way_to_decide() -> None:
    decide = {"approve", "reject"}
    assert decide <= {tool.name for tool in approval_tools("approver")}
    assert not decide & {tool.name for tool in approval_tools("agent")}
