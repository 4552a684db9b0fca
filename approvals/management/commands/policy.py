"""`manage.py policy import FILE [--yes] | export [--out FILE] | check [FILE] | explain SERVER TOOL ARGS [--as WHO]`."""

from __future__ import annotations

import json
import os
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from approvals import policy_import, trial
from approvals.explanation import Explanation
from approvals.holds import load_settings
from approvals.known_tools import approvers_in, known_tools
from approvals.policy import REQUIRE_APPROVAL, Subject
from approvals.policy_check import Finding, check
from approvals.policy_store import current
from approvals.policy_yaml import MAX_BYTES
from core.canonical import StrictDecodeError, strict_loads
from core.errors import JsonObject, MeahError
from core.text import one_line, visible

ANYBODY: Final = "agent:claude"
VALUE_CHARS: Final = 200


class Command(BaseCommand):
    help = "Read, change, check and try the policy: what agents may do."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        importer = actions.add_parser("import", help="show what a file changes; with --yes, change it")
        importer.add_argument("file", type=Path)
        importer.add_argument("--yes", action="store_true", help="write the changes")
        importer.add_argument("--replace", action="store_true", help="remove stored rules that the file does not name")
        exporter = actions.add_parser("export", help="print the stored policy as YAML")
        exporter.add_argument("--out", type=Path, help="write it to this file instead")
        checker = actions.add_parser(
            "check", help="find rules that can hardly be meant; exit status 1 when there are any"
        )
        checker.add_argument("file", type=Path, nargs="?", help="a policy file, as it would be after its import")
        explainer = actions.add_parser("explain", help="the verdict on one call, and every rule that had a say")
        explainer.add_argument("server")
        explainer.add_argument("tool")
        explainer.add_argument("arguments", help="a JSON object, or @FILE that holds one")
        explainer.add_argument("--as", dest="principal", default=ANYBODY, help=f"who calls; default {ANYBODY}")

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        try:
            if action == "import":
                self._import(options["file"], write=options["yes"], replace=options["replace"])
            elif action == "export":
                self._export(options["out"])
            elif action == "check":
                self._check(options["file"])
            else:
                self._explain(options["server"], options["tool"], options["arguments"], options["principal"])
        except MeahError as error:
            raise CommandError(_told(error)) from None

    # -- import and export

    def _import(self, path: Path, *, write: bool, replace: bool) -> None:
        data = _read(path)
        plan = policy_import.preview(data, replace=replace)
        if plan.changes and write:
            plan = policy_import.import_policy(data, principal="system", replace=replace)
        for line in _change_lines(plan):
            self.stdout.write(line)
        if not plan.changes:
            self.stdout.write("Nothing to change: the stored policy already says what the file says.")
            return
        for finding in check(plan.policy(), known_tools(), approvers_in):
            if not finding.is_note:
                self.stdout.write(self.style.WARNING(_finding_line(finding)))
        if write:
            self.stdout.write(
                self.style.SUCCESS(f"Written: {len(plan.changes)} changed. It counts from the next call on.")
            )
        else:
            self.stdout.write("Nothing is written yet. Run it again with --yes to write this.")

    def _export(self, out: Path | None) -> None:
        text = policy_import.export_policy()
        if out is None:
            self.stdout.write(text, ending="")
            return
        _write(out, text)
        self.stdout.write(f"Written to {out}.")

    # -- check and explain

    def _check(self, path: Path | None) -> None:
        policy = current() if path is None else policy_import.preview(_read(path)).policy()
        findings = check(policy, known_tools(), approvers_in)
        for finding in findings:
            line = _finding_line(finding)
            self.stdout.write(line if finding.is_note else self.style.WARNING(line))
        count = sum(not finding.is_note for finding in findings)
        if count:
            raise CommandError(f"{count} to mend.", returncode=1)
        self.stdout.write(self.style.SUCCESS(f"{len(policy.rules)} rules, nothing to mend."))

    def _explain(self, server: str, tool: str, arguments: str, principal: str) -> None:
        subject = trial.subject_of(server, tool, _arguments(arguments), principal, door="command")
        for line in _explanation_lines(trial.explained(subject), subject):
            self.stdout.write(line)


