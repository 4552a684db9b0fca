"""`manage.py smoke` as a child: the real server over stdio, every tool once, offline."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.conftest import ROOT, Home
from tests.snapshots.update import TOOLS

PATIENCE_S = 150


def test_every_tool_passes(home: Home) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "smoke"],
        cwd="/",
        env=home.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MISS" not in done.stdout and "checks passed with provider mock" in done.stdout
    tools = [tool["name"] for tool in json.loads(TOOLS["agent"].read_text())["tools"]]
    assert len(tools) == 13 and all(name in done.stdout for name in tools)
