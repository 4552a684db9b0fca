"""From what a caller wrote to an argument list: no shell, and nothing that only a shell would understand. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

import re2

from core.errors import MeahError
from core.text import one_line
from workers.routing import AllowedCommand

METACHARACTERS: Final = re.compile(r"[;&|><\\$(){}`\n\r]")
MAX_WORDS: Final = 200
MAX_CHARS: Final = 10_000


def argv_of(command: str | Sequence[str], allowlist: Sequence[AllowedCommand]) -> list[str]:
    """The absolute path of an allowed executable, and its arguments.

    Raises MeahError E_PERMISSION for whatever is not allowed, E_INVALID_REQUEST for what is no command.
    """
    words = _split(command) if isinstance(command, str) else list(command)
    if not words or not words[0]:
        raise _invalid("A command is empty.")
    if len(words) > MAX_WORDS or sum(map(len, words)) > MAX_CHARS:
        raise _invalid(f"A command has more than {MAX_WORDS} words or {MAX_CHARS:,} characters.")
    if any("\0" in word for word in words):
        raise _invalid("A command holds a NUL.")
    name, *arguments = words
    named = [entry for entry in allowlist if name in (entry.path, PurePosixPath(entry.path).name)]
    if not named:
        raise _refused(f"The command {one_line(name, 80)!r} is not on the allowlist.")
    for entry in named:
        if _fits(entry, arguments):
            return [entry.path, *arguments]
    raise _refused(f"The arguments of {one_line(name, 80)!r} are not among those that are allowed.")


def _split(text: str) -> list[str]:
    if found := METACHARACTERS.search(text):
        raise _refused(f"A command holds {found[0]!r}: there is no shell that would understand it.")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise _invalid(f"A command can not be split into words: {error}.") from error


def _fits(entry: AllowedCommand, arguments: Sequence[str]) -> bool:
    """One pattern for each argument, each matched in full; without patterns any arguments will do."""
    if entry.args is None:
        return True
    if len(entry.args) != len(arguments):
        return False
    return all(re2.fullmatch(pattern, word) for pattern, word in zip(entry.args, arguments, strict=True))


def _invalid(message: str) -> MeahError:
    return MeahError(
        "E_INVALID_REQUEST", message, hint='Write "ls -l", or a list of words: ["ls", "-l"].', reason="command"
    )


def _refused(message: str) -> MeahError:
    return MeahError(
        "E_PERMISSION",
        message,
        hint="Use a command that the operator allows (terminal.allowlist), without a shell's syntax.",
        reason="command_refused",
    )
