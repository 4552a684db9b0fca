"""Bytes of a body made into text, and text into values, whatever the server did to them."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_KNOWN_CHARSET: Final = re.compile(
    r"(utf-?(8|16|32)([-_](le|be|sig))?|ascii|latin-?1|iso-?8859-\d+|cp125\d|windows-125\d|gb18030|gbk|gb2312|big5"
    r"|shift_jis|euc_(jp|kr)|koi8-r)\Z"
)
_WIDE: Final = re.compile(r"utf-?(16|32)")
_SSE_LINE: Final = re.compile(r"(data|event|id|retry)?:")
_MAX_UNWRAPS: Final = 3
_MAX_VALUES: Final = 100_000
_WRAPPERS: Final = ("response", "data", "result", "body")


class NotJsonError(ValueError):
    """The text is no JSON at all."""


@dataclass
class Parsed:
    """`value` is the answer's document, `wrapped` the same as it came; `chunks` has all where there were several."""

    value: Any
    wrapped: Any
    chunks: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def text_of(data: bytes, content_type: str) -> str:
    """The body as text: UTF-8 where it is clean, else the declared charset where that is known and clean."""
    declared = _declared(content_type)
    order = (declared, "utf-8-sig") if _WIDE.match(declared) else ("utf-8-sig", declared)
    for charset in filter(None, order):
        try:
            return data.decode(charset).strip()
        except ValueError:
            continue
    return data.decode("utf-8-sig", "replace").strip()


def _declared(content_type: str) -> str:
    found = _CHARSET.search(content_type)
    if not found:
        return ""
    try:
        name = codecs.lookup(found[1]).name
    except (LookupError, ValueError):
        return ""
    return name if _KNOWN_CHARSET.match(name) else ""


def looks_like_sse(text: str) -> bool:
    return _SSE_LINE.match(text.lstrip("\ufeff \t\r\n")) is not None


def loads(text: str) -> Any:
    """One JSON value. Raises NotJsonError; numbers too big to be meant become 0, NaN stays."""
    try:
        return json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise NotJsonError(_why(error)) from None


def parse(text: str) -> Parsed:
    """The value (or values) of a body, out of its wrappers. Raises NotJsonError."""
    notes: list[str] = []
    values = _values(text)
    if len(values) > 1:
        notes.append(f"The body held {len(values)} JSON values; the first was taken.")
    value = unwrapped(values[0])
    chunks = value if len(values) == 1 and _are_chunks(value) else values
    return Parsed(value, values[0], chunks if _are_chunks(chunks) else [], notes)


def unwrapped(value: Any) -> Any:
    """Out of one-element lists, JSON inside strings, and envelopes around an answer."""
    for _ in range(_MAX_UNWRAPS):
        inner = _inner(value)
        if inner is None:
            break
        value = inner
    return value


def _inner(value: Any) -> Any:
    if isinstance(value, list):
        return value[0] if len(value) == 1 else None
    if isinstance(value, str):
        return _json_inside(value)
    if isinstance(value, dict) and "choices" not in value:
        boxed = (value.get(name) for name in _WRAPPERS)
        return next((box for box in boxed if isinstance(box, dict) and "choices" in box), None)
    return None


def _json_inside(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[", '"')):
        return None
    try:
        return loads(text)
    except NotJsonError:
        return None


def _are_chunks(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) > 1
        and all(isinstance(value, dict) for value in values)
        and all({"choices", "error", "message"} & value.keys() for value in values)
    )


def _values(text: str) -> list[Any]:
    """All JSON values that stand one after the other at the start of the text; at least one."""
    decoder = json.JSONDecoder(parse_int=_integer)
    values: list[Any] = []
    at = 0
    while at < len(text) and len(values) < _MAX_VALUES:
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if values:
                break
            raise NotJsonError(_why(error)) from None
        values.append(value)
        at = _next_start(text, at)
    if not values or not isinstance(values[0], dict | list | str):
        raise NotJsonError("it is empty" if not text else "it is no JSON object")
    return values


def _next_start(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n\x1e":
        at += 1
    return at


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= 20 else 0


def _why(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else "it is not valid JSON"


def mend(text: str) -> str:
    """Text that every store takes: halves of characters joined or replaced, NUL replaced."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
