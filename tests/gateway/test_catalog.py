"""Direct tools: their listed names, what they show, what collides."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from core.errors import MeahError
from gateway import catalog, observations
from gateway.launch import Launch
from gateway.models import Exposure, Server
from tests.gateway.support import accept_everything, make_server

pytestmark = pytest.mark.django_db
OBJECT = {"type": "object"}


def server(name: str, *tools: str, **columns: Any) -> Server:
    made = make_server(Launch(server=name, command=name), **columns)
    listing = [{"name": tool, "description": f"{tool} of {name}", "inputSchema": OBJECT} for tool in tools]
    observations.compare(made.launch(), listing)
    accept_everything(name)
    return made


def names() -> list[str]:
    return [tool.listed_name for tool in catalog.direct_tools()]


def test_names_are_prefixed_unless_the_operator_says_otherwise() -> None:
    server("crm", "get", "set")
    server("files", "get", prefix="fs")
    server("bare", "search", prefix="")
    server("hidden", "get", exposure=Exposure.LAZY)
    server("off", "get", exposure=Exposure.OFF)
    assert sorted(names()) == ["crm__get", "crm__set", "fs__get", "search"]


@pytest.mark.parametrize(
    ("listed", "meant"),
    [
        ("crm__get", ("crm", "get")),
        ("crm__a__b", ("crm", "a__b")),
        ("fs__get", ("files", "get")),
        ("search", ("bare", "search")),
        ("x__y", ("bare", "x__y")),
        ("_crm__get", None),
        ("files__get", None),
        ("get", None),
        ("CRM__get", None),
        ("off__get", None),
        ("", None),
    ],
)
def test_a_listed_name_leads_to_the_servers_own_name(listed: str, meant: tuple[str, str] | None) -> None:
    server("crm", "get", "a__b")
    server("files", "get", prefix="fs")
    server("bare", "search", "x__y", prefix="")
    server("off", "get", exposure=Exposure.OFF)
    if meant is None:
        with pytest.raises(MeahError):
            catalog.find(listed)
    else:
        found = catalog.find(listed)
        assert (found.server, found.tool, found.listed_name) == (*meant, listed)


def test_what_collides_is_an_error_at_registration_and_never_the_last_one() -> None:
    server("one", "search", prefix="")
    assert catalog.collisions([("search", "two")])
    assert catalog.collisions([("SEARCH", "two")])
    assert not catalog.collisions([("search", "one")])
    assert not catalog.collisions([("two__search", "two")])
    server("two", "search", "other", prefix="")
    assert names() == ["other"]
    with pytest.raises(MeahError):
        catalog.find("search")


@pytest.mark.parametrize("name", ["meah_run_agent", "MEAH_x", "approve", "mcp_call", "list_pending"])
def test_meahs_own_names_are_taken(name: str) -> None:
    assert catalog.collisions([(name, "crm")])


def test_agents_get_the_pinned_text_and_nothing_while_a_change_waits() -> None:
    made = make_server(Launch(server="crm", command="crm"))
    tool = {"name": "get", "title": "Get", "description": "Gets.", "inputSchema": OBJECT, "outputSchema": OBJECT}
    observations.compare(made.launch(), [tool])
    accept_everything("crm")
    [found] = catalog.direct_tools()
    assert (found.listed_name, found.definition) == ("crm__get", tool)
    observations.compare(made.launch(), [tool | {"description": "Gets, and sends."}])
    assert catalog.direct_tools() == []


def test_a_server_that_would_collide_can_not_be_made_direct_in_a_form() -> None:
    server("one", "search", prefix="")
    other = server("two", "search", exposure=Exposure.OFF)
    other.exposure = Exposure.DIRECT
    other.clean()
    other.prefix = ""
    with pytest.raises(ValidationError):
        other.clean()
