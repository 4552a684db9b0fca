"""Layer 1 of redaction: the exact values of the named secrets, in every form a text may carry them in."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, quote_plus, urlsplit

import re2

from core.redaction.linear import linear

MIN_VALUE_CHARS: Final = 8
_HEAD_BYTES: Final = 4


@dataclass(frozen=True)
class Literals:
    """A compiled set of byte strings to look for, with the variable each belongs to."""

    names: Mapping[bytes, str]
    longest: int
    _pattern: Any
    _heads: Any
    _by_head: Mapping[bytes, tuple[bytes, ...]]

    def search(self, data: bytes, start: int) -> tuple[int, int, str] | None:
        """The next occurrence from there: where it starts and ends, and its variable."""
        match = self._pattern.search(data, start)
        if match is None:
            return None
        first, end = match.span()
        return first, end, self.names[data[first:end]]

    def open_from(self, data: bytes, start: int) -> int:
        """Where the first occurrence begins that the end of the data may have cut off; its length when none."""
        position = max(start, len(data) - self.longest + 1)
        while (head := self._heads.search(data, position)) is not None:
            first: int = head.start()
            if _is_cut_off(data[first:], self._by_head[head[0]]):
                return first
            position = first + 1
        for first in range(max(start, len(data) - _HEAD_BYTES + 1), len(data)):
            if _is_cut_off(data[first:], self._by_head):
                return first
        return len(data)


def _is_cut_off(rest: bytes, wholes: Iterable[bytes]) -> bool:
    return any(whole.startswith(rest) and whole != rest for whole in wholes)


def compile_literals(values: Mapping[str, str], markers: Iterable[bytes]) -> Literals | None:
    """The matcher for these values by variable name; None when there is nothing to look for.

    A value that is part of a replacement text, such as `password`, cannot be looked for: it would be found in its own
    replacement.
    """
    written = b" ".join(markers)
    names: dict[bytes, str] = {}
    for name, value in values.items():
        for form in _forms_of(value):
            if form not in written:
                names.setdefault(form, name)
    if not names:
        return None
    forms = sorted(names, key=lambda form: (-len(form), form))
    by_head: dict[bytes, list[bytes]] = {}
    for form in forms:
        by_head.setdefault(form[:_HEAD_BYTES], []).append(form)
    return Literals(
        names=names,
        longest=len(forms[0]),
        _pattern=_alternatives(forms),
        _heads=_alternatives(sorted(by_head)),
        _by_head={head: tuple(found) for head, found in by_head.items()},
    )


def _alternatives(literals: list[bytes]) -> Any:
    return linear(b"|".join(re2.escape(literal) for literal in literals))


def _forms_of(value: str) -> Iterator[bytes]:
    for secret in (value, _password_in(value)):
        if len(secret) >= MIN_VALUE_CHARS:
            yield from _text_forms(secret)
            yield from _byte_forms(secret.encode("utf-8", "surrogatepass"))


def _password_in(value: str) -> str:
    """The password of a URL such as DATABASE_URL: it also travels alone, in error messages."""
    if "://" not in value:
        return ""
    try:
        return urlsplit(value).password or ""
    except ValueError:
        return ""


def _text_forms(secret: str) -> Iterator[bytes]:
    quoted = quote(secret, safe="", errors="replace")
    escaped = json.dumps(secret)[1:-1]
    forms = {
        secret,
        escaped,
        escaped.replace("/", "\\/"),
        json.dumps(secret, ensure_ascii=False)[1:-1],
        json.dumps(escaped)[1:-1],
        repr(secret)[1:-1],
        html.escape(secret),
        quoted,
        quote(secret, safe="!'()*", errors="replace"),
        quote(secret, errors="replace"),
        quote_plus(secret, errors="replace"),
        _lower_escapes(quoted),
        _lower_escapes(quote(secret, errors="replace")),
    }
    for form in forms:
        yield form.encode("utf-8", "surrogatepass")


def _lower_escapes(quoted: str) -> str:
    first, *rest = quoted.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def _byte_forms(secret: bytes) -> Iterator[bytes]:
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    for before in range(3):
        whole = base64.b64encode(bytes(before) + secret)
        # Only the characters that are wholly made of the secret's bits.
        inner = whole[(before * 8 + 5) // 6 : (before + len(secret)) * 8 // 6]
        yield inner
        yield inner.replace(b"+", b"-").replace(b"/", b"_")
