"""An OAuth issuer's tokens at the running server: found by its metadata, let in or turned away."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.approvals.requests import person
from tests.conftest import Home
from tests.e2e.http_server import HttpServer, Session, initialize, message
from tests.e2e.test_http import token
from tests.meah_site.issuer import Issuer, Key, running_issuer

AUDIENCE = "https://meah.example.com/mcp"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        yield running


@pytest.fixture
def server(home: Home, issuer: Issuer) -> Iterator[HttpServer]:
    person("ann", "approvals.decide_approval")
    environ = {"MEAH_OAUTH_ISSUER": issuer.url, "MEAH_OAUTH_AUDIENCE": AUDIENCE}
    with HttpServer(home, environ=environ) as running:
        yield running


def test_a_client_without_a_token_is_led_to_the_issuer_and_one_with_its_token_is_served(
    server: HttpServer, issuer: Issuer
) -> None:
    challenge = server.post(initialize()).headers["www-authenticate"]
    pointer = "https://meah.example.com/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="{pointer}"' in challenge and "error=" not in challenge
    for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"):
        found = httpx.get(server.base_url + path).json()
        assert found["authorization_servers"] == [issuer.url] and found["resource"] == AUDIENCE

    session = Session(server, issuer.token(AUDIENCE))
    assert "approve" not in {tool["name"] for tool in session.request("tools/list")["tools"]}
    approver = Session(server, issuer.token(AUDIENCE, scope="approve"))
    assert "approve" in {tool["name"] for tool in approver.request("tools/list")["tools"]}
    assert Session(server, token("ci", "agent")).presented

    # A refreshed token of the same client and user goes on with its session; anybody else's does not.
    assert session.send(message("ping"), token=issuer.token(AUDIENCE, exp=2**33)).status_code == 200
    person("bob")
    for other in (issuer.token(AUDIENCE, sub="bob"), issuer.token(AUDIENCE, client_id="x"), token("x", "agent")):
        assert session.send(message("ping"), token=other).status_code == 404


def test_a_token_that_does_not_hold_is_turned_away_with_the_reason(server: HttpServer, issuer: Issuer) -> None:
    for wrong, word in (
        (issuer.token("https://other.example.com/mcp"), "somebody else"),
        (issuer.token(AUDIENCE, exp=1_000), "expired"),
        (issuer.token(AUDIENCE, key=Key("one")), "signature"),
        (issuer.token(AUDIENCE, sub="mallory"), "No active user"),
    ):
        answer = server.post(initialize(), token=wrong)
        assert answer.status_code == 401 and word in answer.json()["error_description"]
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    answer = server.post(initialize(), token=issuer.token(AUDIENCE, scope="profile"))
    assert answer.status_code == 403 and 'error="insufficient_scope"' in answer.headers["www-authenticate"]


def test_an_issuer_that_is_not_https_is_refused_at_the_start(home: Home) -> None:
    server = HttpServer(home, environ={"MEAH_OAUTH_ISSUER": "http://issuer.example.com"})
    said = server.ended()
    server.__exit__()
    assert said["error"]["code"] == "E_CONFIG" and "https" in said["error"]["message"]
