"""The kinds of value a setting takes, and how a variable's text or a JSON value becomes one. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import re2

from core.errors import MeahError
from core.redaction import looks_like_key
from core.text import has_hidden, one_line
from workers.providers.url import normal_base
from workers.routing import MOCK, PROVIDER_NAME_PATTERN, VARIABLE_NAME_PATTERN, AllowedCommand

MAX_MODELS: Final = 1_000
MAX_ALLOWED_COMMANDS: Final = 200

_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})


class SettingError(ValueError):
    """A value that a setting does not take. `problem` completes "<where> ..."; neither text quotes a key."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix


@dataclass(frozen=True)
class Kind:
    """`read` makes a JSON value of a variable's text, `check` the value of the JSON value."""

    check: Callable[[Any], Any]
    read: Callable[[str], Any] = str


def check_provider_name(name: str) -> None:
    """Raises SettingError when a provider cannot be called that."""
    refuse_keys(name)
    if name == MOCK:
        raise SettingError("names the built-in provider, which cannot be changed", "Choose another name.")
    if not re.match(PROVIDER_NAME_PATTERN, name):
        raise SettingError(
            "has no valid provider name",
            "Use up to 32 lower-case letters, digits, - and _, starting with a letter.",
        )


# What MEAH or the system keeps there is nobody else's.
NEVER_SENT = frozenset({"MEAH_SECRET_KEY", "MEAH_HOME", "DATABASE_URL", "PATH", "HOME", "USER", "SHELL"})


def _key_variable(value: Any) -> str:
    """The name of the variable that holds a key. Never echoes: people paste the key itself here."""
    name = _text(value, limit=128)
    if name and not re.match(VARIABLE_NAME_PATTERN, name):
        raise SettingError(
            "must be the NAME of an environment variable in capitals, not a key",
            "Put the key into a variable such as MY_API_KEY (in .env) and write MY_API_KEY here.",
        )
    if name in NEVER_SENT:
        raise SettingError(
            f"must not be {name}: its value would be sent to the provider",
            "Give the provider's key a variable of its own, such as MY_API_KEY.",
        )
    return name


def _base_url(value: Any) -> str:
    try:
        return normal_base(_text(value, limit=500))
    except MeahError as error:
        raise SettingError(f"is not valid: {error.message.rstrip('.')}", error.hint) from None


def refuse_keys(value: Any) -> None:
    """Raises SettingError when a text anywhere in the value looks like a key; never quotes it."""
    for text in _texts(value):
        if looks_like_key(text):
            raise SettingError(
                "holds something that looks like a key",
                "Keys stand in environment variables (in .env), and apiKeyEnv names the variable.",
            )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)


def _text(value: Any, *, limit: int) -> str:
    if not isinstance(value, str):
        raise SettingError("must be a text", 'Write it in double quotes, such as "text".')
    if len(value) > limit:
        raise SettingError(f"has {len(value)} characters, {limit} at most", "Shorten it.")
    if has_hidden(value):
        raise SettingError("holds control or invisible characters", "Type it anew instead of pasting it.")
    return value.strip()


def _line(value: Any, *, limit: int) -> str:
    text = _text(value, limit=limit)
    if "\n" in text or "\t" in text:
        raise SettingError("must be one line", "Remove line breaks and tabs.")
    return text


def _model(value: Any) -> str:
    text = _line(value, limit=200)
    if " " in text or "," in text:
        raise SettingError("must be one model's id, without spaces or commas", "Copy the id from the provider's list.")
    return text


