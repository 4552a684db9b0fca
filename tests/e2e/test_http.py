"""MCP over HTTP: who is let in, whom a call is recorded for, and what each session belongs to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from approvals import tokens
from approvals.models import Token
from tests.approvals.requests import person
from tests.conftest import Home
from tests.e2e.http_server import HttpServer, Session, answer_of, initialize, message, modern
from tests.e2e.server import LEGACY, MODERN, eventually

ENDED = ["cancelled", "succeeded"]
OWN = {"meah_run_agent", "approval_status", "list_pending", "mcp_discover"}


def token(name: str, *scopes: str, user: str = "ann", days: int | None = 1) -> str:
    """A new token's secret; its user is made where there is none."""
    model = get_user_model()
    owner = model._default_manager.filter(username=user).first() or person(user, "approvals.decide_approval")[0]
    until = None if days is None else timezone.now() + timedelta(days=days)
    return tokens.create(name=name, user=owner, scopes=scopes, expires_at=until, principal="system")[1]


@pytest.fixture
def server(home: Home) -> Iterator[HttpServer]:
    with HttpServer(home) as running:
        yield running


def listed(server: HttpServer, secret: str, era: str) -> set[str]:
    if era == LEGACY:
        found = Session(server, secret).request("tools/list")
    else:
        body, headers = modern("tools/list")
        found = answer_of(server.post(body, token=secret, **headers))["result"]
    return {tool["name"] for tool in found["tools"]}


def test_a_request_is_let_in_by_a_living_token_with_a_fitting_scope_and_by_nothing_else(server: HttpServer) -> None:
    good = token("good", "agent")
    revoked = token("revoked", "agent")
    tokens.revoke(Token.objects.get(name="revoked"), principal="system")
    expired = token("expired", "agent")
    Token.objects.filter(name="expired").update(expires_at=timezone.now() - timedelta(seconds=1))
    asleep = token("asleep", "agent", user="bob")
    get_user_model()._default_manager.filter(username="bob").update(is_active=False)
    reader = token("reader", "read", "operate")
    refused = {"": 401, revoked: 401, expired: 401, asleep: 401, good[:-1]: 401, "meah_" + "x" * 43: 401, reader: 403}
    refused |= {"x" * 9_000: 401, good + "\u00e9": 401}
    for secret, status in refused.items():
        for body, headers in ((initialize(), {}), modern("tools/list")):
            sent = {"authorization": f"Bearer {secret}".encode()} if secret else {}
            answer = httpx.post(server.url, json=body, headers=dashed(headers) | sent, timeout=30)
            assert answer.status_code == status, secret
            assert answer.headers["www-authenticate"].startswith("Bearer ")
            assert good not in answer.text and answer.json()["error_description"]
    for wrong in ("Basic Og==", f"bearer{good}", "Bearer", f"Token {good}", f"Bearer {good} {good}"):
        assert server.post(initialize(), authorization=wrong).status_code == 401, wrong
    assert server.post(initialize(), authorization=f"bearer {good}").status_code == 200
    assert not any(good in str(line) for line in server.log)


def dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_a_tokens_scope_says_which_role_is_served(server: HttpServer, era: str) -> None:
    agent = listed(server, token("agent", "agent"), era)
    approver = listed(server, token("approver", "approve"), era)
    assert agent >= OWN and not agent & {"approve", "reject"}
    assert approver == agent | {"approve", "reject"}
    assert listed(server, token("both", "agent", "approve", "read"), era) == approver


def test_an_agent_can_not_call_what_only_the_approver_is_served(server: HttpServer) -> None:
    secret = token("agent", "agent")
    body, headers = modern("tools/call", {"name": "approve", "arguments": {"approvalId": "apr_" + "0" * 20}})
    assert answer_of(server.post(body, token=secret, **headers))["error"]["code"] == -32602


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_a_call_is_recorded_for_the_token_and_its_user(server: HttpServer, era: str) -> None:
    from workers.models import Worker

    secret = token("ci", "agent", user="ann")
    call = {"name": "meah_run_agent", "arguments": {"task": "[mock text=ok]"}}
    if era == LEGACY:
        result = Session(server, secret).request("tools/call", call)
    else:
        body, headers = modern("tools/call", call)
        result = answer_of(server.post(body, token=secret, **headers))["result"]
    worker = Worker.objects.get(public_id=result["structuredContent"]["data"]["workerId"])
    assert worker.principal == "token:ci"


