"""What webhooks are sent, where to, and what becomes of a message that does not arrive."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from django.utils import timezone

from approvals import webhooks
from approvals.models import Delivery, Webhook
from core.addresses import NotPublicError
from tests.approvals.requests import held, registered_box
from tests.approvals.targets import CountingTarget

pytestmark = pytest.mark.django_db
SECRET = "a-key-of-the-operator"


class Receiver(ThreadingHTTPServer):
    """A real HTTP server on loopback; `status` is what it answers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.status = 204
        self.slow_s = 0.0
        self.endless = False
        self.stopped = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.seen.append((self.path, dict(self.headers), body))
        if self.path == "/slow":
            server.stopped.wait(server.slow_s)
        self.send_response(server.status)
        if server.status == 302:
            self.send_header("Location", server.url + "/elsewhere")
        self.end_headers()
        with contextlib.suppress(OSError):
            while server.endless and not server.stopped.is_set():
                self.wfile.write(b"x" * 65536)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.stopped.set()
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def box() -> Iterator[CountingTarget]:
    with registered_box() as target:
        yield target


def hook(url: str, **values: Any) -> Webhook:
    return Webhook.objects.create(**{"name": "ops", "url": url, "private": True} | values)


def deliver() -> list[str]:
    """What an engine does: claim, send, settle; what kept each from arriving."""
    results = asyncio.run(webhooks.send(webhooks.claim_due()))
    webhooks.settle(results)
    return [error for _, error in results]


def test_a_request_is_told_signed_and_without_its_arguments(
    box: CountingTarget, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    hook(receiver.url, secret_env="HOOK_SECRET")
    approval = held(status="not for everybody")
    assert deliver() == [""]
    path, headers, body = receiver.seen[0]
    told = json.loads(body)
    assert path == "/hook" and told["event"] == "approval.requested" and told["approvalId"] == approval.public_id
    assert b"not for everybody" not in body
    assert told["url"].endswith(f"/admin/approvals/approval/{approval.pk}/change/")
    stamp, signature = (part.partition("=")[2] for part in headers[webhooks.SIGNATURE_HEADER].split(","))
    expected = hmac.new(SECRET.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert signature == expected
    assert deliver() == [], "it is sent once"


@pytest.mark.parametrize("form", ["slack", "teams"])
def test_other_receivers_get_their_own_form(box: CountingTarget, receiver: Receiver, form: str) -> None:
    hook(receiver.url, format=form)
    approval = held()
    deliver()
    told = json.loads(receiver.seen[0][2])
    assert ("text" in told) if form == "slack" else (told["attachments"][0]["content"]["type"] == "AdaptiveCard")
    assert approval.public_id in json.dumps(told) or str(approval.pk) in json.dumps(told)


def test_what_does_not_arrive_is_tried_eight_times_over_an_hour(box: CountingTarget, receiver: Receiver) -> None:
    hook(receiver.url)
    held()
    receiver.status = 503
    waited = timedelta()
    for _ in range(8):
        assert deliver() == ["the webhook answered 503"]
        delivery = Delivery.objects.get()
        waited += max(delivery.next_try_at - timezone.now(), timedelta())
        Delivery.objects.filter(state="waiting").update(next_try_at=timezone.now())
    assert Delivery.objects.get().state == "given_up" and len(receiver.seen) == 8
    assert timedelta(minutes=50) < waited < timedelta(minutes=70)
    assert deliver() == []


def test_a_redirect_is_not_followed(box: CountingTarget, receiver: Receiver) -> None:
    hook(receiver.url)
    held()
    receiver.status = 302
    assert deliver() == ["the webhook answered 302"]
    assert len(receiver.seen) == 1


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:{port}/hook", "not https"),
        ("https://127.0.0.1:{port}/hook", "not public"),
        ("https://[::1]:{port}/hook", "not public"),
        ("https://[::ffff:127.0.0.1]:{port}/hook", "not public"),
        ("https://0x7f000001:{port}/hook", "not public"),
        ("https://localhost:{port}/hook", "not public"),
        ("https://169.254.169.254/latest", "not public"),
        ("https://user:password@example.com/hook", "user name"),
        ("ftp://example.com/hook", "no http"),
    ],
)
def test_an_address_inside_is_refused_unless_the_webhook_is_marked_private(
    box: CountingTarget, receiver: Receiver, url: str, words: str
) -> None:
    hook(url.format(port=receiver.server_port), private=False)
    held()
    [error] = deliver()
    assert words in error, error
    assert receiver.seen == []


# -- receivers that misbehave ---------------------------------------------------------------------------------------


def test_a_slow_receiver_is_given_up_in_time_and_holds_up_no_other(
    box: CountingTarget, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.5)
    receiver.slow_s = 20
    for number in range(4):
        hook(receiver.url.replace("/hook", "/slow"), name=f"slow {number}")
    hook(receiver.url, name="quick")
    held()
    began = time.monotonic()
    told = deliver()
    assert time.monotonic() - began < 1.5
    assert sorted(told) == ["", *["the webhook gave no answer within 0.5 s"] * 4]


def test_an_answer_without_an_end_is_not_read(box: CountingTarget, receiver: Receiver) -> None:
    hook(receiver.url)
    held()
    receiver.status, receiver.endless = 200, True
    began = time.monotonic()
    assert deliver() == [""]
    assert time.monotonic() - began < webhooks.TIMEOUT_S


def test_a_webhook_that_is_switched_off_is_told_nothing(box: CountingTarget, receiver: Receiver) -> None:
    webhook = hook(receiver.url)
    held()
    Webhook.objects.filter(pk=webhook.pk).update(enabled=False)
    assert deliver() == [] and receiver.seen == []
    held(status="other")
    assert Delivery.objects.count() == 1


# -- names and addresses --------------------------------------------------------------------------------------------


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """What the name server says; the names that it was asked."""
    asked = []

    async def found(loop: Any, host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", found)
    return asked


def addressed(url: str) -> httpx.Request:
    webhook = Webhook(name="ops", url=url)
    return asyncio.run(webhooks._addressed(httpx.Request("POST", url), webhook))


def test_a_name_is_looked_up_once_and_its_address_is_what_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolving(monkeypatch, "1.1.1.1", "8.8.8.8")
    request = addressed("https://hooks.example:8443/T0/secret?x=1")
    assert str(request.url) == "https://1.1.1.1:8443/T0/secret?x=1" and asked == ["hooks.example"]
    assert request.headers["Host"] == "hooks.example:8443"
    assert request.extensions["sni_hostname"] == "hooks.example", "the certificate is checked for the name"


@pytest.mark.parametrize("inside", ["127.0.0.1", "10.0.0.8", "169.254.169.254", "::ffff:10.0.0.8", "64:ff9b::a00:8"])
def test_one_address_inside_among_public_ones_is_enough_to_refuse(monkeypatch: pytest.MonkeyPatch, inside: str) -> None:
    resolving(monkeypatch, "1.1.1.1", inside)
    with pytest.raises(NotPublicError, match="not public"):
        addressed("https://hooks.example/")
