"""`manage.py login_link`: print a one-time link into the admin."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, ProgrammingError

from core.errors import MeahError
from meah_site.login_link import link_user, make_link

DEFAULT_PORT = 7817


class Command(BaseCommand):
    help = "Print a link that logs a person into the admin: once, within ten minutes."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"where MEAH serves; default {DEFAULT_PORT}")
        parser.add_argument(
            "--base-url", default="", help="address of the admin as the browser sees it, instead of --port"
        )

    def handle(self, *args: Any, port: int, base_url: str, **options: Any) -> None:
        if base_url and not base_url.startswith(("http://", "https://")):
            raise CommandError(f"--base-url has no scheme; write it as http://{base_url}")
        try:
            link = make_link(base_url or f"http://127.0.0.1:{port}")
            self.stdout.write(link)
            self.stderr.write(f"Logs in {link_user()} once, within ten minutes. MEAH has to be running: `make run`.")
        except MeahError as error:
            raise CommandError(f"{error.message}\n{error.hint}") from error
        except (OperationalError, ProgrammingError) as error:
            raise CommandError(
                f"The database can not be used: {error}".strip() + "\nStart MEAH once: `make run`."
            ) from error
