"""What the overview says of requests, the halt, unknown calls and quarantined tools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from approvals import services
from approvals.models import CallState
from gateway import observations
from tests.approvals.requests import DECIDE, ended, held, person, registered_box
from tests.gateway.support import make_server, raw
from tests.meah_site.test_admin import links, tiles
from tests.rows import page, staff_client

pytestmark = pytest.mark.django_db

INDEX = "/admin/"


@pytest.fixture(autouse=True)
def box() -> Iterator[None]:
    with registered_box():
        yield


def test_who_may_decide_sees_what_waits_for_them() -> None:
    asker, client = person("asker", DECIDE)
    assert tiles(page(client, INDEX))["for you to decide"] == "0 single approver"
    person("other", DECIDE)
    held(id="mine", user=asker)
    held(id="theirs")
    html = page(client, INDEX)
    assert tiles(html)["for you to decide"] == "1 of 2 open"
    assert "yours to decide" in page(client, links(html)["for you to decide"])
    assert tiles(page(staff_client("approvals.view_call"), INDEX)) == {}


def test_unknown_calls_quarantined_tools_and_a_halt_stand_out(admin_client: Client) -> None:
    assert not {"every call", "may have happened", "quarantined tools"} & tiles(page(admin_client, INDEX)).keys()
    ended(held(), CallState.UNKNOWN)
    observations.compare(make_server(raw("crm")).launch(), [{"name": "new", "inputSchema": {"type": "object"}}])
    services.halt(principal="system", reason="a test")
    html = page(admin_client, INDEX)
    found = tiles(html)
    assert (found["may have happened"], found["quarantined tools"], found["every call"]) == ("1", "1", "halted")
    assert "crm/new" in page(admin_client, links(html)["quarantined tools"])
    for label in ("may have happened", "every call"):
        page(admin_client, links(html)[label])
