"""The least that an MCP client has to do: spawn a server, shake hands, list its tools. Without the SDK: it is quick."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import ROOT

WITHIN_S: Final = 60
HANDSHAKE: Final = (
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "benchmark", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)


class Spawned:
    """A server that has answered `tools/list`: with what, how long after its start, in which process."""

    def __init__(self, process: subprocess.Popen[bytes], begun: float) -> None:
        self.process = process
        _say(process, HANDSHAKE[0])
        _answer(process, 1)
        _say(process, *HANDSHAKE[1:])
        self.tools: list[dict[str, Any]] = _answer(process, 2)["tools"]
        self.took_s = time.perf_counter() - begun
        self._next_id = 2

    def begin(self, tool: str, arguments: dict[str, Any]) -> int:
        """Send a call; its id."""
        self._next_id += 1
        params = {"name": tool, "arguments": arguments}
        _say(self.process, {"jsonrpc": "2.0", "id": self._next_id, "method": "tools/call", "params": params})
        return self._next_id

    def answer(self, request_id: int) -> dict[str, Any]:
        return _answer(self.process, request_id)

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.answer(self.begin(tool, arguments))

    def pipelined(self, tool: str, arguments: dict[str, Any], calls: int, *, in_flight: int) -> None:
        """So many calls, always as many under way; raises RuntimeError when one fails."""
        assert self.process.stdout is not None
        for _ in range(in_flight):
            self.begin(tool, arguments)
        begun, answered = in_flight, 0
        for line in self.process.stdout:
            message = json.loads(line)
            if "id" not in message:
                continue
            if "error" in message or message["result"].get("isError"):
                raise RuntimeError(f"a call failed: {message}")
            answered += 1
            if answered == calls:
                return
            if begun < calls:
                self.begin(tool, arguments)
                begun += 1
        raise RuntimeError("the server ended before it had answered everything")

    def cpu_ms(self) -> float:
        """CPU time that the process has used so far: what a busy machine does not change. 0 where it is not told."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1000

    def rss_mb(self) -> float:
        """Resident memory now, of the process alone."""
        shown = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.process.pid)], check=True, capture_output=True, text=True
        )
        return int(shown.stdout) * 1024 / 1e6


@contextmanager
def spawned(command: Sequence[str], environ: dict[str, str]) -> Iterator[Spawned]:
    """Raises RuntimeError when the server does not answer. It is ended by closing its stdin, as clients do."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, env=environ, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        yield Spawned(process, begun)
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        try:
            process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def runmcp() -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), "runmcp"]


def bare_server(tools: Path) -> list[str]:
    """The yardstick; `tools` is a file with what it lists."""
    return [sys.executable, str(ROOT / "benchmarks" / "bare_server.py"), os.fspath(tools)]


def _say(process: subprocess.Popen[bytes], *messages: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
    process.stdin.flush()


def _answer(process: subprocess.Popen[bytes], request_id: int) -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        message = json.loads(line)
        if message.get("id") == request_id:
            if "error" in message:
                raise RuntimeError(f"the server answered with {message['error']}")
            result: dict[str, Any] = message["result"]
            return result
    raise RuntimeError(f"the server ended with status {process.wait()} before it answered")
