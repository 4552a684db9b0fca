"""The steps of a Method as a drawing: each in the column after the last step that it needs. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from core.text import one_line
from gateway.manifest import Spec

BOX_WIDTH: Final = 190
BOX_HEIGHT: Final = 56
GAP_X: Final = 50
GAP_Y: Final = 18
MARGIN: Final = 4
LABEL_CHARS: Final = 24


@dataclass(frozen=True)
class Box:
    """One step; places in pixels. `notes` says what is special about it."""

    step: str
    tool: str
    notes: str
    x: int
    y: int

    @property
    def text_x(self) -> int:
        return self.x + 10

    @property
    def lines(self) -> list[tuple[int, str, str]]:
        """(y, class, text) of each line."""
        found = [(self.y + 20, "meah-step-name", self.step), (self.y + 35, "meah-step-tool", self.tool)]
        return [*found, (self.y + 49, "meah-step-note", self.notes)] if self.notes else found


@dataclass
class Drawing:
    boxes: list[Box] = field(default_factory=list)
    arrows: list[str] = field(default_factory=list)
    width: int = 0
    height: int = 0
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT


def draw(spec: Spec) -> Drawing:
    """Without `parallel` the order of the list is drawn too, as the way that is gone."""
    drawing = Drawing()
    columns: dict[str, int] = {}
    heights: dict[int, int] = {}
    places: dict[str, Box] = {}
    before = ""
    for step in spec.steps:
        needs = set(step.dependencies) | ({before} if before and not spec.parallel else set())
        column = max((columns[name] + 1 for name in needs), default=0)
        row = heights.get(column, 0)
        columns[step.id], heights[column], before = column, row + 1, step.id
        box = Box(
            one_line(step.id, LABEL_CHARS),
            one_line(f"{step.server}/{step.tool}", LABEL_CHARS + 6),
            _notes(step.on_error, step.retry is not None, step.poll is not None),
            MARGIN + column * (BOX_WIDTH + GAP_X),
            MARGIN + row * (BOX_HEIGHT + GAP_Y),
        )
        places[step.id] = box
        drawing.boxes.append(box)
        drawing.arrows += [_arrow(places[name], box) for name in sorted(needs)]
    drawing.width = max(box.x for box in drawing.boxes) + BOX_WIDTH + MARGIN
    drawing.height = max(box.y for box in drawing.boxes) + BOX_HEIGHT + MARGIN
    return drawing


def _notes(on_error: str, retries: bool, polls: bool) -> str:
    words = [("may leave a gap", on_error == "gap"), ("retries", retries), ("polls", polls)]
    return ", ".join(word for word, is_so in words if is_so)


def _arrow(one: Box, other: Box) -> str:
    """The path of a line from one box's right side to the other's left side."""
    x1, y1 = one.x + BOX_WIDTH, one.y + BOX_HEIGHT // 2
    x2, y2 = other.x, other.y + BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1} C{middle} {y1} {middle} {y2} {x2 - 6} {y2}"