# -- files ----------------------------------------------------------------------------------------------------------


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path} can not be read: {error.strerror}.") from None


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
        raise CommandError(f"{path} can not be written: {error.strerror}.") from None


def _told(error: MeahError) -> str:
    problems = error.details.get("problems")
    if not problems:
        return f"{error.code}: {error.message}\n{error.hint}"
    return "\n".join([f"{error.code}: nothing is changed.", *(f"  {visible(problem)}" for problem in problems)])


# -- lines ----------------------------------------------------------------------------------------------------------


def _change_lines(plan: policy_import.Plan) -> Iterator[str]:
    for change in plan.changes:
        yield f"{change.kind:<8} {one_line(change.subject, VALUE_CHARS)}"
        if change.kind == policy_import.REMOVED:
            continue
        for name, (before, after) in change.fields.items():
            was = "" if change.kind == policy_import.ADDED else f"{_value(before)} → "
            yield f"           {name}: {was}{_value(after)}"
    for name in plan.untouched:
        yield f"stays    rule {one_line(name, VALUE_CHARS)} (the file does not name it)"


def _value(value: Any) -> str:
    return one_line(value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False), VALUE_CHARS)


def _finding_line(finding: Finding) -> str:
    about = f"rule {finding.rule}: " if finding.rule else ""
    return f"{finding.kind:<12} {one_line(about + finding.message, 500)}"


# -- explaining -----------------------------------------------------------------------------------------------------


def _arguments(text: str) -> JsonObject:
    data = _read(Path(text[1:])) if text.startswith("@") else text.encode(errors="surrogatepass")
    try:
        arguments = strict_loads(data)
    except StrictDecodeError as error:
        raise CommandError(f"The arguments can not be read as JSON: {error}.") from None
    if not isinstance(arguments, dict):
        raise CommandError("The arguments must be a JSON object, such as '{\"amount\": 5}'.")
    return arguments


def _explanation_lines(explanation: Explanation, subject: Subject) -> Iterator[str]:
    verdict = explanation.verdict
    yield f"{'verdict':<10}{verdict.effect}"
    yield f"{'rule':<10}{one_line(verdict.rule, VALUE_CHARS)}"
    if verdict.reason:
        yield f"{'reason':<10}{one_line(verdict.reason, VALUE_CHARS)}"
    if verdict.effect == REQUIRE_APPROVAL:
        yield from _demand_lines(explanation)
    yield f"{'class':<10}{subject.effect_class}, which without a rule gets {explanation.default}"
    yield f"{'posture':<10}[policy: {explanation.posture}]"
    yield f"{'digest':<10}{verdict.policy_digest}"
    yield ""
    if not explanation.considered:
        yield "No rule is about this tool."
    for item in explanation.considered:
        mark = "matched" if item.matched else "not"
        yield f"{mark:<10}{one_line(item.rule.name, VALUE_CHARS)} ({item.rule.effect}, order {item.rule.order})"
        yield from (f"{'':<12}{one_line(why, VALUE_CHARS)}" for why in item.why)


def _demand_lines(explanation: Explanation) -> Iterator[str]:
    verdict = explanation.verdict
    demands = [f"{demand.count} of {demand.group or 'any approvers'}" for demand in verdict.demands]
    note = "; a note is required" if verdict.note_required else ""
    yield f"{'approvals':<10}{one_line(', '.join(demands), VALUE_CHARS)}{note}"
    yield f"{'decide in':<10}{verdict.ttl_s or load_settings().ttl_s} s"
    if verdict.verification:
        yield f"{'read back':<10}by {verdict.verification.tool}"
