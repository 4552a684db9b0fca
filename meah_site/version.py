"""The one version, as `pyproject.toml` has it."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path


@cache
def version() -> str:
    text = (Path(__file__).resolve().parent.parent / "pyproject.toml").read_text()
    return str(tomllib.loads(text)["project"]["version"])
