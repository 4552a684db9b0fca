"""What the doctor finds: one line each, and the fix for what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from django.db import Error as DatabaseError

from core.errors import JsonObject, MeahError
from core.redaction import redact
from core.text import one_line

TEXT_CHARS = 400
ERROR_CHARS = 200


class Level(StrEnum):
    """`info` is a fact without a judgement; a `problem` is what keeps something from working or from being safe."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    level: Level
    subject: str
    text: str
    fix: str = ""

    def as_dict(self) -> JsonObject:
        return {"level": self.level.value, "subject": self.subject, "text": self.text, "fix": self.fix}


@dataclass(frozen=True)
class Group:
    title: str
    findings: tuple[Finding, ...]

    def as_dict(self) -> JsonObject:
        return {"title": self.title, "findings": [finding.as_dict() for finding in self.findings]}


Check = Callable[[], Iterable[Finding]]


def ok(subject: str, text: str) -> Finding:
    return _finding(Level.OK, subject, text)


def info(subject: str, text: str, fix: str = "") -> Finding:
    return _finding(Level.INFO, subject, text, fix)


def warning(subject: str, text: str, fix: str) -> Finding:
    return _finding(Level.WARNING, subject, text, fix)


def problem(subject: str, text: str, fix: str) -> Finding:
    return _finding(Level.PROBLEM, subject, text, fix)


def examined(title: str, *checks: tuple[str, Check]) -> Group:
    """Run the checks, each with the subject that it is about; one that breaks is a finding, and the rest go on."""
    found: list[Finding] = []
    for subject, check in checks:
        try:
            found.extend(check())
        except MeahError as error:
            found.extend(of_error(subject, error))
        except DatabaseError as error:
            text = f"The database does not answer: {_first_words(error)}"
            found.append(problem(subject, text, "See what is said about the database above."))
        except Exception as error:
            text = f"It could not be looked at: {type(error).__name__}: {_first_words(error)}"
            found.append(problem(subject, text, "This is a defect of MEAH: please report it."))
    return Group(title, tuple(found))


def of_error(subject: str, error: MeahError) -> list[Finding]:
    """A failure as findings: one for each problem that it lists, else one."""
    listed = error.details.get("problems") or []
    if not listed:
        return [problem(subject, f"{error.code}: {error.message}", error.hint)]
    return [
        problem(subject, f"{item.get('variable') or item.get('path') or ''} {item['problem']}".strip(), item["fix"])
        for item in listed
    ]


def _finding(level: Level, subject: str, text: str, fix: str = "") -> Finding:
    return Finding(
        level,
        one_line(redact(subject), 40),
        one_line(redact(text), TEXT_CHARS),
        one_line(redact(fix), TEXT_CHARS),
    )


def _first_words(error: Exception) -> str:
    return one_line(redact(str(error)), ERROR_CHARS) or type(error).__name__
