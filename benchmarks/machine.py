"""What it was measured on: enough to compare, nothing that names this machine or its people."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def described() -> dict[str, str]:
    one, five, _ = os.getloadavg()
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": _commit(),
        "cpu": f"{_cpu()}, {os.cpu_count()} cores, load {one:.1f} (1 min) and {five:.1f} (5 min) at the start",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "django": version("django"),
        "sqlite": sqlite3.sqlite_version,
        "mcp": version("mcp"),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _commit() -> str:
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        return f"{commit} with changes" if _git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30)
    return done.stdout.strip()
