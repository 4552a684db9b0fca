"""Bytes of a pipe cut into lines, with a bound on what one line may hold in memory. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from core.text import visible

_EDGE_BYTES: Final = 4_096
TAIL_LINES: Final = 200
TAIL_LINE_CHARS: Final = 2_000


@dataclass(frozen=True)
class Line:
    """A line without its end. Of one above the limit only `data`, its beginning, and `last`, its end, are kept."""

    data: bytes
    last: bytes = b""
    whole: bool = True


class Lines:
    """Feed it chunks as they come; it takes linear time whatever the length of a line."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None
        self._last = b""

    def feed(self, chunk: bytes) -> Iterator[Line]:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            self._keep(piece)
            yield self._take()
        self._keep(rest)

    def end(self) -> Iterator[Line]:
        """What stood after the last newline."""
        if self._size:
            yield self._take()

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size <= self._limit:
            self._pieces.append(piece)
            return
        if self._head is None:
            whole = b"".join((*self._pieces, piece))
            self._head, self._last = whole[: min(self._limit, _EDGE_BYTES)], whole[-_EDGE_BYTES:]
            self._pieces = []
        else:
            self._last = (self._last + piece)[-_EDGE_BYTES:]

    def _take(self) -> Line:
        head, last, pieces = self._head, self._last, self._pieces
        self._pieces, self._size, self._head, self._last = [], 0, None, b""
        if head is not None:
            return Line(head, last, whole=False)
        return Line(pieces[0] if len(pieces) == 1 else b"".join(pieces))


class Tail:
    """The last lines of what a server wrote to stderr, bounded in number and length; also without any newline."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._cutter = Lines(TAIL_LINE_CHARS)
        self.received = 0

    def feed(self, chunk: bytes) -> None:
        self.received += len(chunk)
        for line in self._cutter.feed(chunk):
            self.add(line)

    def add(self, line: Line) -> None:
        text = line.data.decode("utf-8", "replace").rstrip("\r")
        self._lines.append(text if line.whole else f"{text}…")

    def note(self, text: str) -> None:
        """A line of MEAH's own among the server's."""
        self._lines.append(f"[meah] {text}")

    def text(self) -> str:
        """For people: hidden characters visible. Not redacted: secrets may span what this class has seen."""
        return visible("\n".join([*self._lines, *self._unfinished()]))

    def _unfinished(self) -> list[str]:
        if not self._cutter._size:
            return []
        started = self._cutter._head or b"".join(self._cutter._pieces)
        return [started.decode("utf-8", "replace")]
