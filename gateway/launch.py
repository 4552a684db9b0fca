"""How a downstream server is reached: what the operator configured, as one immutable value. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from core.errors import JsonObject

Transport = Literal["stdio", "http", "sse"]

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z"
RESERVED_NAME: Final = "meah"
DIRECT_NAME_CHARS: Final = 32
DEFAULT_TIMEOUT_MS: Final = 60_000

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Launch:
    """A server's command or address. `env` and `headers` may refer to variables as ${NAME}; nothing else may.

    keep_after_timeout: a call that timed out leaves the connection open, so that a late answer can still settle it.
    keep_alive: it is not ended for being idle. concurrent: it takes calls at once, where others get them in order.
    """

    server: str
    transport: Transport = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    inherit_env: tuple[str, ...] = ()
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    private: bool = False
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    era: str = ""
    keep_after_timeout: bool = True
    keep_alive: bool = False
    concurrent: bool = False

    @property
    def is_lazy_child(self) -> bool:
        """Its calls run one after another; after one whose outcome is open it is ended."""
        return self.transport == "stdio" and not self.keep_after_timeout

    @property
    def identity(self) -> JsonObject:
        """What a tool is pinned to besides its own text: the command line, or the URL."""
        if self.transport == "stdio":
            return {"command": self.command, "args": list(self.args)}
        return {"url": self.url}

    @property
    def connection(self) -> tuple[Any, ...]:
        """What a connection is made of: when any of it changes, a new one is needed."""
        return (
            self.transport,
            self.command,
            self.args,
            self.env,
            self.inherit_env,
            self.url,
            self.headers,
            self.private,
        )

    @property
    def variables(self) -> frozenset[str]:
        """Names of all variables that `env` and `headers` refer to."""
        values = [value for _, value in (*self.env, *self.headers)]
        return frozenset(name for value in values for name in references(value))


def references(text: str) -> Iterator[str]:
    """The names that a text refers to as ${NAME}."""
    return (match[1] for match in _REFERENCE.finditer(text))


def substitute(text: str, values: Mapping[str, str]) -> str:
    """The text with every reference replaced; KeyError names the first one that has no value."""
    return _REFERENCE.sub(lambda match: values[match[1]], text)


def odd_reference(text: str) -> str | None:
    """Something that looks like a reference but is none, such as ${NAME:-default}: it would be passed as text."""
    rest = _REFERENCE.sub("", text)
    start = rest.find("${")
    return rest[start : start + 40] if start >= 0 else None
