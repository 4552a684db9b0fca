"""Bodies of any kind: whatever comes is an answer or one of our errors, however it is cut."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fake_provider import DONE, answer, chunk, event
from workers.providers.answer import completion_of
from workers.providers.assembly import BadEventError
from workers.providers.base import ProviderFailure
from workers.providers.failures import Asked, failure_of
from workers.providers.inflate import BodyTooLargeError, BrokenEncodingError, Inflater
from workers.providers.jsontext import mend
from workers.providers.reception import Reception

ASKED = Asked("fake", "fake-model", 100, "https://api.example.com/v1/chat/completions")
UNREADABLE = (ProviderFailure, BodyTooLargeError, BrokenEncodingError, BadEventError)


def received(pieces: list[bytes], *, encoding: str = "", kind: str = "application/json") -> str:
    """The text of the answer, or the name of what was raised."""
    reception = Reception(content_type=kind, content_encoding=encoding)
    try:
        for piece in pieces:
            reception.feed(piece)
        return completion_of(reception.answer(), asked=ASKED, headers={}, accept_reasoning=False).text
    except UNREADABLE as error:
        return f"{type(error).__name__} {error}"


def refused(body: bytes) -> ProviderFailure:
    reception = Reception(content_type="application/json", content_encoding="")
    reception.feed(body)
    return failure_of(reception.complaint(), status=500, headers={}, asked=ASKED)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from([
            "error", "message", "choices", "delta", "content", "finish_reason", "usage", "code", "detail", "metadata",
            "raw", "text", "model", "errors", "reasoning", "reasoning_details", "type", "thinking", "data", "base_resp",
            "status_code", "prompt_tokens", "completion_tokens", "refusal", "tool_calls", "index", "status", "headers",
            "loc", "msg", "provider_name", "x_groq", "object", "success",
        ]),
        inner,
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(JSON_VALUES)
def test_no_json_escapes_as_anything_but_an_answer_or_an_error(value: object) -> None:
    body = json.dumps(value).encode()
    assert isinstance(received([body]), str)
    assert isinstance(received([event(value), DONE]), str)
    assert refused(body).code.startswith("E_")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["", "gzip", "deflate", "br"]))
def test_no_bytes_escape_as_anything_but_an_answer_or_an_error(body: bytes, encoding: str) -> None:
    assert isinstance(received([body], encoding=encoding), str)
    assert refused(body).code.startswith("E_")


WIRE = {
    "json": json.dumps(answer("Hello there")).encode(),
    "stream": event(chunk("Hello ")) + b": x\n\n" + event(chunk("there", finish="stop")) + DONE,
}


@pytest.mark.parametrize("body", WIRE.values(), ids=WIRE)
@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_a_body_is_the_same_however_it_is_cut(body: bytes, encoding: str, size: int) -> None:
    packed = {"": body, "gzip": gzip.compress(body), "deflate": zlib.compress(body)}[encoding]
    pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
    assert received(pieces, encoding=encoding) == "Hello there"


def test_white_space_and_comments_are_no_output() -> None:
    reception = Reception(content_type="", content_encoding="")
    for piece in (b"\n" * 20_000, b": keep-alive\n\n", event(chunk("")), event({"choices": []})):
        reception.feed(piece)
        assert not reception.output_started
    reception.feed(event(chunk("a")))
    assert reception.output_started


def test_a_bomb_never_exists_in_memory() -> None:
    bomb = gzip.compress(b"a" * 50_000_000)
    inflater = Inflater("gzip", limit_bytes=1_000_000)
    tracemalloc.start()
    with pytest.raises(BodyTooLargeError):
        inflater.feed(bomb)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10_000_000


def test_halves_of_characters_are_joined_or_replaced() -> None:
    assert mend("a\ud83c\udf89b\ud83cc\x00") == "a🎉b\ufffdc\ufffd"
    assert mend("plain ü") == "plain ü"
