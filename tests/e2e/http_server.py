"""`manage.py runmcp --transport http` as a child, and raw requests to it: what an SDK would hide is seen here."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from tests.conftest import Home
from tests.e2e.consoles import free_port
from tests.e2e.server import COMMAND, LEGACY, META, MODERN, eventually

READY_WITHIN_S = 60
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


class HttpServer:
    """One child. Use in a `with`; `home` may be shared with the ORM of the test."""

    def __init__(
        self, home: Home, *options: str, environ: Mapping[str, str] | None = None, port: int | None = None
    ) -> None:
        self.port = port or free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.base_url}/mcp"
        self.log: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [*COMMAND, "--transport", "http", "--port", str(self.port), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=home.environ | (environ or {}),
            cwd="/",
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> HttpServer:
        eventually(lambda: self.logged("server_ready") or self.process.poll() is not None, within_s=READY_WITHIN_S)
        assert self.process.poll() is None, self.log
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(5)
            assert self.process.stdout is not None
            self.process.stdout.close()

    def logged(self, event: str) -> bool:
        return any(line.get("event") == event for line in self.log)

    def ended(self, *, within_s: float = READY_WITHIN_S) -> dict[str, Any]:
        """Its last words, for a child that does not start."""
        assert self.process.wait(within_s) != 0
        self._reader.join(5)
        return self.log[-1]

    def post(self, body: Any, *, token: str = "", session: str = "", **headers: str) -> httpx.Response:
        """`body` as it is where it is bytes, else as JSON; header names with _ for -."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.post(self.url, content=content, headers=with_headers(token, session, **headers), timeout=60)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                self.log.append(json.loads(line))
                continue
            self.log.append({"event": "not_json", "text": line})


def with_headers(token: str = "", session: str = "", **more: str) -> dict[str, str]:
    named = {name.replace("_", "-"): value for name, value in more.items()}
    bearer = {"authorization": f"Bearer {token}"} if token else {}
    return HEADERS | bearer | ({"mcp-session-id": session} if session else {}) | named


def message(method: str, params: Mapping[str, Any] | None = None, *, number: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params or {})}


def initialize(era: str = LEGACY) -> dict[str, Any]:
    client = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
    return message("initialize", client)


def modern(method: str, params: Mapping[str, Any] | None = None, *, number: Any = 1) -> tuple[dict[str, Any], dict]:
    """A request of the newer era, and its headers."""
    envelope = {
        META + "protocolVersion": MODERN,
        META + "clientInfo": {"name": "tests", "version": "1"},
        META + "clientCapabilities": {},
    }
    params = dict(params or {})
    params["_meta"] = envelope | params.get("_meta", {})
    headers = {"mcp_protocol_version": MODERN, "mcp_method": method}
    if "name" in params:
        headers["mcp_name"] = params["name"]
    return message(method, params, number=number), headers


def answer_of(response: httpx.Response) -> dict[str, Any]:
    """The JSON-RPC answer, plain or as the last event of a stream."""
    if response.headers["content-type"].startswith("text/event-stream"):
        return list(events_of(response.text.splitlines()))[-1]
    return dict(response.json())


def events_of(lines: Any) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith("data:") and line[5:].strip():
            yield json.loads(line[5:])


class Session:
    """A session of the handshake era."""

    def __init__(self, server: HttpServer, token: str = "") -> None:
        self._server = server
        self._token = token
        opened = server.post(initialize(), token=token)
        assert opened.status_code == 200, opened.text
        self.id = opened.headers["mcp-session-id"]
        self.presented = answer_of(opened)["result"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, body: Any, **options: Any) -> httpx.Response:
        chosen = {"token": self._token, "session": self.id, "mcp_protocol_version": LEGACY} | options
        return self._server.post(body, **chosen)

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        answer = answer_of(self.send(message(method, params, number=time.monotonic_ns() % 10**9)))
        assert "result" in answer, answer
        return dict(answer["result"])

    def data(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        assert result["structuredContent"]["ok"], result
        return dict(result["structuredContent"]["data"])
