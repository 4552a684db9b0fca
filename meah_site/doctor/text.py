"""The report as text: aligned, wrapped to the width of the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import Final

from meah_site.doctor import Report
from meah_site.doctor.findings import Finding, Level

LEVEL_CHARS: Final = max(len(level) for level in Level)
SUBJECT_CHARS: Final = 16
GAP: Final = "  "
PLAIN: Final = "{}".format

Paint = Callable[[Level, str], str]


def lines(report: Report, *, width: int, paint: Paint) -> Iterator[str]:
    """`paint` colours a level's word, or returns it as it is."""
    for group in report.groups:
        yield group.title
        for finding in group.findings:
            yield from _finding(finding, width=width, paint=paint)
        yield ""
    yield _sum(report, paint)


def _finding(finding: Finding, *, width: int, paint: Paint) -> Iterator[str]:
    indent = len(GAP) * 3 + LEVEL_CHARS + SUBJECT_CHARS
    level = paint(finding.level, finding.level.value.ljust(LEVEL_CHARS))
    wrapped = _wrapped(finding.text, width - indent)
    subject = finding.subject
    if len(subject) > SUBJECT_CHARS:
        yield f"{GAP}{level}{GAP}{subject}"
    else:
        yield f"{GAP}{level}{GAP}{subject:<{SUBJECT_CHARS}}{GAP}{wrapped.pop(0)}".rstrip()
    for line in wrapped + _wrapped(f"fix: {finding.fix}" if finding.fix else "", width - indent):
        if line:
            yield " " * indent + line


def _wrapped(text: str, width: int) -> list[str]:
    # Paths and commands are never broken: they are there to be copied.
    return textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False) or [""]


def _sum(report: Report, paint: Paint) -> str:
    problems, warnings = report.count(Level.PROBLEM), report.count(Level.WARNING)
    if not problems and not warnings:
        return paint(Level.OK, "All is well.")
    level = Level.PROBLEM if problems else Level.WARNING
    return paint(level, f"{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}.")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
