"""The one way to a secret's value: named variables, read from the environment at the moment of use."""

from __future__ import annotations

import os
from collections.abc import Iterable

_named: set[str] = set()


def read_secret(name: str) -> str | None:
    """The value of the environment variable, or None when it is unset or empty."""
    return os.environ.get(name, "").strip() or None


def name_secrets(names: Iterable[str]) -> None:
    """Make variables known as secrets, so that redaction removes their values everywhere."""
    _named.update(name for name in names if name)


def named_secrets() -> frozenset[str]:
    return frozenset(_named)


def secret_values() -> dict[str, str]:
    """Values of all named secrets that are set, by variable name."""
    return {name: value for name in sorted(_named) if (value := read_secret(name))}
