"""`meah.config.json`: read and checked whole, written without secrets. Pure; `config_import` meets the database."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from core.canonical import StrictDecodeError, strict_loads
from core.errors import MeahError
from core.redaction import redact
from core.text import one_line
from workers.config_fields import SECTIONS, Field, Values
from workers.config_kinds import SettingError, check_provider_name
from workers.roles import ROLES
from workers.routing import AllowedCommand, did_you_mean

MAX_FILE_BYTES: Final = 1024 * 1024
MAX_FILE_DEPTH: Final = 16

_KEYLIKE: Final = ("apikey", "api_key", "key", "token", "secret", "password", "headers", "authorization", "auth")
_NO_KEYS: Final = "No key stands in this file: put it into a variable (in .env) and name that in apiKeyEnv."


@dataclass(frozen=True)
class Change:
    """One value that an import changes; `path` as in the file. None stands for "not there"."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True)
class _Problem:
    path: str
    problem: str
    fix: str


def loads(data: bytes) -> Values:
    """The values of a file. What it does not mention is not in them.

    Raises MeahError E_CONFIG that names every key and value that is wrong by its path, or the place of a
    syntax error.
    """
    document = _document(data)
    values, problems = Values(), []
    if not isinstance(document, dict):
        raise _error([_Problem("The file", "must hold one object", 'Write {"providers": {...}, ...}.')])
    for section, content in document.items():
        if section not in SECTIONS:
            problems.append(_unknown("", section, SECTIONS))
        elif not isinstance(content, dict):
            problems.append(_Problem(section, "must be an object", f'Write "{section}": {{...}}.'))
        else:
            problems += _section(section, content, values)
    if problems:
        raise _error(problems)
    return values


def dumps(values: Values) -> str:
    """The file's text for these values: every field, so that an import of it changes nothing."""
    document = {
        "providers": {
            name: _as_json("providers", provider)
            for name, provider in values.providers.items()
            # Without an address it is no provider, only the memory of one.
            if provider.get("base_url")
        },
        "roles": {role: _as_json("roles", route) for role, route in values.roles.items()},
        "defaults": _as_json("defaults", values.defaults),
        "terminal": _as_json("terminal", values.terminal),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def difference(before: Values, after: Values) -> list[Change]:
    """What putting `after` over `before` changes, sorted by path. Models are a set: their order is no change."""
    changes = [
        Change(_path(path), before.at(path), value)
        for path, value in after.leaves()
        if _comparable(path, before.at(path, _default(path))) != _comparable(path, value)
    ]
    return sorted(changes, key=lambda change: change.path)


def as_text(value: Any) -> str:
    """A value as people and the chain read it: JSON, or `-` for nothing."""
    return "-" if value is None else json.dumps(plain(value), ensure_ascii=False)


def _document(data: bytes) -> Any:
    try:
        return strict_loads(data, max_bytes=MAX_FILE_BYTES, max_depth=MAX_FILE_DEPTH)
    except StrictDecodeError as error:
        problem = _Problem("The file", f"is {_place(data, error)}", "Correct it there and import again.")
        raise _error([problem]) from None


def _place(data: bytes, error: StrictDecodeError) -> str:
    """What is wrong, with line and column where it is the syntax."""
    try:
        if error.reason == "syntax":
            json.loads(data)
    except json.JSONDecodeError as syntax:
        return f"no valid JSON at line {syntax.lineno}, column {syntax.colno}: {syntax.msg}"
    except (ValueError, RecursionError):
        pass
    return f"refused: {_shown(str(error), limit=200)}"


def _section(section: str, content: Mapping[str, Any], values: Values) -> Iterator[_Problem]:
    if section in {"defaults", "terminal"}:
        yield from _fields(section, content, SECTIONS[section], getattr(values, section))
        return
    check = check_provider_name if section == "providers" else _check_role
    for name, item in content.items():
        path = f"{section}.{_shown(name)}"
        problem = _name_problem(path, name, item, check)
        if problem:
            yield problem
        else:
            target = getattr(values, section).setdefault(name, {})
            yield from _fields(path, item, SECTIONS[section], target)


def _name_problem(path: str, name: str, item: Any, check: Callable[[str], None]) -> _Problem | None:
    try:
        check(name)
    except SettingError as error:
        return _Problem(path, error.problem, error.fix)
    return None if isinstance(item, dict) else _Problem(path, "must be an object", f'Write "{_shown(name)}": {{...}}.')


def _fields(
    path: str, content: Mapping[str, Any], fields: Collection[Field], target: dict[str, Any]
) -> Iterator[_Problem]:
    known = {field.wire: field for field in fields}
    for key, value in content.items():
        if key not in known:
            yield _unknown(f"{path}.", key, known)
            continue
        try:
            target[known[key].name] = known[key].check(value)
        except SettingError as error:
            yield _Problem(f"{path}.{key}", error.problem, error.fix)


def _check_role(name: str) -> None:
    if name not in ROLES:
        raise SettingError("is no role", f"Use {', '.join(ROLES)}.{did_you_mean(name, ROLES)}")


def _unknown(prefix: str, key: str, known: Collection[str]) -> _Problem:
    path = prefix + _shown(key)
    if key.lower().replace("-", "_") in _KEYLIKE:
        return _Problem(path, "is not known", _NO_KEYS)
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.6)
    return _Problem(path, "is not known", f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(known)}.")


def _shown(key: str, *, limit: int = 64) -> str:
    """A key of the file, fit for a message: people paste secrets anywhere."""
    return one_line(redact(key), limit)


def _error(problems: list[_Problem]) -> MeahError:
    first, *others = problems
    more = f" {len(others)} more: {', '.join(problem.path for problem in others[:10])}." if others else ""
    return MeahError(
        "E_CONFIG",
        f"{first.path} {first.problem}.{more}",
        hint=first.fix,
        reason="config_file",
        details={
            "problems": [{"path": problem.path, "problem": problem.problem, "fix": problem.fix} for problem in problems]
        },
    )


def _as_json(section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {field.wire: plain(values[field.name]) for field in SECTIONS[section] if field.name in values}


def plain(value: Any) -> Any:
    if isinstance(value, AllowedCommand):
        return value.path if value.args is None else {"path": value.path, "args": list(value.args)}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def _path(path: tuple[str, ...]) -> str:
    wire = {field.name: field.wire for field in SECTIONS[path[0]]}
    return ".".join([*path[:-1], wire[path[-1]]])


def _default(path: tuple[str, ...]) -> Any:
    """What a field of a new provider or route starts as."""
    return {"models": (), "private": None, "max_output_tokens": None, "temperature": None}.get(path[-1], "")


def _comparable(path: tuple[str, ...], value: Any) -> Any:
    return sorted(value) if path[-1] == "models" else value
