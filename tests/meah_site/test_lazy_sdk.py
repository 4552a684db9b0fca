"""Importing the SDK for stdio alone: without its web half, and without harm for who needs that half later."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

BEGIN = """
import sys
sys.path.insert(0, sys.argv[1])
from meah_site import lazy_sdk
lazy_sdk.install()
lazy_sdk.install()
from mcp.server.lowlevel.server import Server
"""
TESTS = {
    "the web half is not imported": """
names = {name.partition(".")[0] for name in sys.modules}
assert not names & {"starlette", "uvicorn", "sse_starlette", "httpx", "httpx2", "click"}, names
""",
    "it is found out when it is called": """
try:
    Server("x").streamable_http_app()
except RuntimeError as error:
    assert "stdio alone" in str(error)
else:
    raise AssertionError
""",
    "the real modules are there for whoever wants them": """
from starlette.applications import Starlette
assert Starlette().routes == []
from mcp.server.auth.settings import AuthSettings
assert AuthSettings.model_fields
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
assert StreamableHTTPSessionManager.__module__ == "mcp.server.streamable_http_manager"
""",
    "the client comes with its name": """
from mcp import Client, ClientSession
assert Client.__name__ == "Client"
import mcp.server
assert mcp.server.MCPServer.__name__ == "MCPServer"
""",
}


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
def test_imported_for_stdio_alone(test: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + test, str(ROOT)], capture_output=True, text=True, cwd="/", timeout=60
    )
    assert done.returncode == 0, done.stderr
