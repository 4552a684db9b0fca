"""Importing the SDK for stdio alone: without its web half, and without harm for who needs that half later."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT, compiled_environ

BEGIN = """
import sys
sys.path.insert(0, sys.argv[1])
from meah_site import lazy_sdk
lazy_sdk.install()
lazy_sdk.install()
from mcp.server.lowlevel.server import Server
"""
WEB = """
names = {name.partition(".")[0] for name in sys.modules}
assert not names & {"starlette", "uvicorn", "sse_starlette", "httpx", "httpx2", "click"}, names
try:
    Server("x").streamable_http_app()
except RuntimeError as error:
    assert "stdio alone" in str(error)
else:
    raise AssertionError
from starlette.applications import Starlette
assert Starlette().routes == []
from mcp.server.auth.settings import AuthSettings
assert AuthSettings.model_fields
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
assert StreamableHTTPSessionManager.__module__ == "mcp.server.streamable_http_manager"
"""
CLIENT = """
from mcp import Client, ClientSession
assert Client.__name__ == "Client"
import mcp.server
assert mcp.server.MCPServer.__name__ == "MCPServer"
"""


def run_after_import(test: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + test, str(ROOT)],
        env=compiled_environ(),
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_web_half_is_left_out_and_found_out_when_it_is_called_and_there_for_whoever_wants_it() -> None:
    run_after_import(WEB)


def test_the_client_comes_with_its_name() -> None:
    run_after_import(CLIENT)
