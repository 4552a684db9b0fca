"""`manage.py doctor`: what is configured, whether it works, and what to do about what does not."""

from __future__ import annotations

import json
import shutil
from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import BaseCommand
from django.core.management.color import no_style

from meah_site.doctor import examine
from meah_site.doctor.findings import Level
from meah_site.doctor.text import lines
from meah_site.management.commands.login_link import DEFAULT_PORT

WIDTHS: Final = (60, 110)
UNSEEN_WIDTH: Final = 80


class Command(BaseCommand):
    help = (
        "Look at the installation, the database, processes, port, providers, keys and the audit chain, and say what "
        "to do about each thing that is wrong. Exit status: 0 without problems, 1 with one."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--port", type=int, default=DEFAULT_PORT, help=f"where the console is; default {DEFAULT_PORT}"
        )
        parser.add_argument(
            "--probe",
            nargs="?",
            const="",
            metavar="PROVIDER",
            help="also call this provider, or every one: lists its models and asks one of them for a word",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, port: int, probe: str | None, json: bool, **options: Any) -> None:
        report = examine(port=port, probe=probe)
        if json:
            self._print_json(report.as_dict())
        else:
            on_terminal = self.stdout.isatty()
            paint = self._painter(coloured=on_terminal or options["force_color"])
            self.stdout.write("\n".join(lines(report, width=_width(on_terminal=on_terminal), paint=paint)))
        if not report.healthy:
            raise SystemExit(1)

    def _print_json(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, ensure_ascii=False, indent=2))

    def _painter(self, *, coloured: bool) -> Any:
        style = self.style if coloured else no_style()
        paints = {Level.OK: style.SUCCESS, Level.WARNING: style.WARNING, Level.PROBLEM: style.ERROR}
        return lambda level, text: paints[level](text) if level in paints else text


def _width(*, on_terminal: bool) -> int:
    if not on_terminal:
        return UNSEEN_WIDTH
    low, high = WIDTHS
    return max(low, min(shutil.get_terminal_size().columns, high))
