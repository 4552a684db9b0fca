"""The switch in the admin: for whom it is, with a reason, and a banner on every page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from approvals import services
from approvals.models import Approval
from tests.approvals.requests import held, payload, person, registered_box
from tests.rows import SHOWN_SPOOF, SPOOF, page, posted, staff_client

pytestmark = pytest.mark.django_db

PAGE = "/admin/approvals/halt/"
BANNER = "Everything is halted"


@pytest.fixture(autouse=True)
def box() -> Iterator[None]:
    with registered_box():
        yield


def test_halting_takes_a_post_with_a_reason_and_voids_what_is_open(admin_client: Client) -> None:
    approval = held()
    assert "1 request open" in page(admin_client, PAGE, switch="halt", reason="x")
    assert "Say why" in posted(admin_client, PAGE, switch="halt", reason=" ")
    assert not services.is_halted()
    html = posted(admin_client, PAGE, switch="halt", reason="An agent went astray.")
    assert "Open requests that are void now: 1" in html
    assert services.is_halted()
    assert Approval.objects.get(pk=approval.pk).state == "void"
    assert payload("halt.engaged")["principal"] == "user:admin"


def test_while_halted_every_page_says_so_to_everybody(admin_client: Client) -> None:
    assert BANNER not in page(admin_client, "/admin/")
    services.halt(principal="user:eve", reason=SPOOF)
    looker = staff_client("approvals.view_approval")
    for client, url in ((admin_client, "/admin/"), (admin_client, PAGE), (looker, "/admin/approvals/approval/")):
        html = page(client, url)
        assert BANNER in html
        assert SHOWN_SPOOF in html
        assert "<script>alert" not in html
    assert BANNER not in page(Client(), "/admin/login/")


def test_letting_calls_through_again(admin_client: Client) -> None:
    services.halt(principal="system", reason="a test")
    html = posted(admin_client, PAGE, switch="resume")
    assert BANNER not in html
    assert not services.is_halted()
    assert "halt.released" in html


def test_the_switch_is_a_right_of_its_own() -> None:
    looker = staff_client("approvals.view_halt", "approvals.change_halt", "approvals.decide_approval")
    assert looker.get(PAGE).status_code == 403
    assert looker.post(PAGE, {"switch": "halt", "reason": "x"}).status_code == 403
    assert not services.is_halted()
    _, guard = person("guard", "approvals.halt")
    posted(guard, PAGE, switch="halt", reason="x")
    assert services.is_halted()
