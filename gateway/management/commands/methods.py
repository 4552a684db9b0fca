"""`manage.py methods`: manifests imported, checked, listed; the schema that they have to fit."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.db import Error as DatabaseError

from approvals.approver import approving_user
from audit.services import user_principal
from core.errors import MeahError
from core.redaction import redact
from core.text import one_line, visible
from gateway import manifest, methods, presentation
from gateway.methods import MethodPreview
from gateway.models import MethodVersion

# Nobody is logged in on a command line.
PRINCIPAL = "system"
HEADINGS = ["method", "version", "effects", "steps", "reviewed by", "description"]


class Command(BaseCommand):
    help = "Methods: import and check their manifests, list the versions, print the manifest's JSON Schema."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        found = actions.add_parser("import", help="show what manifests would add, and with --yes add it")
        found.add_argument("file", nargs="+", type=Path, metavar="FILE")
        found.add_argument("--yes", action="store_true", help="apply what is shown")
        found.add_argument("--reviewed", action="store_true", help="also mark them reviewed, as the person you are")
        found.add_argument("--user", default="", help="whose password is asked, where MEAH_TOKEN is not set")
        check = actions.add_parser("check", help="say what is wrong with manifests; changes nothing")
        check.add_argument("file", nargs="+", type=Path, metavar="FILE")
        listing = actions.add_parser("list", help="list every version, and who reviewed it")
        listing.add_argument("--json", action="store_true", help="print JSON")
        actions.add_parser("schema", help="print the JSON Schema of a manifest")

    def handle(self, *, action: str, **options: Any) -> None:
        actions: dict[str, Callable[..., bool]] = {
            "import": self.import_files,
            "check": self.check_files,
            "list": self.list_versions,
            "schema": self.schema,
        }
        try:
            fine = actions[action](**options)
        except MeahError as error:
            self.stderr.write(visible(redact(f"{error.message} {error.hint}".strip())))
            sys.exit(1)
        except DatabaseError as error:
            self.stderr.write(f"The database does not answer: {error}".strip())
            sys.exit(1)
        if not fine:
            sys.exit(1)

    def import_files(self, *, file: list[Path], yes: bool, reviewed: bool, user: str, **_options: Any) -> bool:
        previews = [self._shown(path) for path in file]
        good = [shown for shown in previews if shown is not None and not shown.problems]
        if not yes:
            self.stdout.write("Nothing was changed. Apply it with --yes (and --reviewed).")
            return len(good) == len(file)
        person = approving_user(scope="operate", username=user) if reviewed else None
        for shown in good:
            version = methods.add(shown, principal=user_principal(person) if person else PRINCIPAL)
            if person is not None:
                version = methods.review(version, user=person, digest=version.digest)
            self.stdout.write(visible(f"Added {version}" + (", reviewed." if version.reviewed_by else ".")))
        if good and not reviewed:
            self.stdout.write("Agents see them once a person has marked them reviewed, in the admin or by --reviewed.")
        return len(good) == len(file)

    def check_files(self, *, file: list[Path], **_options: Any) -> bool:
        previews = [self._shown(path) for path in file]
        return all(shown is not None and not shown.problems for shown in previews)

    def list_versions(self, *, json: bool, **_options: Any) -> bool:
        versions = list(MethodVersion.objects.select_related("method").order_by("method__name", "-order"))
        if json:
            return self._print_json([_object(version) for version in versions])
        for line in presentation.table([HEADINGS, *map(_row, versions)]) if versions else ["There are no Methods."]:
            self.stdout.write(line)
        return True

    def schema(self, **_options: Any) -> bool:
        return self._print_json(manifest.json_schema())

    def _shown(self, path: Path) -> MethodPreview | None:
        """Printed; None where it can not be read at all."""
        try:
            shown = methods.preview(path.read_bytes())
        except OSError as error:
            self.stdout.write(visible(f"{path}: it can not be read: {error.strerror}"))
            return None
        except MeahError as error:
            self.stdout.write(visible(f"{path}: {redact(error.message)}"))
            return None
        for line in _lines(path, shown):
            self.stdout.write(visible(line))
        return shown

    def _print_json(self, value: Any) -> bool:
        self.stdout.write(json.dumps(value, indent=2))
        return True


def _lines(path: Path, shown: MethodPreview) -> Iterator[str]:
    spec = shown.manifest.spec
    yield f"{path}: {shown.name}  ({shown.status}, effects: {spec.effects}, {len(spec.steps)} steps)"
    for step in spec.steps:
        after = f"  after {', '.join(sorted(step.dependencies))}" if step.dependencies else ""
        yield f"  {step.id}: {step.server}/{step.tool}{after}"
    yield from (f"  warning: {warning}" for warning in shown.warnings)
    yield from (f"  refused: {problem}" for problem in shown.problems)


def _row(version: MethodVersion) -> list[str]:
    found = _object(version)
    return [
        found["method"],
        found["version"],
        found["effects"],
        str(found["steps"]),
        found["reviewedBy"] or "-",
        one_line(found["description"], 80),
    ]


def _object(version: MethodVersion) -> dict[str, Any]:
    return {
        "method": version.method.name,
        "version": version.version,
        "effects": version.effects,
        "steps": len(manifest.stored(version.manifest).spec.steps),
        "reviewedBy": version.reviewed_by or None,
        "digest": version.digest,
        "description": version.description,
    }
