from __future__ import annotations

import hashlib
import json
import random
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from core.canonical import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_INTEGER,
    StrictDecodeError,
    canonical_text,
    check_value,
    digest,
    payload_bytes,
    strict_loads,
    utc_text,
)

HOSTILE: list[tuple[str, bytes | str, str]] = [
    ("a key twice", '{"a":1,"a":2}', "duplicate_key"),
    ("a key twice, once escaped", '{"a":1,"\\u0061":2}', "duplicate_key"),
    ("a key twice, deep inside", '[{"x":{"k":[],"k":[]}}]', "duplicate_key"),
    ("NaN", "NaN", "nan"),
    ("NaN in a list", "[1,NaN]", "nan"),
    ("Infinity", '{"a":Infinity}', "nan"),
    ("-Infinity", "-Infinity", "nan"),
    ("a float that overflows", "1e400", "nan"),
    ("a negative one", "[-1E+999]", "nan"),
    ("the smallest that does", "1e309", "nan"),
    ("many digits and an exponent of two", "1" * 300 + "e99", "nan"),
    ("a float with 5,000 digits", "1" * 5000 + ".0", "nan"),
    ("2^53", "9007199254740992", "big_integer"),
    ("2^53+1", "9007199254740993", "big_integer"),
    ("-2^53", "[-9007199254740992]", "big_integer"),
    ("an integer of 5,000 digits", "9" * 5000, "big_integer"),
    ("a negative one of 5,000 digits", "-" + "9" * 5000, "big_integer"),
    ("a lone high surrogate, escaped", '"\\ud800"', "surrogate"),
    ("a lone low surrogate, escaped", '"\\uDFFF"', "surrogate"),
    ("surrogates in the wrong order", '"\\ude00\\ud83d"', "surrogate"),
    ("a lone surrogate in a key", '{"\\ud800":1}', "surrogate"),
    ("a lone surrogate in a str", '"\ud800"', "surrogate"),
    ("a surrogate in UTF-8", b'"\xed\xa0\x80"', "encoding"),
    ("65 lists", "[" * 65 + "]" * 65, "depth"),
    ("65 objects", '{"a":' * 65 + "1" + "}" * 65, "depth"),
    ("100,000 lists, closed", "[" * 100_000 + "]" * 100_000, "depth"),
    ("100,000 lists, open", "[" * 100_000, "depth"),
    ("100,000 objects", '{"a":' * 100_000, "depth"),
    ("a byte order mark", b"\xef\xbb\xbf{}", "encoding"),
    ("a byte order mark in a str", "\ufeff{}", "encoding"),
    ("UTF-16 with a mark", '{"a":1}'.encode("utf-16"), "encoding"),
    ("UTF-16-LE", '{"a":1}'.encode("utf-16-le"), "encoding"),
    ("UTF-16-BE", '{"a":1}'.encode("utf-16-be"), "encoding"),
    ("UTF-32-LE", "1".encode("utf-32-le"), "encoding"),
    ("UTF-32-BE with a mark", b"\x00\x00\xfe\xff\x00\x00\x001", "encoding"),
    ("a byte that is no UTF-8", b'"\xff"', "encoding"),
    ("an overlong encoding", b'"\xc0\xaf"', "encoding"),
    ("a cut character", b'"\xe2\x82', "encoding"),
    ("nothing", b"", "syntax"),
    ("white space", "  \n", "syntax"),
    ("a cut object", '{"a":', "syntax"),
    ("an open string", '"' + "a" * 1000, "syntax"),
    ("two values", "1 2", "syntax"),
    ("something after the value", '{"a":1}x', "syntax"),
    ("a trailing comma", "[1,]", "syntax"),
    ("single quotes", "{'a':1}", "syntax"),
    ("a comment", "// x\n1", "syntax"),
    ("a raw newline in a string", '"a\nb"', "syntax"),
    ("a leading zero", "01", "syntax"),
    ("a hexadecimal number", "0x10", "syntax"),
    ("a word", "True", "syntax"),
    ("no-break space", "\u00a01", "syntax"),
]


