"""A web page where JSON was due: what it says, without its markup."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Final

_LOOKED_AT_CHARS: Final = 32_000
_SNIPPET_CHARS: Final = 200
_START: Final = re.compile(r"\s*(<!doctype|<html|<head|<body|<title|<h1|<!--|<\?xml)", re.IGNORECASE)
_TITLE: Final = re.compile(r"<title[^<>]{0,200}>([^<]{0,300})", re.IGNORECASE)
_TAG: Final = re.compile(r"<[^<>]*>")
_CLOUDFLARE: Final = re.compile(r"error code:?\s*(\d{3,4})", re.IGNORECASE)
_RAY: Final = re.compile(r"ray id:?\s*([0-9a-f]{12,20})", re.IGNORECASE)
_HIDDEN: Final = ("script", "style", "svg")


@dataclass(frozen=True)
class Page:
    """`summary` is the title, with Cloudflare's code and Ray id where it has them; both texts are foreign."""

    summary: str
    snippet: str


def page_of(text: str) -> Page | None:
    """The page, or None where the text is no HTML."""
    if not _START.match(text[:200]):
        return None
    text = text[:_LOOKED_AT_CHARS]
    words = _words(text)
    title = _TITLE.search(text)
    parts = [html.unescape(title[1]).strip() if title else words[:_SNIPPET_CHARS]]
    parts += [f"Cloudflare error {found[1]}" for found in [_CLOUDFLARE.search(words)] if found]
    parts += [f"Ray ID {found[1]}" for found in [_RAY.search(words)] if found]
    return Page(", ".join(filter(None, parts)) or "an HTML page", words[:_SNIPPET_CHARS])


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
