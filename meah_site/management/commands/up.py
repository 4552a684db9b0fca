"""`manage.py up`: migrate, set up what a first run needs, serve the admin."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import Error as DatabaseError

from core.errors import MeahError
from core.hiding import hide_process
from core.logs import event
from meah_site.login_link import make_link
from meah_site.schema import migration_turn, refuse_newer
from meah_site.serve_web import HOST, serve
from meah_site.standby import bound_or_stand_by
from meah_site.start import database_error, fail_in_words, home_error
from workers.config import effective

DEFAULT_PORT = 7817
log = logging.getLogger("meah.web")


class Command(BaseCommand):
    help = "Start MEAH: migrate the database, serve the admin on loopback, print a one-time login link."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help=f"default {DEFAULT_PORT}")
        parser.add_argument("--companion-of", type=int, help=SUPPRESS)

    def handle(self, *args: Any, port: int, companion_of: int | None, **options: Any) -> None:
        try:
            self._serve(port, companion_of)
        except KeyboardInterrupt:
            pass
        except MeahError as error:
            if companion_of is None:
                fail_in_words(error)
            # A client's connection never fails of a console.
            event(log, "console_unavailable", level="warn", code=error.code, why=error.message, fix=error.hint)
        except DatabaseError as error:
            fail_in_words(database_error(error))
        except OSError as error:
            fail_in_words(home_error(error))
        self.stdout.write("MEAH has stopped.")

    def _serve(self, port: int, companion_of: int | None) -> None:
        hide_process()
        wanted = (lambda: True) if companion_of is None else (lambda: os.getppid() == companion_of)
        listener = bound_or_stand_by(port, on_standby=lambda: self._tell_standby(port, companion_of), wanted=wanted)
        if listener is None:
            return
        _migrate()
        # The engine asks too; here it is said before anything is served.
        effective()
        if companion_of is None:
            serve(listener, lambda: self._greet(port))
        else:
            serve(listener, lambda: event(log, "console_of_client", url=f"http://{HOST}:{port}"), wanted=wanted)

    def _tell_standby(self, port: int, companion_of: int | None) -> None:
        url = f"http://{HOST}:{port}"
        if companion_of is not None:
            event(log, "console_standby", url=url)
            return
        self.stdout.write(
            f"MEAH's console runs already, at {url} (`manage.py login_link` prints a link to it).\n"
            "This one stands by, and takes over when that one ends. Stop it with Ctrl-C."
        )
        self.stdout.flush()

    def _greet(self, port: int) -> None:
        base_url = f"http://{HOST}:{port}"
        manage = Path(settings.BASE_DIR) / "manage.py"
        self.stdout.write(
            f"""
MEAH is running at {base_url}

Log in (once, within ten minutes; `manage.py login_link` prints another):
  {make_link(base_url)}

Give it to Claude Code:
  claude mcp add meah -- {shlex.join([sys.executable, str(manage), "runmcp"])}

Stop it with Ctrl-C.
"""
        )
        self.stdout.flush()


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) < 65_536:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is no port: a port is a number from 1 to 65535")


def _migrate() -> None:
    with migration_turn():
        refuse_newer()
        call_command("migrate", interactive=False, verbosity=0)
