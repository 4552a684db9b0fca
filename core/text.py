"""Text from strangers made safe to look at: what hides or reorders characters is shown as a mark."""

from __future__ import annotations

import re
from typing import Final

# Controls but newline and tab; soft hyphen; combining grapheme joiner; Hangul fillers; Mongolian selectors; zero-width
# and bidi characters; line and paragraph separators; word joiners and invisible operators; variation selectors;
# byte order mark; interlinear annotation; musical controls; tag characters; surrogates and noncharacters.
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\ud800-\udfff\ufffe\uffff]"
)
_SPACES: Final = re.compile(r"\s+")


def visible(text: str) -> str:
    """The text with every hidden character shown as its mark, such as ⟨U+202E⟩; newlines and tabs stay."""
    return _HIDDEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def has_hidden(text: str) -> bool:
    """Whether the text has characters that cannot be seen or that change how the rest is shown."""
    return _HIDDEN.search(text) is not None


def one_line(text: str, limit: int) -> str:
    """The visible text on one line of at most `limit` characters, cut with an ellipsis."""
    # Cut generously first: the text may be large, and marks only make it longer.
    line = _SPACES.sub(" ", visible(_SPACES.sub(" ", text.strip())[: limit + 1]))
    return line if len(line) <= limit else line[: max(limit - 1, 0)].rstrip() + "…"
