"""What a downstream server gets to see: an allowlist of the environment, and what was declared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from core.errors import MeahError
from core.secrets import name_secrets, read_secret

from .launch import Launch, odd_reference, references, substitute

ALLOWED: Final = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TMPDIR",
        "TEMP",
        "TMP",
        "LANG",
        "LC_ALL",
        "TERM",
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        # the same on Windows
        "APPDATA",
        "LOCALAPPDATA",
        "HOMEDRIVE",
        "HOMEPATH",
        "USERNAME",
        "USERPROFILE",
        "PATHEXT",
        "SYSTEMROOT",
        "SYSTEMDRIVE",
        "COMSPEC",
        "PROGRAMDATA",
        "PROGRAMFILES",
    }
)


def child_environment(launch: Launch, parent: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a stdio server. Raises MeahError E_CONFIG naming the field that does not resolve."""
    source = os.environ if parent is None else parent
    names = ALLOWED | set(launch.inherit_env)
    kept = {name: source[name] for name in sorted(names) if name in source}
    # A function that a shell exported is code, not a setting.
    kept = {name: value for name, value in kept.items() if not value.startswith("()")}
    return kept | _resolved(launch, "env", launch.env)


def http_headers(launch: Launch) -> dict[str, str]:
    """The headers of a remote server. Raises MeahError E_CONFIG naming the field that does not resolve."""
    return _resolved(launch, "headers", launch.headers)


def _resolved(launch: Launch, field: str, pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    name_secrets(launch.variables)
    return {name: _value(f"{field}.{name}", text) for name, text in pairs}


def _value(field: str, text: str) -> str:
    if odd := odd_reference(text):
        raise _unresolved(field, f"has {odd!r}, which is no reference of the form ${{NAME}}")
    values: dict[str, str] = {}
    for name in references(text):
        value = read_secret(name)
        if value is None:
            raise _unresolved(field, f"refers to ${{{name}}}, which is not set")
        values[name] = value
    return substitute(text, values)


def _unresolved(field: str, why: str) -> MeahError:
    return MeahError(
        "E_CONFIG",
        f"{field} {why}.",
        hint="Set the variable in MEAH's environment (or its .env file), or correct the server's configuration.",
        reason="unresolved_variable",
        details={"field": field},
    )
