"""The one way to a secret's value: named variables, read at the moment of use.

From the environment; where `MEAH_SECRET_PROVIDER` names a function (`package.module.function`: name in, value or None
out), a name that the environment does not have is asked there. What it answers is kept in memory only, so that it can
be taken out of texts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib import import_module

from core.errors import MeahError

PROVIDER_VARIABLE = "MEAH_SECRET_PROVIDER"

_named: set[str] = set()
_provided: dict[str, str] = {}


def read_secret(name: str) -> str | None:
    """The value of the variable, or None when it is unset or empty.

    Raises MeahError E_CONFIG when the configured provider can not be used.
    """
    value = os.environ.get(name, "").strip()
    if value or not (path := os.environ.get(PROVIDER_VARIABLE, "").strip()):
        return value or None
    return _ask(path, name)


def name_secrets(names: Iterable[str]) -> None:
    """Make variables known as secrets, so that redaction removes their values everywhere."""
    _named.update(name for name in names if name)


def named_secrets() -> frozenset[str]:
    return frozenset(_named)


def secret_values() -> dict[str, str]:
    """Values of all named secrets that are set, by variable name; of a provider those that were asked for."""
    found = {name: os.environ.get(name, "").strip() or _provided.get(name, "") for name in sorted(_named)}
    return {name: value for name, value in found.items() if value}


def _ask(path: str, name: str) -> str | None:
    try:
        value = _function(path)(name)
    except Exception as error:
        raise MeahError(
            "E_CONFIG",
            f"{PROVIDER_VARIABLE} could not give {name}: {type(error).__name__}.",
            hint="Check the function it names: it takes a variable's name and returns its value, or None.",
            reason="secret_provider",
        ) from error
    if not value:
        return None
    _named.add(name)
    _provided[name] = str(value).strip()
    return _provided[name] or None


def _function(path: str) -> Callable[[str], str | None]:
    module, _, name = path.rpartition(".")
    found: Callable[[str], str | None] = getattr(import_module(module), name)
    return found
