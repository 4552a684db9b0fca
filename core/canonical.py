"""Strict decoding of JSON, and the two canonical forms: our own restricted profile and RFC 8785."""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Final, Never

import rfc8785

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_DEPTH: Final = 64
MAX_INTEGER: Final = 2**53 - 1

_MAX_INTEGER_CHARS: Final = len(str(-MAX_INTEGER))
_BOMS: Final = (
    codecs.BOM_UTF8,
    codecs.BOM_UTF16_LE,
    codecs.BOM_UTF16_BE,
    codecs.BOM_UTF32_LE,
    codecs.BOM_UTF32_BE,
)
# Possessive, so that it is linear on any text: what is left after it are the brackets outside strings.
_NOT_A_BRACKET: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[^\[\]{}"]++', re.DOTALL)
_DIGITS_TO_ZERO: Final = bytes.maketrans(b"123456789E", b"000000000e")
_UNUSUAL_NUMBERS: Final = (b"0" * len(str(MAX_INTEGER)), b"e000", b"e+000")
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_STEP: Final = {"[": 1, "{": 1, "]": -1, "}": -1}


class StrictDecodeError(ValueError):
    """A text or value outside the strict JSON that MEAH judges.

    `reason` is one of duplicate_key, nan, big_integer, surrogate, depth, size, encoding, syntax.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def strict_loads(data: bytes | str, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> Any:
    """The JSON value of a text, or StrictDecodeError; the sizes are in bytes of UTF-8 and in nested containers."""
    raw = _encoded(data, max_bytes) if isinstance(data, str) else data
    text = _decoded(raw, max_bytes)
    if _is_deeper(text, max_depth):
        raise _too_deep(max_depth)
    decoder = _WATCHFUL_DECODER if _has_unusual_numbers(raw) else _DECODER
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise StrictDecodeError("syntax", f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        # The caller's stack was nearly full already.
        raise _too_deep(max_depth) from None
    if _SURROGATE_ESCAPE.search(text):
        check_value(value, max_depth=max_depth)
    return value


def check_value(value: object, *, max_depth: int = MAX_DEPTH) -> None:
    """Refuse, with StrictDecodeError, an already parsed value that `strict_loads` could not have returned."""
    for item in _walk(value, max_depth):
        if isinstance(item, str):
            _check_text(item)
        elif isinstance(item, bool) or item is None:
            continue
        elif isinstance(item, int):
            _check_integer(item)
        elif isinstance(item, float):
            _check_float(item)
        elif not isinstance(item, dict | list | tuple):
            raise StrictDecodeError("syntax", f"{type(item).__name__} is no JSON value")


def payload_bytes(value: object) -> bytes:
    """The canonical bytes of a value in the audit chain's profile.

    The profile: strings, booleans, None, integers within ±(2^53-1), lists, and objects with ASCII keys. ValueError
    (StrictDecodeError) for anything else. Within it the bytes are those of RFC 8785.
    """
    for item in _walk(value, MAX_DEPTH):
        if isinstance(item, str):
            _check_text(item)
        elif isinstance(item, float):
            raise StrictDecodeError("syntax", "the audit profile has no floats")
        elif isinstance(item, int):
            _check_integer(item)
        elif isinstance(item, dict):
            _check_ascii_keys(item)
        elif item is not None and not isinstance(item, list | tuple):
            raise StrictDecodeError("syntax", f"{type(item).__name__} is not in the audit profile")
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def canonical_text(value: object) -> str:
    """The RFC 8785 text of a value of any origin; StrictDecodeError when it is no strict JSON value."""
    check_value(value)
    return rfc8785.dumps(value).decode()  # type: ignore[arg-type]  # checked in the line above


def digest(tag: str, data: bytes, *, salt: bytes = b"") -> str:
    """Hexadecimal SHA-256 over the tag, a zero byte, the salt and the data; the tag keeps uses apart."""
    return hashlib.sha256(tag.encode() + b"\0" + salt + data).hexdigest()


def utc_text(moment: datetime) -> str:
    """An aware time as `YYYY-MM-DDTHH:MM:SS.ffffffZ`; ValueError when it is naive."""
    if moment.utcoffset() is None:
        raise ValueError("a time without a zone has no place in a record")
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _encoded(text: str, max_bytes: int) -> bytes:
    if len(text) > max_bytes:
        raise _too_big(max_bytes)
    _check_text(text)
    return text.encode()


def _decoded(data: bytes, max_bytes: int) -> str:
    if len(data) > max_bytes:
        raise _too_big(max_bytes)
    if data.startswith(_BOMS) or 0 in data[:4]:
        raise StrictDecodeError("encoding", "not UTF-8 without a byte order mark")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise StrictDecodeError("encoding", f"not UTF-8 at byte {error.start}") from None


def _has_unusual_numbers(data: bytes) -> bool:
    """Whether an integer could be too large or a float overflow; if not, the decoder need not ask us for each number.

    It may take a string for a number, never a number for none.
    """
    digits = data.translate(_DIGITS_TO_ZERO)
    return any(sign in digits for sign in _UNUSUAL_NUMBERS)


def _is_deeper(text: str, max_depth: int) -> bool:
    """Whether the containers of a JSON text nest deeper, found without parsing it."""
    if text.count("[") + text.count("{") <= max_depth:
        return False
    brackets = _NOT_A_BRACKET.sub("", text)
    return any(depth > max_depth for depth in accumulate(map(_STEP.__getitem__, brackets)))


def _walk(value: object, max_depth: int) -> Iterator[object]:
    """Every value and every key within, without recursion."""
    level: list[object] = [value]
    depth = 0
    while level:
        below: list[object] = []
        for item in level:
            yield item
            if isinstance(item, dict | list | tuple):
                if depth == max_depth:
                    raise _too_deep(max_depth)
                if isinstance(item, dict):
                    yield from _keys(item)
                below.extend(item.values() if isinstance(item, dict) else item)
        level = below
        depth += 1


def _keys(item: dict[Any, Any]) -> Iterator[str]:
    for key in item:
        if not isinstance(key, str):
            raise StrictDecodeError("syntax", f"a key is of type {type(key).__name__}, not a string")
        yield key


def _check_ascii_keys(item: dict[Any, Any]) -> None:
    for key in item:
        if isinstance(key, str) and not key.isascii():
            raise StrictDecodeError("syntax", "the audit profile has ASCII keys only")


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise StrictDecodeError("surrogate", "a lone surrogate in a string") from None


def _check_integer(number: int) -> None:
    if not -MAX_INTEGER <= number <= MAX_INTEGER:
        raise StrictDecodeError("big_integer", "an integer beyond ±(2^53-1): send it as a string")


def _check_float(number: float) -> None:
    if not math.isfinite(number):
        raise StrictDecodeError("nan", "a number that is not finite")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise StrictDecodeError("duplicate_key", "an object has the same key twice")
    return found


def _constant(name: str) -> Never:
    raise StrictDecodeError("nan", f"{name} is no JSON number")


def _integer(digits: str) -> int:
    # int() of many digits costs quadratic time, and Python refuses it from 4,300 on with an error of its own.
    if len(digits) > _MAX_INTEGER_CHARS:
        raise StrictDecodeError("big_integer", "an integer beyond ±(2^53-1): send it as a string")
    number = int(digits)
    _check_integer(number)
    return number


def _float(digits: str) -> float:
    number = float(digits)
    _check_float(number)
    return number


def _too_deep(max_depth: int) -> StrictDecodeError:
    return StrictDecodeError("depth", f"nested deeper than {max_depth} levels")


def _too_big(max_bytes: int) -> StrictDecodeError:
    return StrictDecodeError("size", f"larger than {max_bytes} bytes")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant)
_WATCHFUL_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer, parse_float=_float
)
