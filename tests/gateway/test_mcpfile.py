"""`.mcp.json` files: what is taken from them, what is refused, what is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.errors import MeahError
from gateway.launch import Launch
from gateway.mcpfile import Entry, parse, render
from gateway.rules import unpinned_package


def entry(value: Any, name: str = "crm") -> Entry:
    [found] = parse(json.dumps({"mcpServers": {name: value}}))
    return found


def problems(value: Any, name: str = "crm", exposure: str = "direct") -> str:
    return " ".join(entry(value, name).check(exposure))


def test_a_stdio_server_is_read_whole() -> None:
    found = entry(
        {
            "command": "python",
            "args": ["server.py", "--x"],
            "env": {"CRM_KEY": "${CRM_KEY}", "MODE": "test"},
            "inheritEnv": ["HTTPS_PROXY"],
            "timeoutMs": 5000,
            "meah": {"exposure": "direct", "prefix": "", "pinScope": "contract", "writeDefault": "deny"},
        }
    )
    assert found.check("direct") == []
    assert found.launch == Launch(
        server="crm",
        command="python",
        args=("server.py", "--x"),
        env=(("CRM_KEY", "${CRM_KEY}"), ("MODE", "test")),
        inherit_env=("HTTPS_PROXY",),
        timeout_ms=5000,
    )
    assert (found.exposure, found.prefix, found.pin_scope) == ("direct", "", "contract")
    assert (found.defaults, found.notes) == ({"write_default": "deny"}, [])


@pytest.mark.parametrize(
    ("value", "transport", "private"),
    [
        ({"url": "https://mcp.example.com/mcp"}, "http", False),
        ({"type": "http", "url": "https://mcp.example.com"}, "http", False),
        ({"type": "sse", "url": "https://mcp.example.com/sse"}, "sse", False),
        ({"transportType": "http", "url": "http://127.0.0.1:8080/mcp"}, "http", True),
        ({"url": "http://localhost:8080/mcp"}, "http", True),
        ({"url": "http://10.0.0.1/mcp", "meah": {"private": True}}, "http", True),
    ],
)
def test_a_remote_server_is_known_by_its_url(value: Any, transport: str, private: bool) -> None:
    found = entry(value | {"headers": {"Authorization": "Bearer ${CRM_KEY}"}})
    assert (found.launch.transport, found.launch.private, found.check("lazy")) == (transport, private, [])
    assert found.launch.variables == {"CRM_KEY"}


def test_unknown_keys_are_named() -> None:
    found = entry({"command": "x", "disabled": True, "oauth": {}, "meah": {"exposure": "lazy", "shade": 1}})
    assert "disabled" in found.notes[0] and "meah.shade" in found.notes[0]
    assert any("oauth" in note for note in found.notes[1:])


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({}, "command"),
        ({"command": ""}, "command"),
        ({"command": 5}, "command"),
        ({"command": "x", "args": "y"}, "args"),
        ({"command": "x", "args": [1]}, "args"),
        ({"command": "x", "env": {"A": 1}}, "env"),
        ({"command": "x", "env": {"A B": "1"}}, "A B"),
        ({"command": "x", "env": {"A": "${B:-c}"}}, "${B:-c}"),
        ({"command": "x", "args": ["${SECRET}"]}, "args[0]"),
        ({"command": "x", "env": {"API_TOKEN": "in-clear-text"}}, "${API_TOKEN}"),
        ({"command": "x", "args": ["--key=sk-ant-abcdefghijklmnopqrst"]}, "args[0]"),
        ({"command": "x", "inheritEnv": ["A=B"]}, "A=B"),
        ({"command": "x", "timeoutMs": 0}, "timeoutMs"),
        ({"command": "x", "timeoutMs": "5"}, "timeoutMs"),
        ({"command": "x", "type": "carrier pigeon"}, "type"),
        ({"command": "x", "meah": {"exposure": "everywhere"}}, "exposure"),
        ({"command": "x", "meah": {"prefix": "a__b"}}, "prefix"),
        ({"command": "x", "meah": {"readDefault": "maybe"}}, "readDefault"),
        ({"url": "ftp://example.com"}, "url"),
        ({"url": "http://example.com/mcp"}, "https only"),
        ({"url": "https://user:pass@example.com"}, "password"),
        ({"url": "https://example.com/${KEY}"}, "references"),
        ({"url": "https://example.com", "headers": {"X-Key": "a\nb"}}, "X-Key"),
        ({"url": "https://example.com", "headers": {"Authorization": "Bearer in-clear-text"}}, "${AUTHORIZATION}"),
        ("text", "object"),
    ],
)
def test_what_is_wrong_is_said(value: Any, word: str) -> None:
    assert word in problems(value)


@pytest.mark.parametrize(
    ("name", "exposure", "fits"),
    [
        ("crm", "direct", True),
        ("a" * 32, "direct", True),
        ("a" * 33, "direct", False),
        ("a" * 33, "lazy", True),
        ("a__b", "direct", False),
        ("a__b", "off", True),
        ("meah", "lazy", False),
        ("MEAH", "lazy", False),
        ("-x", "lazy", False),
        ("a/b", "lazy", False),
        ("a\n", "lazy", False),
        ("a" * 129, "lazy", False),
        ("", "lazy", False),
    ],
)
def test_names_of_servers(name: str, exposure: str, fits: bool) -> None:
    assert bool(problems({"command": "x"}, name, exposure)) is not fits


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"servers": {}}', '{"mcpServers": []}', '{"mcpServers": {"a": {}, "a": {}}}']
)
def test_a_file_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(MeahError):
        parse(text)


@pytest.mark.parametrize(
    ("command", "args", "package"),
    [
        ("npx", ["-y", "name"], "name"),
        ("npx", ["-y", "@scope/name"], "@scope/name"),
        ("npx", ["-y", "@scope/name@latest"], "@scope/name@latest"),
        ("npx", ["-y", "name@^1.2.3"], "name@^1.2.3"),
        ("npx", ["-y", "@scope/name@1.2.3", "--flag"], None),
        ("/usr/bin/npx", ["--package=name", "run"], "name"),
        ("uvx", ["mcp-server-git"], "mcp-server-git"),
        ("uvx", ["mcp-server-git==2026.1.1"], None),
        ("uvx", ["--from", "git-server@1.2.3", "serve"], None),
        ("uv", ["tool", "run", "thing"], "thing"),
        ("pnpm", ["dlx", "name@1.0.0"], None),
        ("node", ["index.js"], None),
        ("npx", ["./local"], None),
    ],
)
def test_unpinned_packages_are_seen(command: str, args: list[str], package: str | None) -> None:
    assert unpinned_package(Launch(server="x", command=command, args=tuple(args))) == package


def test_what_is_written_is_read_back() -> None:
    first = Launch(server="a", command="x", args=("1",), env=(("A", "${A}"),), inherit_env=("B",), timeout_ms=5)
    second = Launch(server="b", transport="sse", url="https://example.com", headers=(("X", "${Y}"),))
    text = render([(first, {"exposure": "direct", "prefix": ""}), (second, {"exposure": "off"})])
    assert [found.launch for found in parse(text)] == [first, second]
    assert [found.prefix for found in parse(text)] == ["", None]


def test_what_a_lazy_server_may_do_is_read_and_written_back() -> None:
    found = entry({"command": "x", "lifecycle": "keep_alive", "meah": {"concurrent": True}})
    assert found.launch.keep_alive and found.launch.concurrent and found.notes == []
    written = json.loads(render([(found.launch, {"concurrent": True})]))["mcpServers"]["crm"]
    assert written["lifecycle"] == "keep_alive" and written["meah"] == {"concurrent": True}
    odd = entry({"command": "x", "lifecycle": "forever"})
    assert odd.problems == ["lifecycle: one of keep_alive, keep-alive, idle, lazy."]