@pytest.mark.parametrize(
    ("text", "reason"), [(text, reason) for _, text, reason in HOSTILE], ids=[name for name, _, _ in HOSTILE]
)
def test_hostile_texts_are_refused_with_their_reason(text: bytes | str, reason: str) -> None:
    started = time.monotonic()
    with pytest.raises(StrictDecodeError) as refused:
        strict_loads(text)
    assert refused.value.reason == reason
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("shape", ["str", "bytes"])
def test_five_megabytes_pass_and_seventeen_do_not(shape: str) -> None:
    def made(size: int) -> bytes | str:
        text = '"' + "é" * (size // 2 - 1) + '"'
        return text if shape == "str" else text.encode()

    assert len(strict_loads(made(5 * 2**20))) == 5 * 2**19 - 1
    assert strict_loads(made(MAX_BYTES))
    with pytest.raises(StrictDecodeError) as refused:
        strict_loads(made(MAX_BYTES + 2))
    assert refused.value.reason == "size"


def test_the_limits_can_be_set() -> None:
    assert strict_loads("[[1]]", max_depth=2) == [[1]]
    with pytest.raises(StrictDecodeError, match="2 levels"):
        strict_loads("[[[1]]]", max_depth=2)
    with pytest.raises(StrictDecodeError, match="4 bytes"):
        strict_loads('"abc"', max_bytes=4)


@pytest.mark.parametrize(
    "text",
    [
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
        '{"[[[[": "]]{{", "\\"[": "\\\\"}' * 1,
        json.dumps("[" * 500),
        json.dumps({"\\[" * 100: '"[' * 100}),
        "[" + ",".join(["[]"] * 1000) + "]",
        str(MAX_INTEGER),
        str(-MAX_INTEGER),
        "-0",
        "1e300",
        "9007199254740993.0",
        '"\\ud83d\\ude00"',
        '"\\\\ud800"',
        "null",
        " \t\r\n{} ",
    ],
)
def test_unusual_but_strict_texts_are_what_json_makes_of_them(text: str) -> None:
    assert strict_loads(text) == json.loads(text)
    assert strict_loads(text.encode()) == json.loads(text)


def test_a_nearly_full_stack_gives_a_depth_error_and_no_recursion_error() -> None:
    def at_depth(calls: int) -> Any:
        return at_depth(calls - 1) if calls else strict_loads("[" * 60 + "]" * 60)

    outcomes = set()
    for calls in range(700, 1000):
        try:
            outcomes.add(type(at_depth(calls)))
        except StrictDecodeError as error:
            outcomes.add(error.reason)
        except RecursionError:
            # The stack was full before strict_loads had begun.
            break
    assert outcomes <= {list, "depth"}


def test_scanning_for_depth_is_linear_on_strings_that_do_not_end() -> None:
    text = '"\\' * 500_000
    started = time.monotonic()
    with pytest.raises(StrictDecodeError):
        strict_loads("[[" + text)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "nan"),
        ([1, {"a": float("inf")}], "nan"),
        ({"a": 2**53}, "big_integer"),
        ([-(2**60)], "big_integer"),
        ({"a": "\ud800"}, "surrogate"),
        ({"\udc00": 1}, "surrogate"),
        ({1: "a"}, "syntax"),
        ({None: "a"}, "syntax"),
        ({"a": {True: 1}}, "syntax"),
        ([b"bytes"], "syntax"),
        ({"a": {1, 2}}, "syntax"),
        (object(), "syntax"),
    ],
)
def test_values_that_are_no_strict_json_are_refused(value: object, reason: str) -> None:
    with pytest.raises(StrictDecodeError) as refused:
        check_value(value)
    assert refused.value.reason == reason
    with pytest.raises(StrictDecodeError):
        canonical_text(value)


