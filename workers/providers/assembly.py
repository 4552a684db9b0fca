"""An answer put together: from one document, or from the chunks of a stream."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, Final

from workers.providers.answer import Answer
from workers.providers.base import OnText, clean
from workers.providers.complaint import Complaint, complaint_of, is_error
from workers.providers.jsontext import NotJsonError, loads, mend, unwrapped
from workers.providers.parts import Parts, choice_parts, parts_of
from workers.providers.sse import DONE, SseEvent
from workers.providers.thinking import ThinkSplitter

_MAX_KEYS: Final = 20
_MAX_SKIPPED_NOTES: Final = 3
_MAX_SKIPPED_CHARS: Final = 80
_HIGH_SURROGATE: Final = re.compile("[\ud800-\udbff]\\Z")


class BadEventError(ValueError):
    """A stream event that should be JSON and is not: part of the answer is lost."""


class Assembler:
    """Feed it documents or events; `answer()` has the whole. Visible text goes to `on_text` as it comes."""

    def __init__(self, on_text: OnText | None = None) -> None:
        self._on_text = on_text
        self._splitter = ThinkSplitter()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._carry = ""
        self._finish_raw: str | None = None
        self._usage: Any = None
        self._model: str | None = None
        self._has_tool_calls = False
        self._has_choices = False
        self._keys: dict[str, None] = {}
        self._notes: list[str] = []
        self._skipped = 0
        self.complaint: Complaint | None = None
        self.documents = 0
        self.output_chars = 0
        self.done = False

    @property
    def has_finish(self) -> bool:
        return bool(self._finish_raw)

    @property
    def text(self) -> str:
        return "".join(self._text)

    def event(self, event: SseEvent) -> None:
        """One event of a stream. Raises BadEventError."""
        if event.data == DONE:
            self.done = True
            return
        try:
            value = unwrapped(loads(event.data))
        except NotJsonError as error:
            self._skip(event, str(error))
            return
        if event.name == "error" and not is_error(value):
            value = {"error": value}
        self.document(value)

    def document(self, value: Any) -> None:
        """One chunk, or a whole answer."""
        if is_error(value):
            self.complaint = self.complaint or complaint_of(value)
        if not isinstance(value, dict):
            return
        self.documents += 1
        self._keys.update(dict.fromkeys(islice(map(str, value), _MAX_KEYS - len(self._keys))))
        if isinstance(model := value.get("model"), str) and model:
            self._model = model
        self._usage = value.get("usage") or _usage_elsewhere(value) or self._usage
        if choice := _first_choice(value):
            self._choice(choice)
        elif "choices" not in value and isinstance(value.get("message"), dict):
            self._choice({**value, "finish_reason": value.get("done_reason")})

    def note(self, notes: list[str]) -> None:
        self._notes.extend(notes)

    def answer(self, *, streamed: bool) -> Answer:
        """What came so far; call it once, at the end."""
        cut = not (self.done or self._finish_raw) if streamed else False
        cut = cut or self._finish_raw not in (None, "stop")
        self._say(self._splitter.feed(mend(self._carry)) + self._splitter.finish(cut=cut))
        return Answer(
            text=self.text,
            reasoning="".join(self._reasoning) + self._splitter.reasoning,
            refusal="".join(self._refusal),
            finish_raw=self._finish_raw,
            usage=self._usage,
            model=self._model,
            has_tool_calls=self._has_tool_calls,
            keys=list(self._keys),
            has_choices=self._has_choices,
            streamed=streamed,
            done=self.done,
            complaint=self.complaint,
            notes=self._notes,
        )

    def _choice(self, choice: dict[str, Any]) -> None:
        self._has_choices = True
        if choice.get("error"):
            self.complaint = self.complaint or complaint_of(choice)
        self._take(self._parts(choice))
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            self._finish_raw = finish or self._finish_raw or ""

    def _parts(self, choice: dict[str, Any]) -> Parts:
        """A whole `message` after deltas repeats them: then only the delta counts."""
        return parts_of(choice.get("delta")) if self.output_chars and "message" in choice else choice_parts(choice)

    def _take(self, parts: Parts) -> None:
        self.output_chars += len(parts.text) + len(parts.reasoning) + len(parts.refusal)
        self._has_tool_calls = self._has_tool_calls or parts.has_tool_calls
        if parts.reasoning:
            self._reasoning.append(parts.reasoning)
        if parts.refusal:
            self._refusal.append(parts.refusal)
        if parts.text:
            self._say(self._splitter.feed(self._joined(parts.text)))

    def _joined(self, text: str) -> str:
        """Half a character at the end waits for its other half."""
        text, self._carry = self._carry + text, ""
        if _HIGH_SURROGATE.search(text):
            text, self._carry = text[:-1], text[-1]
        return mend(text)

    def _say(self, text: str) -> None:
        text = mend(text)
        if not text:
            return
        self._text.append(text)
        if self._on_text is not None:
            self._on_text(text)

    def _skip(self, event: SseEvent, why: str) -> None:
        if event.data.startswith(("{", "[")):
            raise BadEventError(why)
        if event.name == "error":
            self.complaint = self.complaint or complaint_of(None, text=event.data)
            return
        self._skipped += 1
        if self._skipped <= _MAX_SKIPPED_NOTES:
            shown = clean(event.data, limit=_MAX_SKIPPED_CHARS)
            self._notes.append(f"A stream event that is no JSON was skipped: {shown}")


def _usage_elsewhere(value: dict[str, Any]) -> Any:
    """Groq reports a stream's usage in a drawer of its own."""
    drawer = value.get("x_groq")
    return drawer.get("usage") if isinstance(drawer, dict) else None


def _first_choice(value: dict[str, Any]) -> dict[str, Any] | None:
    choices = value.get("choices")
    if not isinstance(choices, list):
        return None
    ours = (choice for choice in choices if isinstance(choice, dict) and choice.get("index") in (0, None))
    return next(ours, None) or next((choice for choice in choices if isinstance(choice, dict)), None)
