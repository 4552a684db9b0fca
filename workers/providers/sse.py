"""Server-sent events, taken apart as the bytes come, however they are cut."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

DONE: Final = "[DONE]"
_LINE_END: Final = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True)
class SseEvent:
    data: str
    name: str = ""


class SseParser:
    """Feed it bytes, get events. Lenient where servers are careless.

    Lines end in LF, CR or CRLF; comments and blank lines are no events; a new data line after a complete JSON
    object starts a new event even without a blank line between; a bare JSON line counts as data.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        self._data: list[str] = []
        self._name = ""
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> Iterator[SseEvent]:
        yield from self._take(self._decoder.decode(data))

    def finish(self) -> Iterator[SseEvent]:
        """What is left when the body has ended, with or without a last blank line."""
        yield from self._take(self._decoder.decode(b"", final=True) + "\n")
        yield from self._dispatch()

    def _take(self, text: str) -> Iterator[SseEvent]:
        if not text:
            return
        if self._at_start:
            text = text.removeprefix("\ufeff")
            self._at_start = False
        if self._after_cr:
            text = text.removeprefix("\n")
        self._after_cr = text.endswith("\r")
        *ends, rest = _LINE_END.split(text)
        for end in ends:
            line = "".join([*self._pieces, end])
            self._pieces.clear()
            yield from self._line(line)
        if rest:
            self._pieces.append(rest)

    def _line(self, line: str) -> Iterator[SseEvent]:
        if not line.strip():
            yield from self._dispatch()
            return
        if line[0] in "{[":
            line = f"data:{line}"
        field, _, value = line.partition(":")
        if field == "event":
            self._name = value.strip()
        elif field == "data":
            if self._is_whole():
                yield from self._dispatch()
            self._data.append(value.removeprefix(" "))

    def _is_whole(self) -> bool:
        if len(self._data) != 1:
            return False
        text = self._data[0].strip()
        return text == DONE or (text.endswith("}") and _is_json(text))

    def _dispatch(self) -> Iterator[SseEvent]:
        data, name = "\n".join(self._data), self._name
        self._data.clear()
        self._name = ""
        if data.strip():
            yield SseEvent(data.strip(), name)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
