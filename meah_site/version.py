"""The one version, as `pyproject.toml` has it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path


@cache
def version() -> str:
    text = (Path(__file__).resolve().parent.parent / "pyproject.toml").read_text()
    # Not by tomllib: it takes longer to import than all of our own modules, at every start of the MCP server.
    found = re.search(r'^version = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise LookupError("pyproject.toml has no version")
    return found[1]
