"""Reading a `.env` file. A parser of our own, because django-environ imports Django and skips bad lines."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from core.errors import MeahError

_LINE: Final = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)", re.DOTALL)
_SINGLE: Final = re.compile(r"'([^']*)'[ \t]*(?:#.*)?")
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"[ \t]*(?:#.*)?')
_COMMENT: Final = re.compile(r"(?:^|[ \t])#.*")
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of a `.env` file; of a name that stands there twice, the last.

    A line is `NAME=value`, with `export ` before it if you like. Values may stand in single quotes (taken as they are)
    or double quotes (with \\n, \\t, \\" and \\\\); outside quotes a `#` after a space starts a comment. Nothing is
    interpolated. MeahError E_CONFIG names the file, and the line that cannot be read, never its text.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise MeahError("E_CONFIG", f"{path} is not UTF-8 text.", hint="Save it as UTF-8.") from None
    except OSError as error:
        raise MeahError(
            "E_CONFIG",
            f"{path} cannot be read: {error.strerror}.",
            hint="Check the path and the file's mode.",
        ) from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            name, value = _parsed(stripped, path=path, number=number)
            found[name] = value
    return found


def load_env_file(path: Path, *, required: bool = False) -> list[str]:
    """Set the file's variables in `os.environ`; those already set, even to nothing, win. The names that were set.

    A file that is not there is an error (E_CONFIG) only when it is required.
    """
    if not required and not path.exists():
        return []
    loaded = {name: value for name, value in read_env_file(path).items() if name not in os.environ}
    os.environ.update(loaded)
    return list(loaded)


def _parsed(line: str, *, path: Path, number: int) -> tuple[str, str]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise _bad_line(path, number, "it is not NAME=value")
    name, value = match.groups()
    if "\0" in value:
        raise _bad_line(path, number, "it has a NUL character")
    if value.startswith("'"):
        return name, _quoted(_SINGLE, value, path=path, number=number)
    if value.startswith('"'):
        inner = _quoted(_DOUBLE, value, path=path, number=number)
        return name, _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), inner)
    return name, _COMMENT.sub("", value).rstrip()


def _quoted(pattern: re.Pattern[str], value: str, *, path: Path, number: int) -> str:
    match = pattern.fullmatch(value)
    if match is None:
        raise _bad_line(path, number, "its quotes do not match")
    return match[1]


def _bad_line(path: Path, number: int, why: str) -> MeahError:
    return MeahError(
        "E_CONFIG",
        f"{path}, line {number}: {why}.",
        hint='Write NAME=value, NAME="value" or a comment that starts with #.',
    )
