"""Whose request a broken frame was: found near its ends, whatever is between, and never slowly."""

from __future__ import annotations

import time

import pytest

from core.frames import INVALID_REQUEST, error_frame, request_id

MEGABYTE = 10**6


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"ping"}', 7),
        (b'{"id":"a b"}', "a b"),
        (b'{"id" : -3 }', -3),
        (b'{"id":9007199254740993}', 9007199254740993),
        (b'{"params":{"id":1},"id":2}', 2),
        (b'{"params":[{"id":1}],"method":"x","id":"2"}', "2"),
        (b'{"id":"one","id":"two"}', "one"),
        (b'{"id":3,"params":{"id":4', 3),
        (b'{"a":"\\"id\\":5","id":6}', 6),
        (b'{"id":"\\u00e9\\n"}', "é\n"),
        (b'{"id":null}', None),
        (b'{"id":1.5}', None),
        (b'{"id":true}', None),
        (b'{"id":{"id":1}}', None),
        (b'{"id":"\\ud800"}', None),
        (b'{"id":' + b"9" * 5_000 + b"}", None),
        (b'{"id":"open', None),
        (b'"id":1', None),
        (b"", None),
        (b"\x00\xff", None),
    ],
)
def test_the_id_of_a_frame(frame: bytes, expected: int | str | None) -> None:
    assert request_id(frame) == expected


@pytest.mark.parametrize(
    "middle",
    [
        b'{"a":"' + b"x" * 20 * MEGABYTE + b'"}',
        b'{"a":"' + b"\\n" * 10 * MEGABYTE + b'"}',
        b"[" * 5 * MEGABYTE + b"]" * 5 * MEGABYTE,
        b'{"id":1,' * MEGABYTE,
    ],
    ids=["text", "escapes", "brackets", "open"],
)
@pytest.mark.parametrize("last", [False, True])
def test_the_id_of_a_huge_frame_is_found_at_either_end_and_soon(middle: bytes, last: bool) -> None:
    frame = b'{"method":"x","params":' + middle + b',"id":"end","jsonrpc":"2.0"}'
    if not last:
        frame = b'{"id":"begin",' + frame[1:]
    begun = time.monotonic()
    assert request_id(frame) == ("end" if last else "begin")
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("piece", [b'"', b'\\"', b",", b'"id":', b',"id":1', b"{", b" ", b'{"id"'])
def test_nothing_is_slow_to_look_through(piece: bytes) -> None:
    begun = time.monotonic()
    request_id(piece * (5 * MEGABYTE // len(piece)))
    assert time.monotonic() - begun < 5


def test_an_error_frame_answers_the_request() -> None:
    assert error_frame("a", INVALID_REQUEST, "no", reason="depth") == {
        "jsonrpc": "2.0",
        "id": "a",
        "error": {"code": -32600, "message": "no", "data": {"reason": "depth"}},
    }
