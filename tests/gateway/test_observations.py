"""Listings compared with pins: what is new or changed is quarantined, and everything is recorded."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.utils import timezone

from approvals.models import Approval, Call
from audit.models import Entry
from core.errors import MeahError
from gateway import observations, services
from gateway.models import PinScope, PinState, Server, Tool
from gateway.sessions import Report
from tests.gateway.support import accept_everything, make_server, raw

pytestmark = pytest.mark.django_db
OBJECT = {"type": "object"}
READ = {"name": "read", "description": "Reads.", "inputSchema": OBJECT, "annotations": {"readOnlyHint": True}}
WRITE = {"name": "write", "description": "Writes.", "inputSchema": OBJECT}


@pytest.fixture
def server() -> Server:
    made = make_server(raw("crm"))
    observations.compare(made.launch(), [READ, WRITE])
    accept_everything("crm")
    return made


def compare(server: Server, *listing: Any) -> dict[str, str]:
    return observations.compare(server.launch(), copy.deepcopy(list(listing)))


def tool(name: str) -> Tool:
    return Tool.objects.get(server__name="crm", name=name)


def kinds() -> list[str]:
    return list(Entry.objects.filter(kind__startswith="tool.").order_by("seq").values_list("kind", "subject"))


def person(*, may: bool = True) -> Any:
    user = get_user_model()._default_manager.create_user(f"user-{may}", password="x")
    if may:
        user.user_permissions.add(Permission.objects.get(codename="accept_pin"))
    return user


def held(name: str) -> Approval:
    call = Call.objects.create(
        state="held", principal="agent:x", server="crm", tool=name, effect_class="write", door="mcp", arguments="{}"
    )
    return Approval.objects.create(call=call, principal="agent:x", digest="d", rule="r", expires_at=timezone.now())


def test_what_is_as_accepted_may_be_called_and_writes_nothing(server: Server) -> None:
    before = Entry.objects.count()
    assert compare(server, WRITE, READ) == {"read": tool("read").pin, "write": tool("write").pin}
    assert Entry.objects.count() == before


def test_a_new_tool_of_a_known_server_waits_for_a_person(server: Server) -> None:
    pins = compare(server, READ, WRITE, {"name": "more", "inputSchema": OBJECT})
    assert "more" not in pins
    assert (tool("more").pin_state, tool("more").quarantine_reason, tool("more").pin) == ("quarantined", "new", "")
    assert ("tool.quarantined", "crm/more") in kinds()


@pytest.mark.parametrize(
    "change",
    [
        {"description": "Reads. Then sends it away."},
        {"title": "x"},
        {"inputSchema": {"type": "object", "properties": {"a": {"description": "x"}}}},
        {"annotations": {"readOnlyHint": True, "idempotentHint": True}},
        {"outputSchema": OBJECT},
        {"_meta": {"x": 1}},
    ],
)
def test_a_changed_tool_is_quarantined_once_and_its_held_calls_end(server: Server, change: Any) -> None:
    approval = held("read")
    pins = compare(server, READ | change, WRITE)
    assert list(pins) == ["write"]
    compare(server, READ | change, WRITE)
    assert kinds().count(("tool.quarantined", "crm/read")) == 2, "as new, and once as changed"
    found = tool("read")
    assert (found.pin_state, found.quarantine_reason) == (PinState.QUARANTINED, "changed")
    assert found.definition and found.candidate and services.changes_of(found)
    approval.refresh_from_db()
    assert approval.state == "void"


def test_a_tool_that_changes_back_is_what_was_accepted(server: Server) -> None:
    compare(server, READ | {"description": "x"}, WRITE)
    assert "read" in compare(server, READ, WRITE)
    assert tool("read").pin_state == PinState.ACCEPTED
    assert tool("read").candidate == ""


def test_a_tool_that_is_gone_can_not_be_called_and_may_return_unchanged(server: Server) -> None:
    compare(server, WRITE)
    assert tool("read").pin_state == PinState.GONE
    assert "read" in compare(server, READ, WRITE)
    assert tool("read").pin_state == PinState.ACCEPTED
    compare(server, WRITE)
    compare(server, READ | {"description": "x"}, WRITE)
    assert tool("read").pin_state == PinState.QUARANTINED
    assert [kind for kind, _ in kinds()][-4:] == ["tool.gone", "tool.returned", "tool.gone", "tool.quarantined"]


def test_another_command_line_makes_every_tool_another(server: Server) -> None:
    server.args = [*server.args, "--other"]
    server.save()
    assert compare(server, READ, WRITE) == {}


def test_with_a_contract_pin_prose_may_drift_and_agents_still_read_what_was_accepted(server: Server) -> None:
    Server.objects.update(pin_scope=PinScope.CONTRACT)
    drifted = READ | {"description": "Reads more kindly."}
    for _ in range(2):
        assert compare(server, drifted, WRITE) == {"read": tool("read").pin, "write": tool("write").pin}
    assert tool("read").pinned["description"] == "Reads."
    assert [kind for kind in kinds() if kind[0] == "tool.drifted"] == [("tool.drifted", "crm/read")]
    wider = drifted | {"inputSchema": {"type": "object", "properties": {"path": {}}}}
    assert "read" not in compare(server, wider, WRITE)


def test_one_odd_tool_is_named_and_the_others_are_offered(server: Server) -> None:
    odd = {"name": "odd", "inputSchema": {"type": "object", "properties": {"a": {"type": "int"}}}}
    assert set(compare(server, READ, odd, WRITE)) == {"read", "write"}
    assert "does not compile" in tool("odd").quarantine_reason


def test_a_person_with_the_permission_accepts_what_they_have_seen(server: Server) -> None:
    compare(server, READ | {"description": "Other."}, WRITE, {"name": "more", "inputSchema": OBJECT})
    waiting = services.acceptable(server)
    assert set(waiting) == {"read", "more"}
    with pytest.raises(MeahError) as refused:
        services.accept(server, waiting, user=person(may=False))
    assert refused.value.code == "E_PERMISSION"
    services.accept(server, waiting, user=person())
    assert tool("read").pinned["description"] == "Other."
    assert (tool("more").accepted_by, tool("more").effect_class) == ("user:user-True", "write")
    assert set(compare(server, READ | {"description": "Other."}, WRITE, {"name": "more", "inputSchema": OBJECT})) == {
        "read",
        "write",
        "more",
    }
    entry = json.loads(bytes(Entry.objects.filter(kind="tool.pinned").last().payload))
    assert entry["principal"] == "user:user-True"


def test_what_changed_after_it_was_looked_at_is_not_accepted(server: Server) -> None:
    compare(server, READ | {"description": "First."}, WRITE)
    seen = services.acceptable(server)
    compare(server, READ | {"description": "Second."}, WRITE)
    with pytest.raises(MeahError) as refused:
        services.accept(server, seen, user=person())
    assert refused.value.reason == "changed_again"


def test_what_can_not_be_offered_can_not_be_accepted_either(server: Server) -> None:
    compare(server, READ, WRITE, {"name": "x", "description": "a\u200bb", "inputSchema": OBJECT})
    assert services.acceptable(server) == {}
    with pytest.raises(MeahError):
        services.accept(server, {"x": tool("x").candidate_pin}, user=person())


def test_new_hints_never_loosen_the_operators_marking(server: Server) -> None:
    services.mark(tool("read"), "destructive", principal="user:op")
    compare(server, READ | {"description": "x"}, WRITE | {"annotations": {"destructiveHint": True}})
    services.accept(server, services.acceptable(server), user=person())
    assert tool("read").effect_class == "destructive"
    assert tool("write").effect_class == "destructive"


def test_a_mark_is_recorded_with_before_and_after(server: Server) -> None:
    services.mark(tool("read"), "write", principal="user:op")
    entry = json.loads(bytes(Entry.objects.filter(kind="tool.marked").last().payload))
    assert (entry["data"]["before"], entry["data"]["after"]) == ('{"effectClass":"read"}', '{"effectClass":"write"}')
    with pytest.raises(MeahError):
        services.mark(tool("read"), "harmless", principal="user:op")


def test_starts_and_first_failures_are_recorded(server: Server) -> None:
    for state in ("connecting", "active", "active", "idle", "failed", "failed"):
        observations.report(Report("crm", state, "why" if state == "failed" else "", "stderr \x1b", "legacy"))
    server.refresh_from_db()
    assert (server.state, server.last_error, server.era) == ("failed", "why", "legacy")
    states = list(Entry.objects.filter(kind__startswith="server.").order_by("seq").values_list("kind", flat=True))
    assert states == ["server.started", "server.failed"]
