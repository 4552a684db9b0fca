"""Server-sent events, however they are cut."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.providers.sse import SseEvent, SseParser


def parse(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return [*events, *parser.finish()]


BODIES = {
    "plain": (b"data: a\n\ndata: b\n\n", ["a", "b"]),
    "no space": (b"data:a\n\n", ["a"]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
    "cr": (b"data: a\r\rdata: b\r\r", ["a", "b"]),
    "mixed ends": (b"data: a\r\n\ndata: b\n\r\n", ["a", "b"]),
    "comment only": (b": keep-alive\n\n:\n\n", []),
    "comment between": (b": x\n\ndata: a\n\n", ["a"]),
    "empty data": (b"data:\n\ndata: a\n\n", ["a"]),
    "two lines": (b"data: a\ndata: b\n\n", ["a\nb"]),
    "no end": (b"data: a", ["a"]),
    "json without blank lines": (b'data: {"a":1}\ndata: {"b":2}\ndata: [DONE]\n', ['{"a":1}', '{"b":2}', "[DONE]"]),
    "json over lines": (b'data: {"a":\ndata: {}}\n\n', ['{"a":\n{}}']),
    "bare json": (b'{"error":1}\n\n', ['{"error":1}']),
    "bom": (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
    "other fields": (b"id: 7\nretry: 9\nfoo: bar\ndata: a\n\n", ["a"]),
    "utf-8": ("data: ü🎉\n\n".encode(), ["ü🎉"]),
    "bad utf-8": (b"data: \xff\n\n", ["\ufffd"]),
}


@pytest.mark.parametrize(("body", "wanted"), BODIES.values(), ids=BODIES)
def test_events_are_the_same_however_the_bytes_are_cut(body: bytes, wanted: list[str]) -> None:
    assert [event.data for event in parse(body)] == wanted
    assert [event.data for event in parse(*(bytes([byte]) for byte in body))] == wanted


def test_an_event_has_the_name_it_was_given() -> None:
    assert parse(b"event: error\ndata: x\n\ndata: y\n\n") == [SseEvent("x", "error"), SseEvent("y")]


@given(
    st.lists(st.sampled_from([b"data: ", b"{}", b"\n", b"\r", b"a", b": x", b"\xc3", b"\xbc", b"[DONE]", b"event:"]))
)
def test_cutting_differently_changes_nothing(pieces: list[bytes]) -> None:
    assert parse(*pieces) == parse(b"".join(pieces))


def test_a_long_line_in_tiny_pieces_costs_no_more_than_its_length() -> None:
    parser = SseParser()
    began = time.monotonic()
    list(parser.feed(b"data: "))
    for _ in range(200_000):
        list(parser.feed(b"xxxxx"))
    assert len(next(parser.finish()).data) == 1_000_000
    assert time.monotonic() - began < 5
