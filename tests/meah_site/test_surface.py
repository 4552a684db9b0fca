"""What MEAH shows of itself is kept as files: a change of surface is a visible diff."""

from __future__ import annotations

import pytest

from approvals.tools import tools as approval_tools
from meah_site.own_tools import listed
from tests.snapshots.update import TOOLS, text


@pytest.mark.parametrize("role", TOOLS)
def test_a_change_of_the_tools_is_a_change_of_the_snapshot(role: str) -> None:
    assert text({"tools": listed(role)}) == TOOLS[role].read_text(), "python -m tests.snapshots.update"


def test_an_agent_is_shown_no_way_to_decide() -> None:
    decide = {"approve", "reject"}
    assert decide <= {tool.name for tool in approval_tools("approver")}
    assert not decide & {tool.name for tool in approval_tools("agent")}
