"""A web page where JSON was due: what it says, without its markup."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Final

from workers.providers.base import clean, redacted_head

_LOOKED_AT_CHARS: Final = 32_000
_SNIPPET_CHARS: Final = 200
_TITLE_CHARS: Final = 300
_START: Final = re.compile(r"\s*(<!doctype|<html|<head|<body|<title|<h1|<!--|<\?xml)", re.IGNORECASE)
_TITLE: Final = re.compile(r"<title[^<>]{0,200}>([^<]*)", re.IGNORECASE)
_TAG: Final = re.compile(r"<[^<>]*>")
_CLOUDFLARE: Final = re.compile(r"error code:?\s*(\d{3,4})", re.IGNORECASE)
_RAY: Final = re.compile(r"ray id:?\s*([0-9a-f]{12,20})", re.IGNORECASE)
_CUT_ENTITY: Final = re.compile(r"&#?\w{0,32}\Z")
_HIDDEN: Final = ("script", "style", "svg")


@dataclass(frozen=True)
class Page:
    """`summary` is the title, with Cloudflare's code and Ray id where it has them; both are cleaned."""

    summary: str
    snippet: str


def page_of(text: str) -> Page | None:
    """The page, or None where the text is no HTML."""
    if not _START.match(text[:200]):
        return None
    is_cut = len(text) > _LOOKED_AT_CHARS
    if is_cut:
        text = _CUT_ENTITY.sub("", text[:_LOOKED_AT_CHARS])
    words = redacted_head(_words(text), is_cut=is_cut)
    snippet = clean(words, limit=_SNIPPET_CHARS)
    parts = [_title(text, is_cut=is_cut) or snippet]
    parts += [f"Cloudflare error {found[1]}" for found in [_CLOUDFLARE.search(words)] if found]
    parts += [f"Ray ID {found[1]}" for found in [_RAY.search(words)] if found]
    return Page(", ".join(filter(None, parts)) or "an HTML page", snippet)


def _title(text: str, *, is_cut: bool) -> str:
    found = _TITLE.search(text)
    if not found:
        return ""
    title = redacted_head(html.unescape(found[1]), is_cut=is_cut and found.end() == len(text))
    return clean(title, limit=_TITLE_CHARS)


def _words(text: str) -> str:
    for name in _HIDDEN:
        text = _without(text, name)
    return " ".join(html.unescape(_TAG.sub(" ", text)).split())


def _without(text: str, name: str) -> str:
    """The text without all `<name>…</name>`, in one pass."""
    lowered = text.lower()
    kept: list[str] = []
    at = 0
    while (start := lowered.find(f"<{name}", at)) >= 0:
        kept.append(text[at:start])
        end = lowered.find(f"</{name}", start)
        if end < 0:
            return "".join(kept)
        at = end
    return "".join([*kept, text[at:]])
