"""`manage.py config import FILE [--yes] | export [--out FILE]`."""

from __future__ import annotations

import os
import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from core.errors import MeahError
from core.text import one_line
from workers import config_import
from workers.config_file import MAX_FILE_BYTES, Change, as_text

VALUE_CHARS: Final = 48


class Command(BaseCommand):
    help = "Import or export the workers' configuration (meah.config.json)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="action", required=True)
        importer = commands.add_parser(
            "import", help="Show what a file changes; with --yes, change it. What it does not mention stays."
        )
        importer.add_argument("file", type=Path)
        importer.add_argument("--yes", action="store_true", help="Write the changes.")
        exporter = commands.add_parser("export", help="Print the stored configuration. It holds no keys.")
        exporter.add_argument("--out", type=Path, help="Write it to this file instead.")

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        try:
            if action == "import":
                self._import(options["file"], write=options["yes"])
            else:
                self._export(options["out"])
        except MeahError as error:
            raise CommandError(_told(error)) from None

    def _import(self, path: Path, *, write: bool) -> None:
        data = _read(path)
        changes = config_import.preview(data)
        if changes and write:
            changes = config_import.import_config(data, principal="system")
        self._show(changes)
        if changes and write:
            self.stdout.write(self.style.SUCCESS(f"Written: {len(changes)} changed."))
        elif changes:
            self.stdout.write("Nothing is written yet. Run it again with --yes to write this.")

    def _show(self, changes: Sequence[Change]) -> None:
        if not changes:
            self.stdout.write("Nothing to change: the database already says what the file says.")
            return
        for line in _table(changes):
            self.stdout.write(line)
        for path in sorted(config_import.overridden(changes)):
            self.stdout.write(self.style.WARNING(f"{path} is set by the environment too, which wins over it."))

    def _export(self, out: Path | None) -> None:
        text = config_import.export_config()
        if out is None:
            self.stdout.write(text, ending="")
            return
        _write(out, text)
        self.stdout.write(f"Written to {out}.")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from None


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a reader never meets half a file."""
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}.") from None


def _table(changes: Sequence[Change]) -> list[str]:
    rows = [("setting", "before", "after")]
    rows += [(change.path, _cell(change.before), _cell(change.after)) for change in changes]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return [f"{path:<{widths[0]}}  {before:<{widths[1]}}  {after}" for path, before, after in rows]


def _cell(value: Any) -> str:
    return one_line(as_text(value), VALUE_CHARS)


def _told(error: MeahError) -> str:
    problems = error.details.get("problems")
    if not problems:
        return f"{error.code}: {error.message}\n{error.hint}"
    lines = [f"  {item.get('path') or item.get('variable')} {item['problem']}. {item['fix']}" for item in problems]
    return "\n".join([f"{error.code}: nothing is changed.", *lines])
