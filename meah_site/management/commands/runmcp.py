"""`manage.py runmcp`: the MCP server for Claude and other clients, over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import OperationalError, connection

from core.errors import MeahError
from core.redaction import redact_value

TERMINAL_HELP = """\
MEAH's MCP server is running and waits on stdin: this is normal, it prints nothing more. Stop it with Ctrl-C.
A client starts it by itself. To register it with Claude Code:
  claude mcp add meah -- {python} {manage} runmcp
"""


class Command(BaseCommand):
    help = "Serve MEAH's tools over MCP on stdin and stdout; stdout belongs to the protocol, logs go to stderr."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        pass

    def handle(self, *args: Any, **options: Any) -> None:
        from meah_site import lazy_sdk

        lazy_sdk.install()
        from meah_site.stdio import Wire

        if sys.stdin.isatty():
            manage = Path(settings.BASE_DIR) / "manage.py"
            sys.stderr.write(TERMINAL_HELP.format(python=sys.executable, manage=manage))
        wire = Wire()
        try:
            _migrate_if_needed()
            asyncio.run(_serve(wire))
        except MeahError as error:
            _fail(error)
        except OperationalError as error:
            _fail(MeahError("E_CONFIG", f"The database can not be used: {error}".strip(), hint=_DATABASE_HINT))


_DATABASE_HINT = (
    "Check DATABASE_URL and that the server runs, or that MEAH_HOME can be written; see `manage.py doctor`."
)


async def _serve(wire: Any) -> None:
    from meah_site.serve_mcp import StdioSession

    await StdioSession(wire).serve()


def _migrate_if_needed() -> None:
    """An empty or older database is migrated by a child with the full settings, one process at a time."""
    import fcntl

    from meah_site.schema import needs_migration

    connection.ensure_connection()
    if not needs_migration():
        return
    with (Path(settings.MEAH_HOME) / "migrate.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not needs_migration():
            return
        manage = Path(settings.BASE_DIR) / "manage.py"
        full = os.environ | {"DJANGO_SETTINGS_MODULE": "meah_site.settings"}
        child = subprocess.run(
            [sys.executable, str(manage), "migrate", "--no-input"],
            stdin=subprocess.DEVNULL,
            stdout=2,
            env=full,
        )
        if child.returncode:
            raise MeahError("E_CONFIG", "The database could not be migrated.", hint="Run `manage.py migrate` by hand.")


def _fail(error: MeahError) -> None:
    sys.stderr.write(json.dumps({"event": "start_failed", "error": redact_value(error.as_dict())}) + "\n")
    sys.stderr.flush()
    sys.exit(1)