def test_a_session_belongs_to_its_credential(server: HttpServer) -> None:
    first, second = token("first", "agent"), token("second", "agent")
    approver = token("approver", "approve")
    session = Session(server, first)
    assert session.send(message("ping")).status_code == 200
    for other in (second, approver):
        assert session.send(message("ping"), token=other).status_code == 404
        assert httpx.delete(server.url, headers=stolen(session, other)).status_code == 404
        assert httpx.get(server.url, headers=stolen(session, other)).status_code == 404
    assert session.send(message("ping"), token="").status_code == 401
    assert session.send(message("ping"), session="0" * 32).status_code == 404
    assert session.send(message("ping")).status_code == 200
    tokens.revoke(Token.objects.get(name="first"), principal="system")
    assert session.send(message("ping")).status_code == 401


def stolen(session: Session, secret: str) -> dict[str, str]:
    return {"mcp-session-id": session.id, "authorization": f"Bearer {secret}", "accept": "text/event-stream"}


def test_two_sessions_that_count_alike_are_not_taken_for_each_other(server: HttpServer) -> None:
    """Request 7 of one is taken back, request 7 of the other is not."""
    from workers.models import Worker

    secret = token("ci", "agent")
    one, other = Session(server, secret), Session(server, secret)
    call = message("tools/call", {"name": "meah_delegate_task", "arguments": {"task": "[mock wait=5000]"}}, number=7)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7, "reason": "changed"}}
    threads = [threading.Thread(target=session.send, args=(call,), daemon=True) for session in (one, other)]
    for thread in threads:
        thread.start()
    eventually(lambda: Worker.objects.filter(state="running").count() == 2, within_s=30)
    one.send(cancel)
    eventually(lambda: sorted(Worker.objects.values_list("state", flat=True)) == ENDED, within_s=30)
    threads[1].join(30)


def test_without_authentication_only_loopback_is_served_and_a_bad_token_is_still_refused(home: Home) -> None:
    with HttpServer(home, "--no-auth") as server:
        assert server.logged("no_authentication")
        assert listed(server, "", LEGACY) >= OWN
        assert listed(server, "", MODERN) >= OWN
        assert server.post(initialize(), token="meah_" + "x" * 43).status_code == 401
        assert "approve" in listed(server, token("approver", "approve"), MODERN)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--host", "0.0.0.0", "--no-auth"], "loopback"),
        (["--host", "0.0.0.0"], "tokens create"),
        (["--role", "approver"], "scope"),
    ],
)
def test_it_does_not_start_where_anybody_could_come_in(home: Home, options: list[str], word: str) -> None:
    server = HttpServer(home, *options)
    said = server.ended()
    server.__exit__()
    assert said["error"]["code"] == "E_CONFIG" and word in said["error"]["message"] + said["error"]["hint"]


def test_all_addresses_are_served_once_somebody_can_authenticate(home: Home) -> None:
    secret = token("ci", "agent")
    with HttpServer(home, "--host", "0.0.0.0", "--allow-host", "meah.example.com") as server:
        assert server.logged("not_encrypted")
        assert server.post(initialize(), token=secret).status_code == 200
        assert server.post(initialize(), token=secret, host="meah.example.com").status_code == 200
        assert server.post(initialize(), token=secret, host="evil.example.com").status_code == 421


def test_only_a_named_origin_is_let_in_and_shown_the_answer(home: Home) -> None:
    page = "http://localhost:6274"
    with HttpServer(home, "--no-auth", "--allow-origin", page) as server:
        for origin in ("null", "http://evil.example", server.base_url, page + "0", page.upper()):
            refused = server.post(initialize(), origin=origin)
            assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers
        answer = server.post(initialize(), origin=page)
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == page
        assert "mcp-session-id" in answer.headers["access-control-expose-headers"]
        asked = {"origin": page, "access-control-request-method": "POST"}
        preflight = httpx.options(server.url, headers=asked)
        assert preflight.status_code == 204 and "authorization" in preflight.headers["access-control-allow-headers"]
        assert httpx.options(server.url, headers=asked | {"origin": "http://evil.example"}).status_code == 403


def test_the_health_check_is_open_and_there_is_nothing_else(server: HttpServer) -> None:
    assert httpx.get(f"{server.base_url}/healthz").json()["status"] == "ok"
    for path in ("/", "/admin/", "/mcp/x", "/.well-known/oauth-protected-resource"):
        assert httpx.get(f"{server.base_url}{path}").status_code == 404
