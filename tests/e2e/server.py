"""`manage.py runmcp` as a child, spoken to in raw JSON-RPC frames: what the SDK's client would hide is seen here."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tests.conftest import ROOT, Home

T = TypeVar("T")

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
COMMAND = [sys.executable, str(ROOT / "manage.py"), "runmcp"]
PATIENCE_S = 60.0


class Server:
    """One child. Use in a `with`, so that it never outlives its test; every line of its stdout has to be a frame."""

    def __init__(
        self,
        home: Home,
        *,
        era: str = LEGACY,
        environ: Mapping[str, str] | None = None,
        cwd: str = "/",
        name: str = "tests",
        options: Sequence[str] = (),
    ) -> None:
        self.era = era
        self.name = name
        self.process = subprocess.Popen(
            [*COMMAND, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=home.environ | (environ or {}),
            cwd=cwd,
            bufsize=0,
        )
        self.notices: list[dict[str, Any]] = []
        self.log: list[str] = []
        self.strays: list[bytes] = []
        self._answers: dict[Any, dict[str, Any]] = {}
        self._next_id = 0
        self._arrived: queue.Queue[dict[str, Any]] = queue.Queue()
        self._threads = [
            threading.Thread(target=self._read_stdout, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        for thread in self._threads:
            thread.join(5)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        assert self.strays == []

    # -- frames -----------------------------------------------------------------------------------------------------

    def write(self, frame: bytes) -> None:
        """These bytes and a line feed, whatever they are."""
        assert self.process.stdin is not None
        data = memoryview(frame + b"\n")
        while data:
            data = data[self.process.stdin.write(data) :]

    def send(self, message: Mapping[str, Any]) -> None:
        self.write(json.dumps(message).encode())

    def begin(
        self, method: str, params: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> int:
        """Send a request; its id."""
        self._next_id += 1
        sent = dict(params or {})
        if envelope := {**self._envelope(), **(meta or {})}:
            sent["_meta"] = envelope
        self.send({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": sent})
        return self._next_id

    def answer(self, request_id: Any, *, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """The whole answer to a request, result or error."""
        until = time.monotonic() + within_s
        while request_id not in self._answers:
            message = self._arrived.get(timeout=max(0.01, until - time.monotonic()))
            if "method" in message:
                self.notices.append(message)
            else:
                self._answers[message["id"]] = message
        return self._answers.pop(request_id)

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The result of a request that succeeds."""
        answer = self.answer(self.begin(method, params))
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def initialize(self) -> dict[str, Any]:
        """What the server says of itself."""
        if self.era == MODERN:
            return self.request("server/discover")
        client = {"protocolVersion": self.era, "capabilities": {}, "clientInfo": {"name": self.name, "version": "1"}}
        result = self.request("initialize", client)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def cancel(self, request_id: int, reason: str | None = None) -> None:
        params = {"requestId": request_id} | ({} if reason is None else {"reason": reason})
        self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def _envelope(self) -> dict[str, Any]:
        if self.era != MODERN:
            return {}
        return {
            META + "protocolVersion": MODERN,
            META + "clientInfo": {"name": self.name, "version": "1"},
            META + "clientCapabilities": {},
        }

    # -- tools ------------------------------------------------------------------------------------------------------

    def begin_call(self, tool: str, *, token: Any = None, **arguments: Any) -> int:
        meta = None if token is None else {"progressToken": token}
        return self.begin("tools/call", {"name": tool, "arguments": arguments}, meta=meta)

    def envelope(self, request_id: int, *, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """The envelope of a tool's answer, after a look at how it is wrapped."""
        answer = self.answer(request_id, within_s=within_s)
        assert "result" in answer, answer
        result = answer["result"]
        envelope: dict[str, Any] = result["structuredContent"]
        assert json.loads(result["content"][0]["text"]) == envelope
        assert result.get("isError", False) is not envelope["ok"]
        return envelope

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.envelope(self.begin_call(tool, **arguments))

    def data(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The data of a call that succeeds."""
        envelope = self.call(tool, **arguments)
        assert envelope["ok"], envelope
        data: dict[str, Any] = envelope["data"]
        return data

    def error(self, tool: str, **arguments: Any) -> dict[str, Any]:
        envelope = self.call(tool, **arguments)
        assert not envelope["ok"], envelope
        error: dict[str, Any] = envelope["error"]
        return error

    def worker(self, worker_id: str) -> dict[str, Any]:
        return self.data("meah_get_agent", workerId=worker_id)

    def ended(self, worker_id: str, *, within_s: float = 30.0) -> dict[str, Any]:
        """The worker once it has ended."""
        return eventually(lambda: ended_one(self.worker(worker_id)), within_s=within_s)

    # -- the process ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End its input, as a client that goes."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def gone(self, *, within_s: float) -> int:
        """Its exit status; a failure when it is still there."""
        status = self.process.wait(within_s)
        for thread in self._threads:
            thread.join(5)
        return status

    def events(self) -> Iterator[dict[str, Any]]:
        """What it logged, line by line; every line has to be JSON."""
        return (json.loads(line) for line in self.log)

    def logged(self, event: str) -> bool:
        return any(line.get("event") == event for line in self.events())

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        for line in _lines(self.process.stdout.fileno()):
            try:
                message = json.loads(line)
                assert message["jsonrpc"] == "2.0"
            except (ValueError, KeyError, TypeError, AssertionError):
                self.strays.append(line)
            else:
                self._arrived.put(message)

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in _lines(self.process.stderr.fileno()):
            self.log.append(line.decode())


def _lines(fd: int) -> Iterator[bytes]:
    with os.fdopen(os.dup(fd), "rb") as stream:
        yield from stream


def ended_one(worker: dict[str, Any]) -> dict[str, Any] | None:
    return None if worker["state"] in ("queued", "running") else worker


def eventually(look: Callable[[], T | None], *, within_s: float) -> T:
    """What `look` returns once it returns something."""
    until = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < until, f"not within {within_s} s"
        time.sleep(0.05)
    return found


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"
