"""Servers that we did not write, unchanged: every tool is offered, and what they answer passes whole."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management import call_command

from gateway.models import PinState, Tool
from tests.gateway.real_servers import Real, npm, pypi
from tests.gateway.support import call, gateway


def git_repository(path: Path) -> Path:
    repository = path / "repository"
    repository.mkdir()
    (repository / "file").write_text("hello\n")
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]
    for command in (["init", "-q"], ["add", "file"], [*who, "commit", "-q", "-m", "First commit"]):
        subprocess.run(["git", *command], cwd=repository, check=True)
    return repository


def files(path: Path) -> Real:
    (path / "files").mkdir(exist_ok=True)
    (path / "files" / "a.txt").write_text("content of a")
    return npm("server-filesystem", str(path / "files"))


SERVERS: dict[str, tuple[Callable[[Path], Real], int]] = {
    "everything": (lambda path: npm("server-everything"), 10),
    "files": (files, 10),
    "memory": (lambda path: npm("server-memory"), 9),
    "time": (lambda path: pypi("mcp-server-time"), 2),
    "git": (lambda path: pypi("mcp-server-git", "--repository", str(git_repository(path))), 8),
}


def imported(name: str, path: Path) -> None:
    """As an operator does it; then every tool of it must be there."""
    found = SERVERS[name][0](path)
    entry: dict[str, Any] = {"command": found.command, "args": list(found.args)}
    if name == "memory":
        entry["env"] = {"MEMORY_FILE_PATH": str(path / "memory.jsonl")}
    file = path / "real.mcp.json"
    file.write_text(json.dumps({"mcpServers": {name: entry}}))
    call_command("servers", "import", str(file), "--yes", "--exposure", "direct", stdout=io.StringIO())
    states = list(Tool.objects.filter(server__name=name).values_list("pin_state", flat=True))
    assert len(states) >= SERVERS[name][1]
    assert set(states) == {PinState.ACCEPTED}, "every tool is offered"


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(block.get("text", "") for block in result["content"])


def test_everything_passes_every_kind_of_content(home: Any, run: Any, tmp_path: Path) -> None:
    imported("everything", tmp_path)
    steps: list[float] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    async def scenario() -> None:
        async with gateway():

            async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
                return dict(await call(tool, arguments, server="everything"))

            assert "hi" in text_of(await ask("echo", message="hi"))
            assert "5" in text_of(await ask("get-sum", a=2, b=3))
            assert "image" in {block["type"] for block in (await ask("get-tiny-image"))["content"]}
            structured = await ask("get-structured-content", location="New York")
            assert structured["structuredContent"]["temperature"]
            reference = await ask("get-resource-reference", resourceType="Text", resourceId=1)
            assert "resource" in {block["type"] for block in reference["content"]}
            links = await ask("get-resource-links", count=3)
            assert [block["type"] for block in links["content"]].count("resource_link") == 3
            annotated = await ask("get-annotated-message", messageType="error", includeImage=True)
            assert all("annotations" in block for block in annotated["content"])
            assert (await ask("get-sum", a=2, b=3)).get("isError") is not True
            long = {"duration": 1, "steps": 5}
            await call("trigger-long-running-operation", long, server="everything", progress=tell)
            assert steps == sorted(steps) and len(steps) == 5

    run(scenario())


def test_a_file_is_read_and_written(home: Any, run: Any, tmp_path: Path) -> None:
    imported("files", tmp_path)

    async def scenario() -> None:
        async with gateway():
            path = str(tmp_path / "files" / "a.txt")
            read = await call("read_text_file", {"path": path}, server="files")
            assert "content of a" in text_of(read)
            target = tmp_path / "files" / "b.txt"
            await call("write_file", {"path": str(target), "content": "written"}, server="files")
            assert target.read_text() == "written"
            outside = await call("read_text_file", {"path": "/etc/hostname"}, server="files")
            assert outside["isError"] is True

    run(scenario())


def test_a_memory_is_kept(home: Any, run: Any, tmp_path: Path) -> None:
    imported("memory", tmp_path)

    async def scenario() -> None:
        async with gateway():
            entity = {"name": "MEAH", "entityType": "product", "observations": ["governs"]}
            await call("create_entities", {"entities": [entity]}, server="memory")
            found = await call("search_nodes", {"query": "governs"}, server="memory")
            assert "MEAH" in text_of(found)

    run(scenario())
    assert "governs" in (tmp_path / "memory.jsonl").read_text()


def test_the_time_is_told(home: Any, run: Any, tmp_path: Path) -> None:
    imported("time", tmp_path)

    async def scenario() -> None:
        async with gateway():
            told = await call("get_current_time", {"timezone": "UTC"}, server="time")
            assert "UTC" in text_of(told)

    run(scenario())


def test_a_repository_is_read(home: Any, run: Any, tmp_path: Path) -> None:
    imported("git", tmp_path)
    repository = str(tmp_path / "repository")

    async def scenario() -> None:
        async with gateway():
            told = await call("git_log", {"repo_path": repository}, server="git")
            assert "First commit" in text_of(told)
            assert "clean" in text_of(await call("git_status", {"repo_path": repository}, server="git"))

    run(scenario())
