"""The MEAH_* variables that set what the admin sets, read and checked. Pure: the environment is handed in."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from core.errors import MeahError
from core.text import one_line
from workers.config_fields import (
    LIMIT_FIELDS,
    PROVIDER_FIELDS,
    ROUTE_FIELDS,
    TERMINAL_FIELDS,
    Field,
    Values,
)
from workers.config_kinds import SettingError, check_provider_name
from workers.roles import ROLES
from workers.routing import Limits, TerminalConfig, did_you_mean

PREFIX: Final = "MEAH_"
PROVIDER_PREFIX: Final = "MEAH_PROVIDER_"
ROLE_PREFIX: Final = "MEAH_ROLE_"
TERMINAL_PREFIX: Final = "MEAH_TERMINAL_"

_ROUTE_FIELDS: Final = tuple(field for field in ROUTE_FIELDS if field.in_env)
_LIMITS_BY_NAME: Final = {PREFIX + field.env: field for field in LIMIT_FIELDS}
_TERMINAL_BY_NAME: Final = {TERMINAL_PREFIX + field.env: field for field in TERMINAL_FIELDS}


@dataclass(frozen=True)
class Variable:
    """One supported variable, or a family with <NAME> or <ROLE> in its name. `default` is None for none."""

    name: str
    about: str
    default: Any = None


@dataclass(frozen=True)
class Problem:
    """What is wrong with one variable: its name and `problem` make a sentence, `fix` is the way out."""

    name: str
    problem: str
    fix: str


def variables() -> list[Variable]:
    """Every variable that sets something of the workers."""
    limits, terminal = Limits(), TerminalConfig()
    return [
        *(Variable(f"{PROVIDER_PREFIX}<NAME>_{field.env}", field.about) for field in PROVIDER_FIELDS),
        *(Variable(f"{ROLE_PREFIX}<ROLE>_{field.env}", field.about) for field in _ROUTE_FIELDS),
        *(Variable(name, field.about, getattr(limits, field.name)) for name, field in _LIMITS_BY_NAME.items()),
        *(Variable(name, field.about, getattr(terminal, field.name)) for name, field in _TERMINAL_BY_NAME.items()),
    ]


def family(name: str) -> str:
    """The variable's name with its provider or role replaced by <NAME> or <ROLE>; others as they are."""
    for prefix, mark, fields in (
        (PROVIDER_PREFIX, "<NAME>", PROVIDER_FIELDS),
        (ROLE_PREFIX, "<ROLE>", _ROUTE_FIELDS),
    ):
        if name.startswith(prefix) and (found := _split(name, prefix, fields)):
            return f"{prefix}{mark}_{found[1].env}"
    return name


def read(environ: Mapping[str, str], *, stored: Collection[str] = (), keys: Collection[str] = ()) -> Values:
    """What the environment sets. Variables that are empty count as not set.

    `stored` are the providers of the database (`my-one` is set by MEAH_PROVIDER_MY_ONE_...), `keys` the
    variables known to hold keys. Raises MeahError E_CONFIG naming every variable that is wrong, with the fix.
    """
    values, problems = _read(environ, stored, keys)
    if problems:
        raise _as_error(problems)
    return values


