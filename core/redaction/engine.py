"""The two layers put together, over whole texts."""

from __future__ import annotations

from typing import Final

from core.redaction.literals import Literals, compile_literals
from core.redaction.scan import RULES, search
from core.secrets import secret_values

_SHORTEST_CHARS: Final = 6
_RULE_NAMES: Final = frozenset(rule.name for rule in RULES)
_cached: tuple[dict[str, str], Literals | None] = ({}, None)


def current_literals() -> Literals | None:
    """The matcher for the secrets as they are set now; compiled again only when one has changed."""
    global _cached
    values = secret_values()
    known, literals = _cached
    if values != known:
        literals = compile_literals(values, map(marker, (*values, *_RULE_NAMES)))
        _cached = (values, literals)
    return literals


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def marker(name: str) -> bytes:
    return f"[redacted:{name}]".encode()


def redact(text: str) -> str:
    """The text without secrets."""
    return redact_counted(text)[0]


def without_values(text: str) -> str:
    """The text without the values of named secrets; what only looks like a key stays (layer 1 only)."""
    data, count = _without_values(current_literals(), encode(text))
    return decode(data) if count else text


def redact_counted(text: str) -> tuple[str, int]:
    """The text without secrets, and how many were taken out."""
    return redact_with(current_literals(), text)


def redact_with(literals: Literals | None, text: str) -> tuple[str, int]:
    """As `redact_counted`, with a matcher at hand: for many texts at once."""
    if len(text) < _SHORTEST_CHARS:
        return text, 0
    data, first = _without_values(literals, encode(text))
    data, second = _without_patterns(data)
    count = first + second
    return (decode(data), count) if count else (text, 0)


def looks_like_key(text: str) -> bool:
    """Whether the text holds something of a credential's form (layer 2 only)."""
    return _without_patterns(encode(text))[1] > 0


def _without_values(literals: Literals | None, data: bytes) -> tuple[bytes, int]:
    if literals is None:
        return data, 0
    pieces: list[bytes] = []
    position = count = 0
    while (found := literals.search(data, position)) is not None:
        start, end, name = found
        pieces += (data[position:start], marker(name))
        position = end
        count += 1
    return (b"".join((*pieces, data[position:])), count) if count else (data, 0)


def _without_patterns(data: bytes) -> tuple[bytes, int]:
    pieces: list[bytes] = []
    position = written = count = 0
    while (found := search(data, position)) is not None:
        for start, end in found.spans:
            pieces += (data[written:start], marker(found.rule.name))
            written = end
            count += 1
        position = found.end
    return (b"".join((*pieces, data[written:])), count) if count else (data, 0)
