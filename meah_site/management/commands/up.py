"""`manage.py up`: migrate, set up what a first run needs, serve the admin."""

from __future__ import annotations

import fcntl
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from core.errors import MeahError
from meah_site.login_link import make_link
from meah_site.serve_web import HOST, bound_socket, serve

DEFAULT_PORT = 7817


class Command(BaseCommand):
    help = "Start MEAH: migrate the database, serve the admin on loopback, print a one-time login link."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help=f"default {DEFAULT_PORT}")

    def handle(self, *args: Any, port: int, **options: Any) -> None:
        try:
            listener = bound_socket(port)
            _migrate()
            serve(listener, lambda: self._greet(port))
        except MeahError as error:
            raise CommandError(f"{error.message}\n{error.hint}") from error
        except OperationalError as error:
            raise CommandError(
                f"The database can not be used: {error}".strip() + "\nCheck DATABASE_URL, and that MEAH_HOME "
                f"({settings.MEAH_HOME}) can be written."
            ) from error
        self.stdout.write("MEAH has stopped.")

    def _greet(self, port: int) -> None:
        base_url = f"http://{HOST}:{port}"
        manage = Path(settings.BASE_DIR) / "manage.py"
        self.stdout.write(
            f"""
MEAH is running at {base_url}

Log in (once, within ten minutes; `manage.py login_link` prints another):
  {make_link(base_url)}

Give it to Claude Code:
  claude mcp add meah -- {sys.executable} {manage} runmcp

Stop it with Ctrl-C.
"""
        )
        self.stdout.flush()


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 65_536:
        raise ValueError(text)
    return port


def _migrate() -> None:
    """One process at a time; the others find it done."""
    with (Path(settings.MEAH_HOME) / "migrate.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        call_command("migrate", interactive=False, verbosity=0)