def near_misses(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that set nothing but are spelled almost like one that does, each with that one."""
    known = [*_LIMITS_BY_NAME, *_TERMINAL_BY_NAME]
    strangers = [name for name in environ if name.startswith(PREFIX) and name not in known]
    near = {name: difflib.get_close_matches(name, known, n=1, cutoff=0.88) for name in strangers}
    return {name: found[0] for name, found in near.items() if found}


def _read(environ: Mapping[str, str], stored: Collection[str], keys: Collection[str]) -> tuple[Values, list[Problem]]:
    values = Values()
    problems: dict[str, Problem] = {}
    for name, text in sorted(environ.items()):
        if not name.startswith(PREFIX) or not text.strip():
            continue
        try:
            if place := _place(name, stored):
                target, field = place(values)
                target[field.name] = field.parse(text)
        except SettingError as error:
            problems[name] = Problem(name, error.problem, error.fix)
    named = {provider.get("api_key_env") for provider in values.providers.values()}
    found = [problem for name, problem in problems.items() if name not in named and name not in keys]
    return values, found + list(_without_address(values, stored, problems))


_Place = Callable[[Values], tuple[dict[str, Any], Field]]


def _place(name: str, stored: Collection[str]) -> _Place | None:
    """Where the variable's value goes, or None when it is no setting. SettingError when it nearly is one."""
    if field := _LIMITS_BY_NAME.get(name):
        return lambda values: (values.defaults, field)
    if name.startswith(TERMINAL_PREFIX):
        if name not in _TERMINAL_BY_NAME:
            raise _unknown(name, _TERMINAL_BY_NAME)
        return lambda values: (values.terminal, _TERMINAL_BY_NAME[name])
    if name.startswith(ROLE_PREFIX):
        role, option = _split_or_refuse(name, ROLE_PREFIX, _ROUTE_FIELDS)
        _check_role(role)
        return lambda values: (values.roles.setdefault(role, {}), option)
    if name.startswith(PROVIDER_PREFIX):
        spelled, option = _split_or_refuse(name, PROVIDER_PREFIX, PROVIDER_FIELDS)
        check_provider_name(spelled)
        provider = _stored_name(spelled, stored)
        return lambda values: (values.providers.setdefault(provider, {}), option)
    return None


def _split(name: str, prefix: str, fields: Collection[Field]) -> tuple[str, Field] | None:
    """A variable such as MEAH_ROLE_CODER_MODEL as ("coder", its field)."""
    rest = name.removeprefix(prefix)
    for field in fields:
        if rest.endswith(f"_{field.env}") and rest != f"_{field.env}":
            return rest.removesuffix(f"_{field.env}").lower(), field
    return None


def _split_or_refuse(name: str, prefix: str, fields: Collection[Field]) -> tuple[str, Field]:
    if found := _split(name, prefix, fields):
        return found
    owner = name.removeprefix(prefix).split("_")[0]
    raise _unknown(name, [f"{prefix}{owner}_{field.env}" for field in fields])


def _unknown(name: str, known: Collection[str]) -> SettingError:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    fix = f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(known)}."
    return SettingError("is no setting", f"{fix} A key goes into a variable that ..._API_KEY_ENV names.")


def _check_role(role: str) -> None:
    if role not in ROLES:
        near = did_you_mean(role, ROLES)
        raise SettingError(
            f"names the role {one_line(role, 40)!r}, which there is not", f"Use {', '.join(ROLES)}.{near}"
        )


def _stored_name(spelled: str, stored: Collection[str]) -> str:
    """Names of variables have no hyphens, so MY_ONE also means a stored `my-one`."""
    if spelled in stored:
        return spelled
    return next((name for name in stored if name.replace("-", "_") == spelled), spelled)


def _without_address(values: Values, stored: Collection[str], problems: Collection[str]) -> Iterator[Problem]:
    """A provider that only the environment knows has to have an address."""
    for name, given in values.providers.items():
        variable = f"{PROVIDER_PREFIX}{name.upper()}_BASE_URL"
        if name not in stored and "base_url" not in given and variable not in problems:
            yield Problem(
                variable,
                f"is not set, and the provider {name} is not in the database either",
                f"Set {variable}, or remove the other {PROVIDER_PREFIX}{name.upper()}_ variables.",
            )


def _as_error(problems: list[Problem]) -> MeahError:
    first, *others = problems
    more = f" {len(others)} more: {', '.join(problem.name for problem in others)}." if others else ""
    return MeahError(
        "E_CONFIG",
        f"The environment variable {first.name} {first.problem}.{more}",
        hint=first.fix,
        reason="environment",
        details={
            "problems": [
                {"variable": problem.name, "problem": problem.problem, "fix": problem.fix} for problem in problems
            ]
        },
    )
