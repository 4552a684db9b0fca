"""The lab of the fault tests: agents that can be killed, an approver, and the truth by the CRM's own count."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from core.errors import JsonObject
from meah_site.lab.bench import ROOT, Lab

AGENT = "stub"
WITHIN_S = 40.0
MODERN = "2026-07-28"
FIGURES = ROOT / "benchmarks" / "results" / "faults.txt"


class DeadError(Exception):
    """The process has ended before it answered."""


class Process:
    """One `runmcp`, and the client's end of its pipe. An SDK's client would mourn a killed server too loudly."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self._number = 0
        self._answers: dict[int, asyncio.Future[JsonObject]] = {}
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.child.stdout is not None
        while line := await self.child.stdout.readline():
            frame = json.loads(line)
            waiting = self._answers.pop(frame.get("id"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(frame)
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(DeadError())

    async def request(self, method: str, **params: Any) -> JsonObject:
        """Raises DeadError."""
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._answers[number] = answer
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        if self._reader.done():
            raise DeadError
        frame = await asyncio.wait_for(answer, WITHIN_S)
        assert "result" in frame, frame
        return dict(frame["result"])

    def _send(self, frame: JsonObject) -> None:
        assert self.child.stdin is not None
        if self.child.returncode is not None or self.child.stdin.is_closing():
            raise DeadError
        self.child.stdin.write(json.dumps(frame).encode() + b"\n")

    async def begin(self) -> None:
        client = {"name": AGENT, "version": "1"}
        await self.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, tool: str, *, step: str = "", **arguments: Any) -> JsonObject:
        """The structured answer. Raises DeadError when the process ends first."""
        meta = {"_meta": {"meah/run": "faults", "meah/step": step}} if step else {}
        result = await self.request("tools/call", name=tool, arguments=arguments, **meta)
        # Where another shape was promised, MEAH's own answer comes as text alone.
        return dict(result.get("structuredContent") or json.loads(result["content"][0]["text"]))

    def kill(self) -> None:
        if self.child.returncode is None:
            os.kill(self.child.pid, signal.SIGKILL)

    async def gone(self) -> int:
        return await asyncio.wait_for(self.child.wait(), WITHIN_S)


class Bench(Lab):
    """The CRM here knows no idempotency keys: that nothing happens twice is MEAH's doing alone."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, crm_environ={"CRM_IGNORE_KEYS": "1"})

    @asynccontextmanager
    async def process(self, *, role: str = "agent", token_of: str = "", crash_at: str = "") -> AsyncIterator[Process]:
        environ = self.environ | {"MEAH_AGENT": AGENT}
        environ |= {"MEAH_TOKEN": self._tokens[token_of]} if token_of else {}
        words = [sys.executable, str(ROOT / "manage.py")]
        if crash_at:
            environ |= {"MEAH_CRASH_AT": crash_at, "MEAH_CRASH_FILE": str(self.crm_file)}
            words[1:1] = ["-m", "tests.e2e.faults.crashing"]
        child = await asyncio.create_subprocess_exec(
            *(*words, "runmcp", "--role", role),
            env=environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=2**24,
        )
        process = Process(child)
        try:
            await process.begin()
            yield process
        finally:
            if child.stdin is not None and child.returncode is None:
                child.stdin.close()
                try:
                    await asyncio.wait_for(child.wait(), 10)
                except TimeoutError:
                    process.kill()
            await child.wait()

    def count(self, note: str) -> int:
        """How often the CRM has done what carries this note."""
        return sum(note in json.dumps(effect["arguments"]) for effect in self.effects())

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """From MEAH's own database, beside all processes."""
        with sqlite3.connect(f"file:{self.home / 'db.sqlite3'}?mode=ro", uri=True) as database:
            return database.execute(sql, values).fetchall()

    def call_state(self, note: str) -> str:
        found = self.rows("SELECT state FROM approvals_call WHERE arguments LIKE ?", f"%{note}%")
        assert len(found) <= 1, found
        return str(found[0][0]) if found else ""

    async def until(self, holds: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
        deadline = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < deadline, what
            await asyncio.sleep(0.05)

    def children(self) -> list[int]:
        """Living CRM children of this lab, whoever their parent is."""
        mine = str(self.crm_file).encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if mine in path.read_bytes() and path.parent.joinpath("stat").read_text().split()[2] != "Z":
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    async def no_orphan_is_left(self, *, living: int, within_s: float = 15) -> None:
        """Each living process may have its own CRM; whatever a dead one has left must be gone."""
        deadline = time.monotonic() + within_s
        while len(left := self.children()) > living:
            described = [(pid, Path(f"/proc/{pid}/stat").read_text().split()[2:4]) for pid in left]
            assert time.monotonic() < deadline, f"left behind, with state and parent: {described}"
            await asyncio.sleep(0.1)

    async def chain_is_whole(self) -> None:
        said = await self.manage("audit", "verify", check=False)
        assert "whole" in said, said


def tell(name: str, figures: Mapping[str, object]) -> None:
    """Print the figures of a test; the full counts are kept."""
    line = f"faults {name}: " + ", ".join(f"{key} {value}" for key, value in figures.items())
    print(line)
    if os.environ.get("KEEP_FAULT_FIGURES"):
        with FIGURES.open("a") as file:
            file.write(line + "\n")
