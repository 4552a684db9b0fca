"""Streams over HTTP: progress as it happens, a request that is taken back, news of the list, and a quick end."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Home
from tests.e2e.http_server import HttpServer, Session, events_of, message, modern, with_headers
from tests.e2e.server import LEGACY, META, MODERN, eventually
from tests.e2e.test_http import token
from tests.e2e.test_proxied import POLICY, manage, set_up

ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])
SLOW = {"name": "meah_delegate_task", "arguments": {"task": "[mock wait=110000]"}}
SUBSCRIPTION = META + "subscriptionId"


class Listener:
    """An open stream, read by a thread of its own."""

    def __init__(self, response: httpx.Response) -> None:
        self.events: list[dict[str, Any]] = []
        self.ended = threading.Event()
        self._response = response
        threading.Thread(target=self._read, daemon=True).start()

    def has(self, method: str) -> bool:
        return any(event.get("method") == method for event in list(self.events))

    def _read(self) -> None:
        try:
            for event in events_of(self._response.iter_lines()):
                self.events.append(event)
        except httpx.HTTPError:
            pass
        self.ended.set()


@contextmanager
def opened(
    server: HttpServer, era: str, body: dict[str, Any], secret: str, session: Session | None = None
) -> Iterator[Listener]:
    """A POST whose answer is a stream."""
    headers = {"mcp_protocol_version": LEGACY}
    if era == MODERN:
        body, headers = modern(body["method"], body["params"], number=body["id"])
    chosen = with_headers(secret, session.id if session else "", **headers)
    with (
        httpx.Client(timeout=60) as client,
        client.stream("POST", server.url, json=body, headers=chosen) as response,
    ):
        assert response.status_code == 200
        yield Listener(response)


@contextmanager
def listening(server: HttpServer, era: str, secret: str, session: Session | None) -> Iterator[Listener]:
    """The stream on which a client of that era hears that the list has changed."""
    if session is None:
        wanted = {"notifications": {"toolsListChanged": True}}
        with opened(server, era, message("subscriptions/listen", wanted), secret) as listener:
            yield listener
        return
    chosen = with_headers(secret, session.id, mcp_protocol_version=LEGACY)
    with httpx.Client(timeout=60) as client, client.stream("GET", server.url, headers=chosen) as response:
        assert response.status_code == 200
        yield Listener(response)


@ERAS
def test_progress_comes_while_the_call_runs_and_not_with_its_answer(home: Home, era: str) -> None:
    with HttpServer(home) as server:
        secret = token("ci", "agent")
        session = Session(server, secret) if era == LEGACY else None
        call = {
            "name": "meah_delegate_task",
            "arguments": {"task": "[mock wait=14000]"},
            "_meta": {"progressToken": "p"},
        }
        with opened(server, era, message("tools/call", call, number=5), secret, session) as stream:
            eventually(lambda: stream.has("notifications/progress"), within_s=40)
            assert not any("result" in event for event in stream.events)
            eventually(lambda: any("result" in event for event in stream.events), within_s=60)
        assert {event["params"]["progressToken"] for event in stream.events if "method" in event} == {"p"}


def test_a_client_that_closes_its_stream_takes_its_request_back_in_the_newer_era_only(home: Home) -> None:
    from workers.models import Worker

    with HttpServer(home) as server:
        secret = token("ci", "agent")
        session = Session(server, secret)
        call = message("tools/call", SLOW | {"_meta": {"progressToken": "p"}}, number=5)
        for era, used in ((MODERN, None), (LEGACY, session)):
            with opened(server, era, call, secret, used) as stream:
                eventually(lambda: stream.has("notifications/progress"), within_s=40)
        eventually(lambda: Worker.objects.filter(state="cancelled").count() == 1, within_s=15)
        assert Worker.objects.get(state="cancelled").pk == Worker.objects.order_by("pk")[0].pk
        assert Worker.objects.order_by("pk")[1].state == "running"
        session.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
        eventually(lambda: Worker.objects.filter(state="cancelled").count() == 2, within_s=15)


@ERAS
def test_clients_are_told_that_the_list_has_changed(home: Home, tmp_path: Path, era: str) -> None:
    set_up(home, tmp_path)
    with HttpServer(home) as server:
        secret = token("ci", "agent")
        session = Session(server, secret) if era == LEGACY else None
        if session is not None:
            assert session.presented["capabilities"]["tools"]["listChanged"] is True
            session.request("tools/list")
        else:
            body, headers = modern("tools/list")
            server.post(body, token=secret, **headers)
        with listening(server, era, secret, session) as stream:
            if era == MODERN:
                eventually(lambda: stream.has("notifications/subscriptions/acknowledged"), within_s=15)
            time.sleep(1)
            assert not stream.has("notifications/tools/list_changed")
            (tmp_path / "policy.yaml").write_text(POLICY.replace("effect: deny", "effect: require_approval"))
            manage(home, "policy", "import", str(tmp_path / "policy.yaml"), "--yes")
            eventually(lambda: stream.has("notifications/tools/list_changed"), within_s=15)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_within_seconds_whatever_is_open(home: Home, number: signal.Signals) -> None:
    from approvals.models import Process
    from workers.models import Worker

    with HttpServer(home) as server:
        secret = token("ci", "agent")
        session = Session(server, secret)
        slow = message("tools/call", SLOW | {"_meta": {"progressToken": "p"}}, number=5)
        with (
            listening(server, LEGACY, secret, session) as standing,
            listening(server, MODERN, secret, None) as subscribed,
            opened(server, MODERN, slow, secret) as running,
            opened(server, LEGACY, slow, secret, session) as also_running,
        ):
            streams = (standing, subscribed, running, also_running)
            eventually(lambda: running.has("notifications/progress"), within_s=30)
            begun = time.monotonic()
            server.process.send_signal(number)
            assert server.process.wait(15) == 0
            assert time.monotonic() - begun < 10
            assert all(stream.ended.wait(5) for stream in streams)
        assert set(Worker.objects.values_list("state", flat=True)) == {"cancelled"}
        assert Process.objects.count() == 0
    assert not any("Traceback" in json.dumps(line) for line in server.log)
