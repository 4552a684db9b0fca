"""Redaction of text that arrives in pieces."""

from __future__ import annotations

from core.redaction.engine import current_literals, decode, encode, marker
from core.redaction.literals import Literals
from core.redaction.scan import MAX_REACH_BYTES, open_from, search


class StreamRedactor:
    """Redacts a text fed in pieces; what comes out is, put together, what `redact` makes of the whole.

    Held back is only what may still become part of a match.
    """

    def __init__(self) -> None:
        self._literals: Literals | None = current_literals()
        self._raw = b""
        self._clean = b""
        self._before = b""

    def feed(self, text: str) -> str:
        """Take the next piece; the redacted text that is certain by now."""
        return self._advance(encode(text), last=False)

    def flush(self) -> str:
        """The rest, at the end of the stream."""
        return self._advance(b"", last=True)

    def _advance(self, data: bytes, *, last: bool) -> str:
        return decode(self._second_layer(self._first_layer(data, last=last), last=last))

    def _first_layer(self, data: bytes, *, last: bool) -> bytes:
        if self._literals is None:
            return data
        data = self._raw + data
        pieces: list[bytes] = []
        position = 0
        while True:
            hold = len(data) if last else self._literals.open_from(data, position)
            found = self._literals.search(data, position)
            if found is None or found[0] >= hold:
                break
            pieces += (data[position : found[0]], marker(found[2]))
            position = found[1]
        self._raw = data[hold:]
        return b"".join((*pieces, data[position:hold]))

    def _second_layer(self, data: bytes, *, last: bool) -> bytes:
        data = self._before + self._clean + data
        position = written = len(self._before)
        pieces: list[bytes] = []
        while True:
            hold = len(data) if last else open_from(data, position)
            found = search(data, position)
            if found is None or found.start >= hold:
                break
            if not last and found.end + MAX_REACH_BYTES > len(data):
                hold = found.start
                break
            for start, end in found.spans:
                pieces += (data[written:start], marker(found.rule))
                written = end
            position = found.end
        pieces.append(data[written:hold])
        self._before = data[max(hold - 1, 0) : hold]
        self._clean = data[hold:]
        return b"".join(pieces)
