"""A body as it arrives: found out to be a stream of events or one document, undone, capped and read."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Any, Final

from workers.providers.answer import Answer
from workers.providers.assembly import Assembler, BadEventError
from workers.providers.base import OnText, ProviderFailure, clean, redacted_head
from workers.providers.complaint import Complaint, complaint_of, is_error
from workers.providers.hints import PROXY_PAGE
from workers.providers.html import page_of
from workers.providers.inflate import Inflater
from workers.providers.jsontext import NotJsonError, looks_like_sse, parse, text_of
from workers.providers.sse import SseParser

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
_BLANK: Final = b" \t\r\n\xef\xbb\xbf"
_SNIFF_BYTES: Final = 8
_EXCERPT_CHARS: Final = 200


class Reception:
    """Feed it the raw bytes of one response; BodyTooLargeError, BrokenEncodingError or BadEventError may come of it.

    `last_output_at` is when the answer last grew, in seconds of `time.monotonic`; comments and white space
    do not count for it.
    """

    def __init__(self, *, content_type: str, content_encoding: str, on_text: OnText | None = None) -> None:
        self._content_type = content_type
        self._encoding = content_encoding
        self._inflater = Inflater(content_encoding, limit_bytes=MAX_BODY_BYTES)
        self._assembler = Assembler(on_text)
        self._parser: SseParser | None = None
        self._body = bytearray()
        self._decided = False
        self.bytes_seen = 0
        self.last_output_at: float | None = None

    @property
    def output_started(self) -> bool:
        """Whether anything of the answer itself has come."""
        return self.last_output_at is not None

    @property
    def finished(self) -> bool:
        """Whether the model has ended its answer, though more may be said about it."""
        return self._assembler.has_finish or self.done

    @property
    def done(self) -> bool:
        """Whether nothing that matters can follow: the end mark has come, or an error."""
        return self._assembler.done or self._assembler.complaint is not None

    @property
    def partial_text(self) -> str:
        return self._assembler.text

    def feed(self, raw: bytes) -> None:
        self.bytes_seen += len(raw)
        self._take(self._inflater.feed(raw))

    def text(self) -> str:
        """The whole body as text, for errors; a stream's own events are not in it."""
        self._take(self._inflater.finish())
        return text_of(bytes(self._body), self._content_type)

    def answer(self) -> Answer:
        """What the body held, at its end. Raises ProviderFailure E_MALFORMED_RESPONSE, BadEventError."""
        text = self.text()
        if self._parser is None and looks_like_sse(text):
            self._begin_stream()
        if self._parser is not None:
            return self._streamed_answer(self._parser)
        return self._document_answer(text)

    def partial_answer(self) -> Answer:
        """What a stream said until it was cut."""
        return self._assembler.answer(streamed=True)

    def complaint(self, *, is_cut: bool = False) -> Complaint:
        """What the body of an error answer complains about; its events are read too.

        `is_cut`: the body did not come to its end, which may have gone through a key.
        """
        found = self._whole_complaint()
        if not is_cut:
            return found
        return replace(
            found,
            message=redacted_head(found.message, is_cut=True),
            snippet=redacted_head(found.snippet, is_cut=True),
        )

    def _whole_complaint(self) -> Complaint:
        text = self.text()
        if self._parser is not None:
            with contextlib.suppress(BadEventError):
                for event in self._parser.finish():
                    self._assembler.event(event)
            return self._assembler.complaint or Complaint(is_empty=True)
        try:
            return complaint_of(parse(text).value)
        except NotJsonError:
            return complaint_of(None, text=text)

    def _take(self, data: bytes) -> None:
        if self._parser is not None:
            self._read_events(data)
            return
        self._body += data
        if self._decided:
            self._mark_output(bool(data.strip()))
            return
        self._body = self._body.lstrip(_BLANK)
        if len(self._body) < _SNIFF_BYTES:
            return
        self._decided = True
        if looks_like_sse(self._body[:_SNIFF_BYTES].decode("latin-1")):
            self._begin_stream()
        else:
            self._mark_output(True)

    def _begin_stream(self) -> None:
        self._parser = SseParser()
        data = bytes(self._body)
        self._body.clear()
        self._read_events(data)

    def _read_events(self, data: bytes) -> None:
        assert self._parser is not None
        for event in self._parser.feed(data):
            before = self._assembler.output_chars
            self._assembler.event(event)
            self._mark_output(self._assembler.output_chars > before)

    def _mark_output(self, grew: bool) -> None:
        if grew:
            self.last_output_at = time.monotonic()

    def _streamed_answer(self, parser: SseParser) -> Answer:
        for event in parser.finish():
            self._assembler.event(event)
        answer = self._assembler.answer(streamed=True)
        if not self._assembler.documents and answer.complaint is None:
            raise _malformed("The stream ended without any answer in it.", "empty_response")
        return answer

    def _document_answer(self, text: str) -> Answer:
        try:
            parsed = parse(text)
        except NotJsonError as error:
            raise self._not_json(text, str(error)) from None
        self._assembler.note(parsed.notes)
        if parsed.chunks:
            for chunk in parsed.chunks:
                self._assembler.document(chunk)
            return self._assembler.answer(streamed=_are_deltas(parsed.chunks))
        if not isinstance(parsed.value, dict) and not is_error(parsed.value):
            raise _malformed(
                "The answer is JSON, and no completion.", "wrong_shape", snippet=clean(text, limit=_EXCERPT_CHARS)
            )
        self._assembler.document(parsed.value)
        return self._assembler.answer(streamed=False)

    def _not_json(self, text: str, why: str) -> ProviderFailure:
        if not text:
            return _malformed("The provider answered with an empty body.", "empty_response")
        if page := page_of(text):
            return _malformed(
                f'The provider answered with a web page: "{page.summary}"',
                "html",
                hint=PROXY_PAGE,
                snippet=page.snippet,
            )
        coded = f" (Content-Encoding {self._encoding})" if self._encoding else ""
        snippet = clean(text, limit=_EXCERPT_CHARS)
        return _malformed(f"The answer could not be read: {why}{coded}.", "not_json", snippet=snippet)


def _are_deltas(chunks: list[Any]) -> bool:
    choices = chunks[0].get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return isinstance(first, dict) and "delta" in first


def _malformed(message: str, reason: str, *, hint: str = "", snippet: str = "") -> ProviderFailure:
    return ProviderFailure(
        "E_MALFORMED_RESPONSE",
        message,
        hint=hint,
        reason=reason,
        details={"snippet": snippet} if snippet else None,
    )
