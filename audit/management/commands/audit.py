"""`manage.py audit`: verify the chain or a bundle of it, print its head, export it."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand
from django.db import Error as DatabaseError

from audit import services
from audit.bundle import verify_file
from audit.verdict import Verdict
from core.errors import MeahError

WHOLE: Final = 0
TAMPERED: Final = 1
COULD_NOT_TELL: Final = 2
# Nobody is logged in on a command line.
PRINCIPAL: Final = "system"


class Command(BaseCommand):
    help = (
        "Verify the audit chain or an exported bundle, print the head to anchor, export a bundle. "
        "Exit status: 0 whole, 1 tampered, 2 could not tell."
    )
    # A bundle is verified without a database, and a tampered one must not hinder looking at it.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        verify = actions.add_parser("verify", help="verify the chain, or a bundle")
        verify.add_argument("file", nargs="?", type=Path, help="a bundle that `audit export` wrote")
        verify.add_argument("--anchor", metavar="HASH", help="a head noted earlier, which must be in the chain")
        head = actions.add_parser("head", help="print the head: note its hash elsewhere, as an anchor")
        export = actions.add_parser("export", help="write the chain into a bundle")
        export.add_argument("--out", type=Path, required=True, metavar="FILE")
        export.add_argument("--force", action="store_true", help="replace the file if it is there")
        export.add_argument("--verify", action="store_true", help="verify the bundle after writing it")
        for action in (verify, head, export):
            action.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *, action: str, **options: Any) -> None:
        run: dict[str, Callable[..., int]] = {"verify": self.verify, "head": self.head, "export": self.export}
        try:
            status = run[action](**options)
        except MeahError as error:
            status = self._could_not_tell(error, as_json=options["json"])
        except DatabaseError as error:
            unavailable = MeahError("E_UNAVAILABLE", f"The database does not answer: {error}".strip())
            status = self._could_not_tell(unavailable, as_json=options["json"])
        if status != WHOLE:
            raise SystemExit(status)

    def verify(self, *, file: Path | None, anchor: str | None, json: bool, **_options: Any) -> int:
        if file is not None:
            verdict = verify_file(file, anchor=anchor, progress=self._progress())
        else:
            verdict = services.verify(anchor=anchor, progress=self._progress())
        self._show(verdict, as_json=json)
        if file is None:
            self._record(verdict)
        return WHOLE if verdict.whole else TAMPERED

    def head(self, *, json: bool, **_options: Any) -> int:
        end = services.head()
        if json:
            self._print_json({"log": end.log, "size": end.size, "hash": end.hash})
        else:
            self.stdout.write(f"log   {end.log}\nsize  {end.size}\nhash  {end.hash}")
            self.stdout.write(f"Note it elsewhere; later: manage.py audit verify --anchor {end.hash}")
        return WHOLE

    def export(self, *, out: Path, force: bool, verify: bool, json: bool, **_options: Any) -> int:
        end = services.export_to(out, principal=PRINCIPAL, replace=force, progress=self._progress())
        if verify:
            verdict = verify_file(out, progress=self._progress())
            self._show(verdict, as_json=json)
            return WHOLE if verdict.whole else TAMPERED
        if json:
            self._print_json({"file": str(out), "log": end.log, "size": end.size, "hash": end.hash})
        else:
            self.stdout.write(f"Wrote {end.size} entries of {end.log} to {out}, head {end.hash}")
        return WHOLE

    def _record(self, verdict: Verdict) -> None:
        try:
            services.record_verification(verdict, principal=PRINCIPAL)
        except MeahError as error:
            self.stderr.write(f"This verification could not be recorded: {error.message}")

    def _show(self, verdict: Verdict, *, as_json: bool) -> None:
        if as_json:
            self._print_json(verdict.as_dict())
        else:
            self.stdout.write("\n".join(verdict.lines()))

    def _could_not_tell(self, error: MeahError, *, as_json: bool) -> int:
        if as_json:
            self._print_json({"verdict": "unknown", "error": error.as_dict()})
        else:
            self.stderr.write(f"Could not tell: {error.message} {error.hint}")
        return COULD_NOT_TELL

    def _print_json(self, value: Any) -> None:
        self.stdout.write(json.dumps(value, ensure_ascii=False))

    def _progress(self) -> Callable[[int, int], None] | None:
        """Shows how far it is, on a terminal only."""
        if not self.stderr.isatty():
            return None
        return lambda done, total: self.stderr.write(f"\r{done} of {total}", ending="\r" if done < total else "\n")
