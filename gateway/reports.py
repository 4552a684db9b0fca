"""How connections tell of themselves: what a server lists, and what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .launch import Launch


@dataclass(frozen=True)
class Report:
    """What became of a connection, for the server's row."""

    server: str
    state: str
    error: str = ""
    stderr: str = ""
    era: str = ""


Listed = Callable[[Launch, list[Any]], Awaitable[Mapping[str, str]]]
Reported = Callable[[Report], None]


async def _allow_nothing(launch: Launch, listing: list[Any]) -> Mapping[str, str]:
    return {}


@dataclass
class Hooks:
    """How a connection tells of itself. `listed` compares a listing with the pins: tool -> the pin that it matches."""

    listed: Listed = _allow_nothing
    reported: Reported = lambda report: None
