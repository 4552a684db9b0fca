"""Which names a file in a workspace may have, and which of them would meet on disk. Pure."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from core.errors import MeahError
from core.text import has_hidden, one_line, visible

CONTEXT_DIR: Final = "context"

MAX_COMPONENT_BYTES: Final = 255
MAX_PATH_BYTES: Final = 4_096
MAX_DEPTH: Final = 32

_FOREIGN = re.compile(r"/(dev|proc)(/|\Z)|//|\\\\|[A-Za-z]:")
_DEVICES = re.compile(r"(CON|PRN|AUX|NUL|CLOCK\$|CONIN\$|CONOUT\$|(COM|LPT)[0-9¹²³])", re.IGNORECASE)


@dataclass(frozen=True)
class _Taken:
    parts: tuple[str, ...]
    is_file: bool
    name: str


def check_path(relative: str) -> tuple[str, ...]:
    """The components of a relative path that is safe on every platform. Touches no disk.

    Raises MeahError E_PATH_ESCAPE naming the path; `reason` says what is wrong with it.
    """
    for problem, reason in _path_problems(relative):
        raise escape(relative, problem, reason)
    parts = tuple(relative.split("/"))
    for part in parts:
        for problem, reason in _part_problems(part):
            raise escape(relative, problem, reason)
    return parts


def context_paths(names: Sequence[str]) -> list[str]:
    """Where context items of these names go (`context/<name>`), in the same order. Touches no disk.

    Raises MeahError: E_PATH_ESCAPE for an illegal name, E_INVALID_REQUEST for two that would meet on disk.
    """
    taken: dict[tuple[str, ...], _Taken] = {}
    for name in names:
        parts = check_path(name)
        check_path(f"{CONTEXT_DIR}/{name}")
        for depth in range(1, len(parts) + 1):
            here = _Taken(parts[:depth], depth == len(parts), name)
            there = taken.setdefault(tuple(map(folded, here.parts)), here)
            if there is not here and (here.is_file or there.is_file or here.parts != there.parts):
                raise collision(name, there.name)
    return [f"{CONTEXT_DIR}/{name}" for name in names]


def folded(name: str) -> str:
    """What a file system that ignores case and composition takes the name for."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def escape(path: str, problem: str, reason: str) -> MeahError:
    """The error for a path that must not be used; `problem` completes "The name 'x' ..."."""
    return MeahError(
        "E_PATH_ESCAPE",
        f"The name {shown(path)} {problem}.",
        reason=reason,
        details={"name": _printable(path)},
    )


def collision(name: str, other: str) -> MeahError:
    """The error for two names that would be one file somewhere."""
    return MeahError(
        "E_INVALID_REQUEST",
        f"The names {shown(name)} and {shown(other)} would be the same file.",
        hint="Give each context item a name of its own; case and accents' encoding make no difference.",
        reason="name_collision",
    )


def shown(path: str) -> str:
    """A path as it can be shown in a message: one line, nothing hidden, short, in quotes."""
    return f"'{_printable(path)}'"


def _printable(path: str) -> str:
    # A lone surrogate could not be written to any stream.
    return one_line(visible(path.encode(errors="backslashreplace").decode()), 200)


def _path_problems(path: str) -> Iterator[tuple[str, str]]:
    if not path:
        yield "is empty", "empty"
    if "\0" in path:
        yield "holds a NUL byte", "nul"
    if _FOREIGN.match(path):
        yield "is a device, drive or network path", "device"
    if path.startswith("/"):
        yield "is absolute", "absolute"
    if "\\" in path:
        yield "holds a backslash", "backslash"
    if not _encodes(path):
        yield "is no valid text", "encoding"
        return
    if has_hidden(path) or any(unicodedata.category(char) == "Cc" for char in path):
        yield "holds control or invisible characters", "hidden"
    if len(path.encode()) > MAX_PATH_BYTES or path.count("/") >= MAX_DEPTH:
        yield "is too long or too deep", "length"


def _part_problems(part: str) -> Iterator[tuple[str, str]]:
    if part == "..":
        yield "leaves its directory", "parent"
    if part in {"", "."}:
        yield "has an empty component", "empty"
    if ":" in part:
        yield "holds a colon", "colon"
    if part.endswith(".") or part != part.rstrip():
        yield "has a component that ends in a dot or a space", "trailing"
    if _DEVICES.fullmatch(part.split(".")[0].rstrip()):
        yield "is a device name", "device"
    if len(part.encode()) > MAX_COMPONENT_BYTES:
        yield "has a component that is too long", "length"


def _encodes(path: str) -> bool:
    with contextlib.suppress(UnicodeEncodeError):
        path.encode()
        return True
    return False
