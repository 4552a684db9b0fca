"""The yardstick: fastmcp's proxy, run by the Python of an environment of its own, in front of the same child."""

from __future__ import annotations

import sys

from fastmcp.server import create_proxy

CHILD = {"mcpServers": {"echo": {"command": sys.argv[1], "args": sys.argv[2:], "transport": "stdio"}}}

create_proxy(CHILD, name="proxy").run(show_banner=False)
