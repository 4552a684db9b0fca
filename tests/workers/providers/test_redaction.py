"""A configured key, wherever a text is cut: none of it, not even a half, is ever shown."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from core.secrets import name_secrets
from tests.fake_provider import DONE, FakeProvider, Reply, Stall, answer, chunk, event
from tests.workers.providers.asking import endpoint, failure
from workers.providers import catalogue
from workers.providers.answer import completion_of
from workers.providers.base import ProviderFailure, clean, redacted_head
from workers.providers.failures import Asked, failure_of
from workers.providers.reception import Reception

ASKED = Asked("fake", "fake-model", 100, "https://api.example.com/v1/chat/completions")
KEY = "Qz4Tf9bWc7dRe8aMk05Jzyxw3VuP"
LONG_KEY = "".join(f"v{number:03d}" for number in range(250))
PIECE_CHARS = 4
FILLER = "some words of no weight at all, "


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of no known form, and one so long that its removal makes a long text short."""
    monkeypatch.setenv("CUT_KEY", KEY)
    monkeypatch.setenv("CUT_L", LONG_KEY)
    name_secrets(["CUT_KEY", "CUT_L"])


def filler(chars: int) -> str:
    return (FILLER * (chars // len(FILLER) + 1))[:chars]


def leaked(shown: str) -> list[str]:
    pieces = (KEY[at : at + PIECE_CHARS] for at in range(len(KEY) - PIECE_CHARS + 1))
    return [piece for piece in pieces if piece.lower() in shown.lower()]


def received(body: bytes) -> str:
    """All that is shown of an answer with status 200."""
    reception = Reception(content_type="", content_encoding="")
    try:
        reception.feed(body)
        return repr(completion_of(reception.answer(), asked=ASKED, headers={}, accept_reasoning=False))
    except ProviderFailure as error:
        return json.dumps(error.as_dict())


def refused(body: bytes) -> str:
    """All that is shown of an answer with status 500."""
    reception = Reception(content_type="", content_encoding="")
    reception.feed(body)
    return json.dumps(failure_of(reception.complaint(), status=500, headers={}, asked=ASKED).as_dict())


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def error_with(**fields: Any) -> str:
    return refused(encoded({"error": {"message": "It broke", **fields}}))


def as_event(text: str) -> str:
    return received(f"data: {text}\n\n".encode() + event(chunk("Hello", finish="stop")) + DONE)


def as_page(text: str) -> str:
    return refused(f"<html><body>{text}</body></html>".encode())


def as_page_under_a_stylesheet(text: str) -> str:
    """The page is looked at up to its 32,000th character: 1,000 of them here."""
    start = "<html><style>"
    return as_page_end(start + "x" * (31_000 - len(start) - len("</style>")) + "</style>" + text)


def as_page_end(page: str) -> str:
    return refused(page.encode())


def as_title(text: str) -> str:
    return refused(f"<html><title>{text}</title></html>".encode())


PLACES: dict[str, tuple[Callable[[str], str], int]] = {
    "no JSON": (lambda text: received(text.encode()), 200),
    "JSON and no completion": (lambda text: received(encoded([text])), 198),
    "skipped event": (as_event, 80),
    "model": (lambda text: received(encoded({**answer("Hello"), "model": text})), 200),
    "finish reason": (lambda text: received(encoded(answer("Hello", finish=text))), 200),
    "keys": (lambda text: received(encoded({text: 1})), 200),
    "error message": (lambda text: error_with(message=text), 470),
    "error code": (lambda text: error_with(code=text), 100),
    "request id": (lambda text: error_with(request_id=text), 100),
    "upstream": (lambda text: error_with(metadata={"provider_name": text}), 100),
    "error that is no JSON": (lambda text: refused(text.encode()), 470),
    "page": (as_page, 200),
    "end of what is looked at of a page": (as_page_under_a_stylesheet, 1_000),
    "title": (as_title, 300),
    "hint": (lambda text: clean(text, limit=1_000), 1_000),
    "reason": (lambda text: clean(text, limit=100), 100),
}


@pytest.mark.parametrize(("show", "cut"), PLACES.values(), ids=PLACES)
def test_a_key_over_the_cut_is_not_shown_by_half(show: Callable[[str], str], cut: int) -> None:
    margin = len(KEY) + 8
    shown = {at: show(f"{filler(at)}{KEY} {filler(2_000)}") for at in range(cut - 2 * margin, cut + 5)}
    assert {at: found for at, text in shown.items() if (found := leaked(text))} == {}
    assert any("[redacted:cut_key]" in text.lower() for text in shown.values()) or cut == 1_000


@pytest.mark.parametrize("window_chars", [8_000, 32_000])
def test_a_key_over_the_end_of_the_head_is_not_shown_by_half(window_chars: int) -> None:
    """Long keys before it make the head so short that its end is shown."""
    for at in range(window_chars - len(KEY) - 2, window_chars + 3):
        keys = f"{LONG_KEY} " * (at // (len(LONG_KEY) + 1))
        text = f"{keys}{' ' * (at - len(keys))}{KEY} {filler(40_000)}"
        shown = clean(text, limit=5_000)
        assert len(shown) < 5_000 or window_chars == 8_000
        assert not leaked(shown), at
        assert "v001" not in shown, at


def test_the_end_of_a_page_that_is_too_long_is_not_shown_by_half() -> None:
    for reached in range(1, len(KEY) + 1):
        start = "<html><style>"
        page = start + "x" * (32_000 - reached - len(start) - len("</style>Hello ")) + "</style>Hello "
        shown = as_page_end(page + KEY + filler(500))
        assert not leaked(shown), reached
        assert "Hello" in shown


def test_an_enormous_text_is_cleaned_at_once() -> None:
    text = filler(8_000_000)
    began = time.monotonic()
    assert clean(text).startswith("some words")
    assert len(redacted_head(text)) <= 32_000
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("reached", [4, 15, 27])
def test_an_error_body_that_broke_off_amid_a_key_does_not_show_it(fake: FakeProvider, reached: int) -> None:
    fake.reply(Reply([f"The key is wrong: {KEY[:reached]}".encode(), Stall()], 401, [], "chunked"))
    refusal = failure(endpoint(fake), within_s=1.6)
    assert refusal.code == "E_AUTH"
    assert "key is" in refusal.message
    assert not leaked(json.dumps(refusal.as_dict()))


def test_an_id_too_long_for_a_model_is_skipped_and_not_cut() -> None:
    listed = catalogue.models_of({"data": [{"id": "a"}, {"id": f"{filler(190)}{KEY}"}, f"{filler(190)}{KEY}"]})
    assert listed is not None
    assert (listed.ids, listed.skipped) == (("a",), 2)


def test_names_that_are_too_long_are_still_cut() -> None:
    reception = Reception(content_type="", content_encoding="")
    reception.feed(encoded({**answer("Hello", finish=filler(900)), "model": filler(900)}))
    got = completion_of(reception.answer(), asked=ASKED, headers={}, accept_reasoning=False)
    assert len(got.resolved_model or "") == 200
    assert len(got.finish_reason_raw or "") == 200
