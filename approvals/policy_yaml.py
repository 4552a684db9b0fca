"""The strict YAML of policy files: plain values only, read by the rules of YAML 1.2, with the line of each. Pure.

No anchors, aliases, tags or directives, no key twice, and no word or number that two readers would take for different
things: only true and false are booleans, `no`, `010`, `1:30` and dates are texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from core.canonical import StrictDecodeError, check_value
from core.text import has_hidden, visible

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 16
MAX_NUMBER_CHARS: Final = 40

Path = tuple[str | int, ...]

_NULL: Final = re.compile(r"~|null|Null|NULL|")
_BOOLEAN: Final = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")


class YamlTextError(ValueError):
    """What is wrong, and in which line (from 1; 0 when that is not known)."""

    def __init__(self, problem: str, *, line: int = 0) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line


class Document:
    """The value of a text, and where its parts stand."""

    def __init__(self, text: str) -> None:
        """Raises YamlTextError."""
        self._lines: dict[Path, int] = {}
        try:
            self._events = iter(list(yaml.parse(text, Loader=yaml.SafeLoader)))
            self.value = self._document()
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            raise YamlTextError(f"no YAML: {error.problem}", line=line) from None
        except yaml.YAMLError as error:
            raise YamlTextError(f"no YAML: {visible(str(error))}") from None

    def line_of(self, path: Path) -> int:
        """The line of that part, or of the nearest thing around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 0)

    def _document(self) -> Any:
        value: Any = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1 or event.version or event.tags:
                    raise _problem("one document without directives is expected", event)
                value = self._value(next(self._events), ())
        return value

    def _value(self, event: Any, path: Path) -> Any:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _problem("anchors and aliases are not accepted: write the value out", event)
        if getattr(event, "tag", None) is not None:
            raise _problem("tags are not accepted", event)
        if len(path) > MAX_DEPTH:
            raise _problem(f"nested deeper than {MAX_DEPTH} levels", event)
        self._lines.setdefault(path, _line(event))
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            items = self._until(yaml.SequenceEndEvent)
            return [self._value(item, (*path, number)) for number, item in enumerate(items)]
        return _checked(event)

    def _mapping(self, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in self._until(yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None or event.anchor is not None:
                raise _problem("a key must be plain text", event)
            key = _accepted(event.value, event)
            if key in found:
                raise _problem(f"the key {visible(key)!r} stands here twice", event)
            self._lines[(*path, key)] = _line(event)
            found[key] = self._value(next(self._events), (*path, key))
        return found

    def _until(self, end: type) -> Iterator[Any]:
        for event in self._events:
            if isinstance(event, end):
                return
            yield event


def _problem(text: str, event: Any) -> YamlTextError:
    return YamlTextError(text, line=_line(event))


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _checked(event: Any) -> Any:
    if len(event.value) > MAX_NUMBER_CHARS and _INTEGER.fullmatch(event.value):
        raise _problem("a number of so many digits is not accepted", event)
    return _accepted(_plain(event.value) if event.implicit[0] else event.value, event)


def _accepted(value: Any, event: Any) -> Any:
    try:
        check_value(value)
    except StrictDecodeError as error:
        raise _problem(str(error), event) from None
    return value


def _plain(text: str) -> Any:
    """What an unquoted text stands for."""
    if _NULL.fullmatch(text):
        return None
    if _BOOLEAN.fullmatch(text):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


class _Dumper(yaml.SafeDumper):
    """Quotes every text that this or another reader might take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
        return super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if has_hidden(text) or "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
for _tag, _form, _starts in (("int", _INTEGER, "-+0123456789"), ("float", _FLOAT, "-+.0123456789")):
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_form.pattern})$"), list(_starts))


def dumps(value: Any) -> str:
    """YAML text of plain values, which `Document` reads back as they were; hidden characters are written as escapes."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=False)
    # Texts with hidden characters are in double quotes, where an escape can stand for each of them.
    return _NOT_ASCII.sub(lambda match: _escape(match[0]) if has_hidden(match[0]) else match[0], text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
