"""The installation: versions, MEAH_HOME, the secret key, the `.env` file."""

from __future__ import annotations

import os
import platform
import sqlite3
import stat
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Final

import django
from django.conf import settings

from core.env import read_env_file
from meah_site.doctor.findings import Finding, Group, examined, info, ok, problem, warning
from meah_site.version import version

OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
SHOWN_NAMES: Final = 6


def examine() -> Group:
    return examined(
        "Installation",
        ("versions", versions),
        ("MEAH_HOME", home),
        ("secret key", secret_key),
        (".env", env_file),
    )


def versions() -> Iterator[Finding]:
    yield info("MEAH", version())
    yield info(
        "runs on",
        f"Python {platform.python_version()}, Django {django.get_version()}, "
        f"SQLite {sqlite3.sqlite_version}, mcp {_version_of('mcp')}, {platform.system()}",
    )


def home() -> Iterator[Finding]:
    path = Path(settings.MEAH_HOME)
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        yield problem(
            "MEAH_HOME",
            f"{path} belongs to user {found.st_uid}, this process to {os.geteuid()}",
            "Run MEAH as the user whose directory it is, or set MEAH_HOME to another one.",
        )
    elif not os.access(path, os.W_OK | os.X_OK):
        yield problem("MEAH_HOME", f"{path} can not be written", f"chmod u+rwx {path}")
    elif mode & OTHERS:
        yield problem("MEAH_HOME", f"{path} has mode {mode:04o}: others can look inside", f"chmod 700 {path}")
    else:
        yield ok("MEAH_HOME", f"{path}, mode {mode:04o}")


def secret_key() -> Iterator[Finding]:
    path = Path(settings.MEAH_HOME) / "secret_key"
    if os.environ.get("MEAH_SECRET_KEY"):
        yield ok("secret key", "from MEAH_SECRET_KEY")
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OTHERS:
        yield problem(
            "secret key",
            f"{path} has mode {mode:04o}: others may have read it",
            f"chmod 600 {path}; delete it if somebody may have read it (everybody has to log in again).",
        )
    elif len(path.read_text().strip()) < 32:
        yield problem("secret key", f"{path} is too short to be safe", "Delete it and start MEAH: it makes a new one.")
    else:
        yield ok("secret key", f"{path}, mode {mode:04o}")


def env_file() -> Iterator[Finding]:
    """The file that this process has read at its start, and which of its lines something else overrides."""
    named = os.environ.get("MEAH_ENV_FILE", ".env")
    if not named:
        yield info(".env", "none: MEAH_ENV_FILE is empty")
        return
    path = Path(settings.BASE_DIR) / Path(named).expanduser()
    if not path.exists():
        yield from _no_file(path, named_by_hand="MEAH_ENV_FILE" in os.environ)
        return
    values = read_env_file(path)
    overridden = sorted(name for name, value in values.items() if os.environ.get(name) != value)
    yield ok(".env", f"{path}, {len(values)} variables")
    if overridden:
        names = ", ".join(overridden[:SHOWN_NAMES]) + (" …" if len(overridden) > SHOWN_NAMES else "")
        yield info(".env", f"The environment sets these otherwise, and wins here: {names}")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OTHERS:
        yield warning(".env", f"It has mode {mode:04o}: others can read keys in it", f"chmod 600 {path}")


def _no_file(path: Path, *, named_by_hand: bool) -> Iterator[Finding]:
    if named_by_hand:
        yield problem(".env", f"MEAH_ENV_FILE names {path}, which is not there", "Correct it, or leave it unset.")
    else:
        yield info(".env", f"none at {path}", "Copy .env.example to it to set keys for every process at once.")


def _version_of(package: str) -> str:
    try:
        return version_of(package)
    except PackageNotFoundError:
        return "not installed"
