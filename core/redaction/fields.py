"""Deep redaction of JSON-like values, where the name of a field says as much as its text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from core.redaction.engine import current_literals, encode, redact_with
from core.redaction.literals import Literals

MAX_DEPTH: Final = 100
_MAX_NUMBER_BITS: Final = 4096
_TOO_DEEP: Final = "[redacted:too-deep]"
_MARKER: Final = re.compile(r"\[redacted:[\w-]+\]")
_NOT_ALNUM: Final = re.compile(r"[^a-z0-9]+")
_SECRET_FIELD: Final = re.compile(
    r"(?:(?P<authorization>authorization)|(?P<cookie>cookie)|(?P<password>passw(?:or)?d|passphrase|passcode|pwd)"
    r"|(?P<secret>secret|token|credential|apikey"
    r"|(?:private|secret|access|auth|signing|encryption|account|master|session)key))s?$"
)
# Counts, cursors, and the special tokens of language models.
_PLAIN_FIELD: Final = re.compile(
    r"tokens$|(?:progress|page|next|continuation|sync|cursor|stop|pad|eos|bos|unk|sep|cls|mask|first|last|prev|previous)"
    r"token$"
)


def is_secret_field(name: str) -> bool:
    """Whether a field of that name holds a credential: `apiKey` and `X-Api-Key` do, `apiKeyEnv` and `tokens` do not."""
    return _field_rule(name) is not None


def redact_value(value: Any) -> Any:
    """A copy of a JSON-like value without secrets: keys and strings redacted, strings in secret fields replaced.

    Tuples and sets become lists, bytes become text. Numbers, booleans, None and other objects stay as they are, also in
    secret fields; what nests too deep is left out.
    """
    return _redacted(value, current_literals(), field=None, depth=0)


def holds_secret_value(value: Any) -> str | None:
    """The name of a variable whose value, plain or encoded, occurs anywhere in the value, keys included; else None."""
    literals = current_literals()
    if literals is None:
        return None
    for text in _texts(value):
        found = literals.search(encode(text), 0)
        if found is not None:
            return found[2]
    return None


def _field_rule(name: str) -> str | None:
    squashed = _NOT_ALNUM.sub("", name.lower())
    match = _SECRET_FIELD.search(squashed)
    return None if match is None or _PLAIN_FIELD.search(squashed) else match.lastgroup


def _redacted(value: Any, literals: Literals | None, *, field: str | None, depth: int) -> Any:
    if isinstance(value, bytes | bytearray):
        value = _text_of_bytes(value)
    if isinstance(value, str):
        return _redacted_text(value, literals, field)
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return value
    if depth > MAX_DEPTH:
        return _TOO_DEEP
    if isinstance(value, Mapping):
        return _redacted_object(value, literals, depth)
    return [_redacted(item, literals, field=field, depth=depth + 1) for item in value]


def _redacted_text(text: str, literals: Literals | None, field: str | None) -> str:
    clean = redact_with(literals, text)[0]
    if field is None or not text or _MARKER.fullmatch(clean):
        return clean
    return f"[redacted:{field}]"


def _redacted_object(value: Mapping[Any, Any], literals: Literals | None, depth: int) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, item in value.items():
        field = _field_rule(key) if isinstance(key, str) else None
        found[_redacted_key(key, literals, found)] = _redacted(item, literals, field=field, depth=depth + 1)
    return found


def _redacted_key(key: Any, literals: Literals | None, taken: Mapping[Any, Any]) -> Any:
    if not isinstance(key, str):
        return key
    clean = name = redact_with(literals, key)[0]
    number = 1
    while clean != key and name in taken:
        # Two keys that held secrets: neither entry is lost.
        number += 1
        name = f"{clean} {number}"
    return name


def _texts(value: Any) -> Iterator[str]:
    waiting = [value]
    seen: set[int] = set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping | list | tuple | set | frozenset):
            if id(item) not in seen:
                seen.add(id(item))
                waiting.extend(item)
                waiting.extend(item.values() if isinstance(item, Mapping) else ())
        else:
            yield from _text_of_scalar(item)


def _text_of_scalar(item: Any) -> Iterator[str]:
    if isinstance(item, bytes | bytearray):
        yield _text_of_bytes(item)
    elif isinstance(item, float) or (isinstance(item, int) and item.bit_length() <= _MAX_NUMBER_BITS):
        yield str(item)


def _text_of_bytes(item: bytes | bytearray) -> str:
    return bytes(item).decode(errors="backslashreplace")