def test_deep_and_circular_values_are_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = 1
    for _ in range(MAX_DEPTH + 1):
        deep = {"a": deep}
    for value in (circle, deep):
        with pytest.raises(StrictDecodeError) as refused:
            check_value(value)
        assert refused.value.reason == "depth"
    check_value(deep["a"])


def test_what_strict_loads_returns_passes_check_value() -> None:
    check_value(strict_loads('{"a":[1,2.5,-0.0,null,true,"é\\u0000"],"":{}}'))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1e-7, "1e-7"),
        (0.000001, "0.000001"),
        (1e16, "10000000000000000"),
        (1.2345678901234568e20, "123456789012345680000"),
        (1e21, "1e+21"),
        (-0.0, "0"),
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        ({"\ue000": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ue000":1}'),
        ({"\ufb33": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ufb33":1}'),
        ("\u2028\x7f\x1f\n/\\", '"\u2028\x7f\\u001f\\n/\\\\"'),
        (("a", 1), '["a",1]'),
    ],
)
def test_canonical_text_is_that_of_rfc_8785(value: object, text: str) -> None:
    assert canonical_text(value) == text


def test_normal_forms_of_a_text_stay_apart() -> None:
    assert payload_bytes({"t": "é"}) != payload_bytes({"t": "e\u0301"})


_TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
_PROFILE = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_INTEGER, MAX_INTEGER) | _TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(st.characters(max_codepoint=127)), inner),
    max_leaves=20,
)


def _holds_of(value: Any) -> None:
    written = payload_bytes(value)
    assert written == rfc8785.dumps(value)
    assert strict_loads(written) == value


@settings(max_examples=100, database=None, deadline=None)
@given(_PROFILE)
def test_payload_bytes_are_those_of_rfc_8785(value: Any) -> None:
    _holds_of(value)


_CHARACTERS = [*map(chr, range(256)), "\u2028", "\ufb33", "\ue000", "\uffff", "\U0001f600", "\U0010ffff", "e\u0301"]


def _generated(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(6 if depth < 4 else 4)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([rng.randint(-MAX_INTEGER, MAX_INTEGER), rng.randint(-9, 9), MAX_INTEGER, -MAX_INTEGER])
    if kind in (2, 3):
        return "".join(rng.choices(_CHARACTERS, k=rng.randrange(12)))
    if kind == 4:
        return [_generated(rng, depth + 1) for _ in range(rng.randrange(5))]
    keys = ("".join(rng.choices(_CHARACTERS[:128], k=rng.randrange(6))) for _ in range(rng.randrange(5)))
    return {key: _generated(rng, depth + 1) for key in keys}


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_payload_bytes_of_generated_values_are_those_of_rfc_8785(count: int) -> None:
    rng = random.Random(8785)
    for _ in range(count):
        _holds_of(_generated(rng))


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        {"a": [1.0]},
        {"é": 1},
        {1: 2},
        2**53,
        "\ud800",
        {"\ud800": 1},
        b"x",
        datetime(2026, 1, 1, tzinfo=UTC),
        {"a": {1}},
        float("nan"),
    ],
)
def test_what_is_outside_the_profile_has_no_payload_bytes(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        payload_bytes(value)


def test_a_payload_may_not_nest_too_deep() -> None:
    value: Any = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert payload_bytes(value)
    with pytest.raises(StrictDecodeError):
        payload_bytes([value])


def test_the_digest_keeps_tags_salts_and_data_apart() -> None:
    assert digest("a", b"bc") == hashlib.sha256(b"a\0bc").hexdigest()
    assert digest("a", b"c", salt=b"b") == hashlib.sha256(b"a\0bc").hexdigest()
    assert len({digest("a", b"b"), digest("ab", b""), digest("a", b"b", salt=b"s"), digest("b", b"b")}) == 4


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05.000000Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2026-01-02T03:04:05.000006Z"),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2025-12-31T23:00:00.000000Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_times_are_written_in_utc_with_six_digits(moment: datetime, text: str) -> None:
    assert utc_text(moment) == text


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValueError, match="zone"):
        utc_text(datetime(2026, 1, 1))