def _models(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise SettingError("must be a list of model ids", 'Write ["one", "two"], or [] for any model.')
    if len(value) > MAX_MODELS:
        raise SettingError(f"lists more than {MAX_MODELS} models", "List the ones you use, or none for any.")
    return tuple(dict.fromkeys(model for item in value if (model := _model(item))))


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise SettingError("must be true or false", "Write true or false.")
    return value


def _read_flag(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise SettingError(f"must be true or false{_and_is(text)}", "Write true or false.")


def number(low: float, high: float, *, whole: bool) -> Kind:
    bounds = f"must be a {'whole ' if whole else ''}number from {low} to {high}"
    fix = f"Give a number between {low} and {high}, or leave it out for the default."

    def check(value: Any) -> float:
        kinds = int if whole else int | float
        if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
            raise SettingError(bounds + _and_is(value), fix)
        return value if whole else float(value)

    def read(text: str) -> Any:
        try:
            return int(text) if re.fullmatch(r"[+-]?[0-9]{1,15}", text) else _finite(text)
        except ValueError:
            return text

    return Kind(check, read)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def choice(*words: str) -> Kind:
    def check(value: Any) -> str:
        if value not in words:
            raise SettingError(f"must be one of {', '.join(words)}{_and_is(value)}", f"Write {words[0]}.")
        return str(value)

    return Kind(check, str.lower)


def _folder(value: Any) -> str:
    text = _line(value, limit=500)
    if not text or ".." in text.split("/"):
        raise SettingError("must be a directory without '..'", "Relative ones stand in MEAH_HOME; use workspaces/.")
    return text


def _allowlist(value: Any) -> tuple[AllowedCommand, ...]:
    if not isinstance(value, list) or len(value) > MAX_ALLOWED_COMMANDS:
        raise SettingError(
            f"must be a list of at most {MAX_ALLOWED_COMMANDS} commands", 'Write ["/usr/bin/python3"], or [].'
        )
    return tuple(dict.fromkeys(map(_allowed, value)))


def _allowed(value: Any) -> AllowedCommand:
    entry = {"path": value} if isinstance(value, str) else value
    if not isinstance(entry, dict) or not {"path"} <= set(entry) <= {"path", "args"}:
        raise SettingError(
            "has an entry that is neither a path nor {path, args}",
            'Write "/bin/ls", or {"path": ..., "args": []}.',
        )
    path = _line(entry["path"], limit=500)
    if not path.startswith("/") or ".." in path.split("/"):
        raise SettingError(
            f"has the entry '{one_line(path, 80)}', which is no absolute path",
            "Give it from / on, without '..'.",
        )
    return AllowedCommand(path, _patterns(entry["args"]) if "args" in entry else None)


def _patterns(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise SettingError("has args that are no list", "Give one pattern per argument, or leave args out for any.")
    patterns = tuple(_line(item, limit=500) for item in value)
    for pattern in patterns:
        try:
            re2.compile(pattern)
        except re2.error:
            raise SettingError(
                f"has the pattern '{one_line(pattern, 80)}', which RE2 does not take",
                "Use RE2 syntax: no look-around and no back-references.",
            ) from None
    return patterns


def _read_list(text: str) -> Any:
    """A comma-separated list, or a JSON one."""
    if not text.startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SettingError("is no JSON list", "Separate by commas, or write a JSON list such as [].") from None


def _and_is(value: Any) -> str:
    """What was given instead, where it is short enough to help."""
    text = json.dumps(value) if isinstance(value, str | int | float | bool | None) else ""
    return f", and is {one_line(text, 40)}" if text else ""


def lines(limit: int) -> Kind:
    return Kind(lambda value: _text(value, limit=limit))


def line(limit: int) -> Kind:
    return Kind(lambda value: _line(value, limit=limit))


def _provider_or_none(value: Any) -> str:
    name = _line(value, limit=64)
    if name and name != MOCK:
        check_provider_name(name)
    return name


FLAG: Final = Kind(_flag, _read_flag)
BASE_URL: Final = Kind(_base_url)
KEY_VARIABLE: Final = Kind(_key_variable)
MODELS: Final = Kind(_models, _read_list)
MODEL: Final = Kind(_model)
PROVIDER: Final = Kind(_provider_or_none)
FOLDER: Final = Kind(_folder)
ALLOWLIST: Final = Kind(_allowlist, _read_list)
