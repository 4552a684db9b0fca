"""Arguments and results as a person looks at them: value by value, with what their text hides. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from core.canonical import canonical_text
from core.errors import JsonObject
from core.redaction import holds_secret_value, looks_like_key, without_values
from core.text import has_hidden, one_line, visible

from .conditions import equal

# Longer texts are folded, and nothing can be approved before they were opened.
LONG_CHARS: Final = 2_000
MAX_ROWS: Final = 500
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_ODD_WORD: Final = re.compile(r"\w*[^\W\x00-\x7f]\w*")
# Alphabets with letters that look like those of another.
_ALPHABETS: Final = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC")
_QUOTED_CHARS: Final = 40


Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class Row:
    """One value that holds no others, and the way to it. `path` and `text` are fit to be shown."""

    steps: Steps
    value: Any
    warnings: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        shown = "".join(f"[{step}]" if isinstance(step, int) else _named(step) for step in self.steps)
        return shown.removeprefix(".") or "(all)"

    @property
    def kind(self) -> str:
        if isinstance(self.value, str):
            return "text"
        if isinstance(self.value, bool):
            return "boolean"
        if isinstance(self.value, int | float):
            return "number"
        return {dict: "empty object", list: "empty list"}.get(self.value.__class__, "null")

    @property
    def text(self) -> str:
        return visible(without_values(self.value)) if isinstance(self.value, str) else canonical_text(self.value)

    @property
    def is_long(self) -> bool:
        return len(self.text) > LONG_CHARS


def _named(key: str) -> str:
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{visible(json.dumps(key, ensure_ascii=False))}]"


@dataclass(frozen=True)
class Difference:
    """A value that is not what it was: None where there is, or was, none."""

    path: str
    before: Row | None
    after: Row | None


def rows(value: Any) -> list[Row]:
    """Every value in it that holds no others, in the order of the canonical text."""
    return list(_rows(value, (), secret=holds_secret_value(value)))


def differences(before: Any, after: Any) -> list[Difference]:
    """What differs between two values, place by place. Compared is what is there, not what it looks like."""
    old, new = ({row.steps: row for row in rows(value)} for value in (before, after))
    places = dict.fromkeys([*new, *old])
    return [
        Difference((new.get(place) or old[place]).path, old.get(place), new.get(place))
        for place in places
        if place not in old or place not in new or not equal(old[place].value, new[place].value)
    ]


def shown_json(text: str, *, indent: int | None = None) -> str:
    """JSON text as it may be shown: hidden characters visible, values of MEAH's own secrets taken out."""
    if indent is not None:
        text = json.dumps(json.loads(text), indent=indent, ensure_ascii=False)
    return visible(without_values(text))


@dataclass(frozen=True)
class Part:
    """One part of a tool's result; without `text` only its label is shown."""

    label: str
    text: str = ""


def result_parts(result: Any) -> list[Part]:
    """A tool's result, its texts first: what is no text is named with its type and size."""
    if not isinstance(result, dict):
        return [Part("result", shown_json(json.dumps(result, ensure_ascii=False), indent=2))]
    parts = [_part(block) for block in result.get("content") or [] if isinstance(block, dict)]
    rest = {key: value for key, value in result.items() if key not in {"content", "isError"}}
    if rest:
        parts.append(Part("structured", shown_json(json.dumps(rest, ensure_ascii=False), indent=2)))
    return parts


def _part(block: JsonObject) -> Part:
    kind = one_line(str(block.get("type")), 40)
    if kind == "text" and isinstance(block.get("text"), str):
        return Part("text", visible(without_values(block["text"])))
    about = [one_line(str(block[key]), 200) for key in ("mimeType", "uri", "name") if key in block]
    if isinstance(data := block.get("data"), str):
        about.append(f"{len(data) * 3 // 4:,} bytes")
    if isinstance(resource := block.get("resource"), dict):
        about += [one_line(str(resource[key]), 200) for key in ("uri", "mimeType") if key in resource]
    text = resource.get("text") if isinstance(resource, dict) else None
    return Part(" ".join([kind, *about]), visible(without_values(text)) if isinstance(text, str) else "")


# -- rows -----------------------------------------------------------------------------------------------------------


def _rows(value: Any, steps: Steps, *, secret: str | None) -> Iterator[Row]:
    if isinstance(value, dict) and value:
        for key in sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass")):
            yield from _rows(value[key], (*steps, key), secret=secret)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _rows(item, (*steps, index), secret=secret)
    else:
        yield Row(steps, value, (*_name_warnings(steps), *_warnings(value, secret)))


# -- warnings -------------------------------------------------------------------------------------------------------


def _name_warnings(steps: Steps) -> Iterator[str]:
    for step in steps:
        if isinstance(step, str) and (has_hidden(step) or not step.isascii()):
            yield f"the name {one_line(step, _QUOTED_CHARS)} has characters beyond ASCII"


def _warnings(value: Any, secret: str | None) -> Iterator[str]:
    if not isinstance(value, str):
        return
    if has_hidden(value):
        yield "hidden characters"
    if odd := mixed_alphabets(value):
        yield odd
    if value != value.strip():
        yield "spaces or line breaks at its ends"
    if secret and holds_secret_value(value):
        yield f"the value of {secret}, a secret of MEAH's own, is in it; it is not shown here, but it would be sent"
    elif looks_like_key(value):
        yield "it looks like a key"


def mixed_alphabets(text: str) -> str:
    """The first word with letters of more than one alphabet, or in a form that only looks like plain letters."""
    if text.isascii():
        return ""
    for match in _ODD_WORD.finditer(text):
        word = match[0]
        names = {unicodedata.name(letter, "").partition(" ")[0] for letter in word}
        alphabets = [name.capitalize() for name in _ALPHABETS if name in names]
        if len(alphabets) > 1:
            return f"{' and '.join(alphabets)} letters in one word: {one_line(word, _QUOTED_CHARS)}"
        if names & {"FULLWIDTH", "MATHEMATICAL"}:
            return f"letters that only look like plain ones: {one_line(word, _QUOTED_CHARS)}"
    return ""
