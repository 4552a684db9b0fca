"""One throw-away MEAH_HOME: its database, users, tokens, the CRM, and MCP clients of real `runmcp` processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from django.conf import settings

from core.errors import JsonObject

ROOT = Path(settings.BASE_DIR)
EXAMPLES = ROOT / "examples"
APPROVERS = ("ann", "ben")
COMMAND_TIMEOUT_S = 90
SETTLE_WITHIN_S = 20


class LabError(Exception):
    """The lab itself broke: a command failed, or something never came."""


class Lab:
    """Use as `async with Lab(directory) as lab`. `sabotage` names a module that is run before each MEAH process."""

    def __init__(self, directory: Path, *, sabotage: str = "", crm_environ: Mapping[str, str] | None = None) -> None:
        self.home = directory / "home"
        self.crm_file = directory / "crm.json"
        self._sabotage = sabotage
        self._crm_environ = dict(crm_environ or {})
        self._tokens: dict[str, str] = {}

    async def __aenter__(self) -> Lab:
        words = ["-m", "meah_site.lab.prepare", str(EXAMPLES / "policy.yaml"), str(self._crm_config()), *APPROVERS]
        environ = self.environ | {"DJANGO_SETTINGS_MODULE": "meah_site.settings"}
        said = await self._run([sys.executable, *words], environ)
        self._tokens = json.loads(said.splitlines()[-1])
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    # -- MEAH ---------------------------------------------------------------------------------------------------

    async def manage(self, *arguments: str, token_of: str = "", check: bool = True) -> str:
        """Run a command; its output. Raises LabError with what it said when it fails (unless `check` is off)."""
        environ = self.environ | ({"MEAH_TOKEN": self._tokens[token_of]} if token_of else {})
        return await self._run([*self._python("manage.py"), *arguments], environ, check=check)

    async def _run(self, words: Sequence[str], environ: Mapping[str, str], *, check: bool = True) -> str:
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd="/",
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), COMMAND_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            raise LabError(f"{' '.join(words)} took too long") from None
        if check and process.returncode:
            raise LabError(f"{' '.join(words)}: {(err or out).decode(errors='replace').strip()[-2000:]}")
        return out.decode() + ("" if check else err.decode())

    @property
    def environ(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MEAH_", "DJANGO_"))}
        return kept | {
            "MEAH_HOME": str(self.home),
            "MEAH_ENV_FILE": "",
            "DATABASE_URL": "sqlite:///db.sqlite3",
            "MEAH_LOG_LEVEL": "error",
            "PYTHONPATH": str(ROOT),
        }

    def _python(self, script: str) -> list[str]:
        if not self._sabotage:
            return [sys.executable, str(ROOT / script)]
        return [sys.executable, "-m", self._sabotage, str(ROOT / script)]

    # -- the CRM ------------------------------------------------------------------------------------------------

    def _crm_config(self) -> Path:
        config = json.loads((EXAMPLES / "crm.mcp.json").read_text())
        entry = config["mcpServers"]["crm"]
        entry["command"] = sys.executable
        entry["args"] = [str(EXAMPLES / "crm" / "server.py"), "--data", str(self.crm_file)]
        entry["env"] = entry.get("env", {}) | self._crm_environ
        path = self.home.parent / "crm.mcp.json"
        path.write_text(json.dumps(config))
        return path

    def crm(self) -> JsonObject:
        """The CRM's own records, read from outside; it writes them with its first write."""
        data: JsonObject = json.loads(self.crm_file.read_text()) if self.crm_file.exists() else {}
        return data

    def effects(self, tool: str = "") -> list[JsonObject]:
        """What the CRM says that it did, by its own count."""
        effects: list[JsonObject] = self.crm().get("effects", [])
        return [effect for effect in effects if not tool or effect["tool"] == tool]

    # -- clients ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def agent(self, name: str = "stub", *, role: str = "agent", token_of: str = "") -> AsyncIterator[Agent]:
        """A client of its own `runmcp` process."""
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        environ = self.environ | {"MEAH_AGENT": name} | ({"MEAH_TOKEN": self._tokens[token_of]} if token_of else {})
        words = [*self._python("manage.py"), "runmcp", "--role", role]
        parameters = StdioServerParameters(command=words[0], args=words[1:], env=environ, cwd="/")
        async with Client(stdio_client(parameters)) as client:
            yield Agent(client)


def _from_text(result: Any) -> JsonObject:
    """Where another shape was promised, MEAH's own answer comes as text alone."""
    try:
        answer = json.loads(result.content[0].text)
    except (AttributeError, IndexError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


class Agent:
    """A deterministic stub in a model's place: it does what the scenario, or a text that it reads, says."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in (await self.client.list_tools()).tools}

    async def call(self, tool: str, /, **arguments: Any) -> JsonObject:
        """The structured answer: the tool's own, or MEAH's envelope."""
        result = await self.client.call_tool(tool, arguments)
        return result.structured_content or _from_text(result)

    async def settled(self, approval_id: str) -> JsonObject:
        """The request once it has ended."""
        for _ in range(SETTLE_WITHIN_S):
            answer = await self.call("approval_status", approvalId=approval_id, waitMs=1000)
            found: JsonObject = answer["data"]
            if found["status"] not in ("pending_approval", "approved", "executing"):
                return found
        raise LabError(f"{approval_id} did not end within {SETTLE_WITHIN_S} s")
