"""One measured figure, its yardstick and its aim; and how they are told."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

WIDTH: Final = 100
INDENT: Final = "    "


@dataclass(frozen=True)
class Aim:
    """What the figure (`value`) or its ratio to the yardstick should be."""

    of: Literal["value", "ratio"]
    kind: Literal["at most", "at least"]
    bound: float

    def met_by(self, figure: float) -> bool:
        return figure <= self.bound if self.kind == "at most" else figure >= self.bound


@dataclass(frozen=True)
class Measure:
    """`yardstick` is in the same unit as `value`, or None where the aim is the only yardstick."""

    name: str
    title: str
    value: float
    unit: str
    aim: Aim
    yardstick: float | None = None
    yardstick_title: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        return self.value / self.yardstick if self.yardstick else None

    @property
    def met(self) -> bool:
        figure = self.value if self.aim.of == "value" else self.ratio
        return figure is not None and self.aim.met_by(figure)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "value": round(self.value, 3),
            "unit": self.unit,
            "yardstick": None if self.yardstick is None else round(self.yardstick, 3),
            "yardstickTitle": self.yardstick_title,
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "aim": {"of": self.aim.of, "kind": self.aim.kind, "bound": self.aim.bound},
            "met": self.met,
            "notes": list(self.notes),
        }

    def lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.title}"
        yield f"{INDENT}{_number(self.value):>10} {self.unit}"
        if self.yardstick is not None:
            yield f"{INDENT}{_number(self.yardstick):>10} {self.unit}, {self.yardstick_title}"
            yield f"{INDENT}{self.ratio:>10.2f} times the yardstick"
        yield f"{INDENT}{'met' if self.met else 'MISSED':>10} aim: {self._aim()}"
        for note in self.notes:
            yield from textwrap.wrap(note, WIDTH, initial_indent=INDENT * 2, subsequent_indent=INDENT * 2)

    def _aim(self) -> str:
        if self.aim.of == "ratio":
            return f"{self.aim.kind} {self.aim.bound:g} times the yardstick"
        return f"{self.aim.kind} {_number(self.aim.bound)} {self.unit}"


@dataclass(frozen=True)
class Skipped:
    """A benchmark that can not run here, and why."""

    name: str
    title: str
    why: str

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "title": self.title, "skipped": self.why}

    def lines(self) -> Iterator[str]:
        yield f"{self.name}: {self.title}"
        yield f"{INDENT}skipped: {self.why}"


Outcome = Measure | Skipped


def report(machine: dict[str, str], outcomes: Sequence[Outcome]) -> str:
    """The whole run as text."""
    lines = [f"{name:<10} {value}" for name, value in machine.items()]
    for outcome in outcomes:
        lines += ["", *outcome.lines()]
    measures = [outcome for outcome in outcomes if isinstance(outcome, Measure)]
    missed = [measure.name for measure in measures if not measure.met]
    told = f"{len(measures) - len(missed)} of {len(measures)} aims met" + (
        f"; missed: {', '.join(missed)}" if missed else ""
    )
    return "\n".join([*lines, "", told + ".", ""])


def _number(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:,.2f}"
