"""The lab of the fault tests: agents that can be killed, an approver, and the truth by the CRM's own count."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from core.errors import JsonObject
from meah_site.lab.bench import Lab

AGENT = "stub"
WITHIN_S = 40.0
SQLITE = "sqlite:///db.sqlite3"
# Starts something that outlives the server's standard input: only who looks for it can end it.
STUBBORN = 'tail -F "$0" >/dev/null 2>&1 & exec "$@"'


class DeadError(Exception):
    """The process has ended before it answered."""


class RefusedError(Exception):
    """An error of the protocol came in place of a result."""


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
        """Raises DeadError, RefusedError."""
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._answers[number] = answer
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        if self._reader.done():
            raise DeadError
        frame = await asyncio.wait_for(answer, WITHIN_S)
        if "error" in frame:
            raise RefusedError(frame["error"])
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

    async def call(self, tool: str, /, *, step: str = "", **arguments: Any) -> JsonObject:
        """The structured answer. Raises DeadError when the process ends first, RefusedError as `request` does."""
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

    def __init__(self, directory: Path, database_url: str = SQLITE, *, sabotage: str = "") -> None:
        super().__init__(directory, sabotage=sabotage, crm_environ={"CRM_IGNORE_KEYS": "1"})
        self._database_url = database_url
        self._living: set[int] = set()

    @property
    def environ(self) -> dict[str, str]:
        return super().environ | {"DATABASE_URL": self._database_url}

    def _crm_config(self) -> Path:
        path = super()._crm_config()
        config = json.loads(path.read_text())
        entry = config["mcpServers"]["crm"]
        entry["args"] = ["-c", STUBBORN, str(self.crm_file), entry["command"], *entry["args"]]
        entry["command"] = "/bin/sh"
        path.write_text(json.dumps(config))
        return path

    async def judge_by(self, *rules: JsonObject) -> None:
        """Import these rules beside those of the example."""
        path = self.home.parent / "rules.yaml"
        path.write_text(json.dumps({"version": 1, "rules": rules}))
        await self.manage("policy", "import", str(path), "--yes")

    @asynccontextmanager
    async def process(
        self, *, role: str = "agent", token_of: str = "", crash_at: str = "", crash_on: str = ""
    ) -> AsyncIterator[Process]:
        """A `runmcp`; `crash_at` names a point of `crashing`, `crash_on` the tool whose call meets it."""
        environ = self.environ | {"MEAH_AGENT": AGENT}
        environ |= {"MEAH_TOKEN": self._tokens[token_of]} if token_of else {}
        words = self._python("manage.py")
        if crash_at:
            environ |= {"MEAH_CRASH_AT": crash_at, "MEAH_CRASH_ON": crash_on, "MEAH_CRASH_FILE": str(self.crm_file)}
            words[1:1] = ["-m", "tests.e2e.faults.crashing"]
        child = await asyncio.create_subprocess_exec(
            *(*words, "runmcp", "--role", role),
            env=environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=2**24,
        )
        self._living.add(child.pid)
        process = Process(child)
        try:
            await process.begin()
            yield process
        finally:
            await _ended(process)
            self._living.discard(child.pid)

    def count(self, note: str) -> int:
        """How often the CRM has done what carries this note."""
        return sum(note in json.dumps(effect["arguments"]) for effect in self.effects())

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """From MEAH's own database, beside all processes."""
        if self._database_url != SQLITE:
            import psycopg

            with psycopg.connect(self._database_url) as server:
                return server.execute(sql.replace("?", "%s"), values).fetchall()
        with closing(sqlite3.connect(f"file:{self.home / 'db.sqlite3'}?mode=ro", uri=True)) as database:
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

    def orphans(self) -> list[int]:
        """What CRMs of this lab have left running, with no living MEAH process of the lab above it."""
        parents, mine = {}, []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                state, parent = path.joinpath("stat").read_text().rpartition(")")[2].split()[:2]
                parents[int(path.name)] = int(parent)
                if state != "Z" and str(self.crm_file).encode() in path.joinpath("cmdline").read_bytes():
                    mine.append(int(path.name))
            except OSError:
                continue
        return [pid for pid in mine if not self._living & set(_line_of(pid, parents))]

    async def no_orphan_is_left(self, *, within_s: float = 10) -> None:
        """As long as a MEAH process lives, what dead ones have left is gone soon."""
        await self.until(lambda: not self.orphans(), "what a dead process has left is still there", within_s)

    async def chain_is_whole(self) -> None:
        said = await self.manage("audit", "verify", check=False)
        assert "whole" in said, said


async def _ended(process: Process) -> None:
    child = process.child
    if child.stdin is not None and child.returncode is None:
        child.stdin.close()
        try:
            await asyncio.wait_for(child.wait(), 10)
        except TimeoutError:
            process.kill()
    await child.wait()


def _line_of(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """A process and all that stand above it."""
    while pid:
        yield pid
        pid = parents.get(pid, 0)
