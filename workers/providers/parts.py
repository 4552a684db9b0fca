"""The parts of one message or delta: text, reasoning, refusal, tool calls, in every shape that they have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_REASONING_KEYS: Final = ("reasoning_content", "reasoning", "thinking")
_TEXT_TYPES: Final = frozenset({"text", "output_text", "input_text"})
_THINKING_TYPES: Final = frozenset({"thinking", "reasoning", "reasoning.text", "reasoning.summary", "summary_text"})
_MAX_DEPTH: Final = 6


@dataclass(frozen=True)
class Parts:
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    has_tool_calls: bool = False

    def __bool__(self) -> bool:
        return bool(self.text or self.reasoning or self.refusal or self.has_tool_calls)


def parts_of(message: Any) -> Parts:
    """The parts of a `message` or `delta` object; anything else has none."""
    if not isinstance(message, dict):
        return Parts()
    content = list(_content(message.get("content")))
    refusal = message.get("refusal")
    return Parts(
        text="".join(text for kind, text in content if kind == "text"),
        reasoning="".join(text for kind, text in content if kind == "thinking") + _reasoning(message),
        refusal=(refusal if isinstance(refusal, str) else "")
        + "".join(text for kind, text in content if kind == "refusal"),
        has_tool_calls=bool(message.get("tool_calls") or message.get("function_call")),
    )


def choice_parts(choice: dict[str, Any]) -> Parts:
    """The parts of a choice: its message, else its delta, else the `text` of older completions."""
    for name in ("message", "delta"):
        if parts := parts_of(choice.get(name)):
            return parts
    text = choice.get("text")
    return Parts(text=text) if isinstance(text, str) else Parts()


def _content(content: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """(kind, text) of each piece of a content that is a string, a part, or a list of both."""
    if isinstance(content, str):
        yield "text", content
    elif isinstance(content, list) and depth < _MAX_DEPTH:
        for part in content:
            yield from _content(part, depth + 1)
    elif isinstance(content, dict):
        yield from _part(content)


def _part(part: dict[str, Any]) -> Iterator[tuple[str, str]]:
    kind = part.get("type")
    if kind in _THINKING_TYPES:
        yield "thinking", _plain(part.get("thinking") or part.get("text") or part.get("summary"))
    elif kind == "refusal":
        yield "refusal", _plain(part.get("refusal"))
    elif kind in _TEXT_TYPES or kind is None:
        yield "text", _plain(part.get("text"))


def _plain(value: Any, depth: int = 0) -> str:
    """All text in a string, a part with `text` (or its `value`), or a list of those."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and depth < _MAX_DEPTH:
        return "".join(_plain(item, depth + 1) for item in value)
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        return _plain(value.get("text") or value.get("value"), depth + 1)
    return ""


def _reasoning(message: dict[str, Any]) -> str:
    """The reasoning beside the content; servers that write it in two places write the same twice."""
    for name in _REASONING_KEYS:
        if text := _plain(message.get(name)):
            return text
    details = message.get("reasoning_details")
    if not isinstance(details, list):
        return ""
    kept = [item for item in details if isinstance(item, dict) and item.get("type") in _THINKING_TYPES]
    return "".join(_plain(item.get("text") or item.get("summary")) for item in kept)
