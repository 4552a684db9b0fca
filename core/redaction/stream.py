"""Redaction of text that arrives in pieces."""

from __future__ import annotations

from typing import Final

from core.redaction.engine import current_literals, decode, encode, marker
from core.redaction.literals import Literals
from core.redaction.rules import Rule
from core.redaction.scan import CONTEXT_BYTES, Found, open_from, search, tail_of

MAX_HELD_BYTES: Final = 8192


class StreamRedactor:
    """Redacts a text fed in pieces, cut anywhere; what comes out is together what `redact` makes of the whole.

    Only what may still become part of a match is held back: mostly the last word, up to 768 bytes (of layer 1: the
    longest form of a secret) where something looks like the beginning of one, and a credential until its end is there.
    Of one that goes on for more than 8 KiB the replacement comes out at once and the rest is swallowed as it arrives;
    should its form be broken up right there (a private key in pieces of less than 16 characters), the replacement may
    then cover another stretch than in the whole, but never less than the form asks for.
    """

    def __init__(self) -> None:
        self._values = _ValueStage(current_literals())
        self._patterns = _PatternStage()

    def feed(self, text: str) -> str:
        """Take the next piece; the redacted text that is certain by now."""
        return decode(self._patterns.feed(self._values.feed(encode(text))))

    def flush(self) -> str:
        """The rest, at the end of the stream."""
        return decode(self._patterns.feed(self._values.feed(b"", last=True), last=True))


class _ValueStage:
    """Layer 1 over a stream."""

    def __init__(self, literals: Literals | None) -> None:
        self._literals = literals
        self._held = b""

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        if self._literals is None:
            return data
        data = self._held + data
        pieces: list[bytes] = []
        position = 0
        while True:
            hold = len(data) if last else self._literals.open_from(data, position)
            found = self._literals.search(data, position)
            if found is None or found[0] >= hold:
                break
            pieces += (data[position : found[0]], marker(found[2]))
            position = found[1]
        self._held = data[hold:]
        return b"".join((*pieces, data[position:hold]))


class _PatternStage:
    """Layer 2 over a stream."""

    def __init__(self) -> None:
        self._before = b""
        self._held = b""
        self._swallowed: Rule | None = None

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        data = self._before + self._held + data
        position = len(self._before)
        if self._swallowed is not None:
            position = self._swallow(data, position, self._swallowed, last=last)
        pieces: list[bytes] = []
        while self._swallowed is None:
            hold = len(data) if last else open_from(data, position)
            found = search(data, position, hold)
            if found is None:
                pieces.append(data[position:hold])
                position = hold
                break
            if not last and found.end + found.rule.slack_bytes > len(data):
                if len(data) - found.start <= MAX_HELD_BYTES:
                    pieces.append(data[position : found.start])
                    position = found.start
                    break
                self._swallowed = found.rule
            pieces.append(_replaced(data, position, found))
            position = found.end
        self._before = data[max(position - CONTEXT_BYTES, 0) : position]
        self._held = data[position:]
        return b"".join(pieces)

    def _swallow(self, data: bytes, position: int, rule: Rule, *, last: bool) -> int:
        """How far the credential whose replacement is out already goes on."""
        end = int(tail_of(rule).match(data, position).end())
        if last or end + rule.slack_bytes <= len(data):
            self._swallowed = None
        return end


def _replaced(data: bytes, position: int, found: Found) -> bytes:
    """The data from there to the end of the match, with its replacements."""
    pieces: list[bytes] = []
    for start, end in found.spans:
        pieces += (data[position:start], marker(found.rule.name))
        position = end
    return b"".join((*pieces, data[position : found.end]))
