"""Reasoning that a model writes into its answer between tags, told apart from the answer."""

from __future__ import annotations

import re
from typing import Final

_OPEN: Final = re.compile(r"<(think|thinking|thought|reasoning|seed:think)>|◁think▷", re.IGNORECASE)
_OPEN_TAGS: Final = ("<think>", "<thinking>", "<thought>", "<reasoning>", "<seed:think>", "◁think▷")
_LONGEST_TAG: Final = 16
_FENCES: Final = ("```", "~~~")
_ORPHAN: Final = re.compile(r"(?:\A|\n)[ \t]*</(?:think|thinking|thought|reasoning)>[ \t]*(?=\n|\Z)", re.IGNORECASE)


class ThinkSplitter:
    """Feed it an answer in pieces, get what is meant to be read; tags may be cut anywhere.

    A tag counts at the start of a line outside a code fence: an answer *about* such tags stays whole.
    """

    def __init__(self) -> None:
        self._held = ""
        self._lead = ""
        self._opened_with = ""
        self._close: re.Pattern[str] | None = None
        self._thought: list[str] = []
        self._reasoning: list[str] = []
        self._line_is_blank = True
        self._fence = ""
        self._said = False

    @property
    def reasoning(self) -> str:
        return "".join([*self._reasoning, *self._thought])

    def feed(self, text: str) -> str:
        self._held += text
        said: list[str] = []
        while self._held and (self._think() if self._close else self._speak(said)):
            pass
        return self._without_lead("".join(said))

    def finish(self, *, cut: bool) -> str:
        """The rest. An unclosed block amid an answer that was not cut is text that only looked like a tag."""
        rest, self._held = self._held, ""
        if not self._close:
            return self._without_lead(rest)
        self._thought.append(rest)
        if cut or not self._said:
            return ""
        text = self._opened_with + "".join(self._thought)
        self._thought.clear()
        return text

    def _without_lead(self, text: str) -> str:
        """Hold white space back until the answer begins, then drop it where reasoning stood before."""
        if self._said:
            return text
        text = self._lead + text
        if not text.strip():
            self._lead = text
            return ""
        self._said = True
        return text.lstrip() if self._reasoning else text

    def _think(self) -> bool:
        assert self._close is not None
        if found := self._close.search(self._held):
            self._reasoning.extend([*self._thought, self._held[: found.start()]])
            self._thought.clear()
            self._held = self._held[found.end() :]
            self._close = None
            self._line_is_blank = True
            return True
        cut = max(0, len(self._held) - _LONGEST_TAG)
        self._thought.append(self._held[:cut])
        self._held = self._held[cut:]
        return False

    def _speak(self, said: list[str]) -> bool:
        """Move one line (or what there is of it) to `said`; False when more text must come first."""
        if self._line_is_blank:
            self._skip_blank(said)
            if not self._held or _may_become_mark(self._held[:_LONGEST_TAG]):
                return False
            if not self._fence and (opened := _OPEN.match(self._held)):
                return self._open(opened)
            self._watch_fence()
        line, newline, self._held = self._held.partition("\n")
        said.append(line + newline)
        self._line_is_blank = bool(newline)
        return True

    def _skip_blank(self, said: list[str]) -> None:
        rest = self._held.lstrip()
        said.append(self._held[: len(self._held) - len(rest)])
        self._held = rest

    def _watch_fence(self) -> None:
        if not self._held.startswith(self._fence or _FENCES):
            return
        self._fence = "" if self._fence else self._held[:3]

    def _open(self, opened: re.Match[str]) -> bool:
        self._opened_with = opened[0]
        close = f"</{opened[1]}>" if opened[1] else "◁/think▷"
        self._close = re.compile(re.escape(close), re.IGNORECASE)
        self._held = self._held[opened.end() :]
        return True


def without_orphan(text: str) -> tuple[str, str]:
    """(answer, reasoning) of a text whose opening tag the server swallowed, leaving a closing one on its own line."""
    found = list(_ORPHAN.finditer(text))
    if len(found) != 1 or text[: found[0].start()].count("```") % 2:
        return text, ""
    answer = text[found[0].end() :].lstrip()
    return answer, text[: found[0].start()]


def _may_become_mark(text: str) -> bool:
    lowered = text.lower()
    if not lowered:
        return False
    return any(mark.startswith(lowered) for mark in (*_OPEN_TAGS, *_FENCES) if mark != lowered)
