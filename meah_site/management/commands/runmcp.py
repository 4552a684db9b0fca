"""`manage.py runmcp`: the MCP server for Claude and other clients, over stdio or HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import Error as DatabaseError
from django.db import connection

from core.errors import MeahError
from core.hiding import hide_process
from core.logs import event
from core.redaction import redact
from core.text import one_line
from meah_site import http_options
from meah_site.start import database_error, fail, home_error

log = logging.getLogger("meah.mcp")

TERMINAL_HELP = """\
MEAH's MCP server is running and waits on stdin: this is normal, it prints nothing more. Stop it with Ctrl-C.
A client starts it by itself. To register it with Claude Code:
  claude mcp add meah -- {command}
"""


class Command(BaseCommand):
    help = "Serve MEAH's tools over MCP: on stdin and stdout, which belongs to the protocol, or with --transport http."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--role",
            choices=["agent", "approver"],
            default="agent",
            help="what is offered; the approver role decides as the user of MEAH_TOKEN (scope approve)",
        )
        parser.add_argument(
            "--allow-writes",
            action="store_true",
            help="run Methods that write; policy still holds",
        )
        parser.add_argument(
            "--print-tools", action="store_true", help="print MEAH's own tools and exit; needs no database"
        )
        parser.add_argument("--json", action="store_true", help="with --print-tools: as tools/list serves it")
        parser.add_argument("--all", action="store_true", help="with --print-tools: the direct tools of servers too")

        http_options.add_arguments(parser)

    def handle(self, *args: Any, role: str, **options: Any) -> None:
        parent = os.getppid()
        try:
            if options["print_tools"]:
                self._print_tools(role, as_json=options["json"], every=options["all"])
            elif options["transport"] == "http":
                self._serve_http(http_options.options_of({"role": role, **options}))
            else:
                self._serve(parent, role, allow_writes=options["allow_writes"])
        except MeahError as error:
            fail(error)
        except DatabaseError as error:
            fail(database_error(error))
        except OSError as error:
            fail(home_error(error))

    def _print_tools(self, role: str, *, as_json: bool, every: bool) -> None:
        from meah_site import lazy_sdk

        lazy_sdk.install()
        from meah_site.own_tools import direct, listed

        tools = listed(role)
        if every:
            _prepare_database()
            tools += direct("agent:*")
        if as_json:
            self.stdout.write(json.dumps({"tools": tools}, indent=2))
        else:
            self.stdout.write("\n".join(f"{tool['name']}  {_told(tool)}" for tool in tools))

    def _serve_http(self, chosen: http_options.HttpOptions) -> None:
        hide_process()
        from meah_site.serve_http import serve_http

        _prepare_database()
        serve_http(chosen)

    def _serve(self, parent: int, role: str, *, allow_writes: bool) -> None:
        hide_process()
        from meah_site import lazy_sdk

        lazy_sdk.install()
        from meah_site.stdio import Wire

        on_terminal = sys.stdin is not None and sys.stdin.isatty()
        wire = Wire()
        _prepare_database()
        if on_terminal:
            manage = Path(settings.BASE_DIR) / "manage.py"
            sys.stderr.write(TERMINAL_HELP.format(command=shlex.join([sys.executable, str(manage), "runmcp"])))
        ending = asyncio.run(_session(wire, parent, _identity(role), allow_writes))
        wire.finish()
        if ending == "server_failed":
            sys.exit(1)


def _identity(role: str) -> Any:
    """Who is served: the token's user where there is one. The approver role has to have one."""
    from approvals.tokens import recognise
    from core.secrets import name_secrets, read_secret
    from meah_site.mcp_server import Identity

    name_secrets(["MEAH_TOKEN"])
    secret = read_secret("MEAH_TOKEN")
    if secret is None and role == "approver":
        raise MeahError(
            "E_CONFIG",
            "The approver role needs MEAH_TOKEN.",
            hint="`manage.py tokens create NAME --user USER --scope approve` makes one; put it into the client's env.",
        )
    if secret is None:
        return Identity(role)
    token = recognise(secret, scope="approve" if role == "approver" else "agent")
    return Identity(role, f"token:{token.name}", token.user_id)


async def _session(wire: Any, parent: int, identity: Any, allow_writes: bool) -> str:
    from meah_site.serve_mcp import StdioSession

    return await StdioSession(wire, parent, identity, allow_writes=allow_writes).serve()


def _told(tool: Any) -> str:
    """What a tool is for, on one line that does nothing to a terminal."""
    text = str(tool.get("description") or tool.get("title") or "")
    return one_line(text, 120)


def _prepare_database() -> None:
    """An empty or older database is migrated, one process at a time; a newer one is refused."""
    from meah_site.schema import migration_turn, needs_migration, refuse_newer

    connection.ensure_connection()
    refuse_newer()
    if not needs_migration():
        return
    with migration_turn():
        if needs_migration():
            _migrate()


def _migrate() -> None:
    """In a child with the full settings. What it prints is no protocol and no log line: it is told when it fails."""
    child = subprocess.run(
        [sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), "migrate", "--no-input"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "meah_site.settings"},
    )
    if child.returncode:
        last = redact(child.stdout.strip().rpartition("\n")[2])[:500]
        raise MeahError(
            "E_CONFIG",
            f"The database could not be migrated: {last or 'migrate failed'}",
            hint="Run `manage.py migrate` by hand to see all it says.",
        )
    event(log, "database_migrated")
