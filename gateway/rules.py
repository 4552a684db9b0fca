"""What a server's configuration must satisfy, in words for the operator. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from core.redaction import is_secret_field, looks_like_key

from .launch import DIRECT_NAME_CHARS, NAME_PATTERN, RESERVED_NAME, Launch, odd_reference, references

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_PACKAGE_RUNNERS: Final = frozenset({"npx", "bunx", "pnpx", "uvx", "pipx"})
_RUN_WORDS: Final = frozenset({"run", "exec", "dlx", "tool"})
_PINNED_NPM: Final = re.compile(r"(@[^/@]+/)?[^@/]+@v?\d+\.\d+\.\d+[^\s]*\Z")
_PINNED_PYPI: Final = re.compile(r"[^=@\s]+(==|@)v?\d+(\.\d+)+[^\s]*\Z")


def server_problems(launch: Launch, *, exposure: str, prefix: str | None) -> list[str]:
    """Everything that is wrong with it; empty where nothing is."""
    return [
        *_name_problems(launch.server, exposure=exposure, prefix=prefix),
        *(_command_problems(launch) if launch.transport == "stdio" else _url_problems(launch)),
        *_value_problems("env", launch.env, _VARIABLE),
        *_value_problems("headers", launch.headers, _HEADER),
        *(
            f"inheritEnv: {name!r} is no name of a variable."
            for name in launch.inherit_env
            if not _VARIABLE.match(name)
        ),
        *([] if 1 <= launch.timeout_ms <= 600_000 else ["timeoutMs: from 1 to 600000."]),
    ]


def warnings(launch: Launch) -> list[str]:
    """What may be meant so, but should be looked at."""
    package = unpinned_package(launch)
    if package is None:
        return []
    return [
        f"{package} is not pinned to a version: whatever its registry serves next would run here. Write name@1.2.3."
    ]


def unpinned_package(launch: Launch) -> str | None:
    """The package that a runner such as `npx -y name` would fetch in whatever version there is."""
    runner = Path(launch.command).name
    if runner not in _PACKAGE_RUNNERS and runner not in {"npm", "pnpm", "yarn", "bun", "uv"}:
        return None
    words = [word for word in launch.args if word not in _RUN_WORDS]
    if runner not in _PACKAGE_RUNNERS and len(words) == len(launch.args):
        return None
    package = _named_package(words)
    if package is None or package.startswith((".", "/")):
        return None
    pinned = _PINNED_PYPI if runner in {"uvx", "pipx", "uv"} else _PINNED_NPM
    return None if pinned.match(package) else package


def _named_package(words: list[str]) -> str | None:
    for index, word in enumerate(words):
        if word in {"-p", "--package", "--from", "--spec"} and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(("--package=", "--from=", "--spec=")):
            return word.partition("=")[2]
        if not word.startswith("-"):
            return word
    return None


def _name_problems(name: str, *, exposure: str, prefix: str | None) -> list[str]:
    if not re.match(NAME_PATTERN, name):
        return [f"The name {name!r} does not fit: letters, digits, . _ and -, starting with a letter or digit."]
    if name.casefold() == RESERVED_NAME:
        return [f"The name {name!r} is MEAH's own."]
    if exposure != "direct":
        return []
    if prefix is None and (len(name) > DIRECT_NAME_CHARS or "__" in name):
        return [
            f"The name {name!r} does not fit a direct server: at most {DIRECT_NAME_CHARS} characters, without __. "
            "Shorten it, or set a prefix."
        ]
    if prefix and "__" in prefix:
        return [f"The prefix {prefix!r} has __ in it, which separates it from the tool's name."]
    return []


def _command_problems(launch: Launch) -> list[str]:
    problems = [] if launch.command.strip() else ["A stdio server needs a command."]
    if launch.url or launch.headers:
        problems.append("A stdio server has no URL and no headers.")
    problems += [
        f"{field} has {found!r}: references are resolved in env and headers only."
        for field, text in [("command", launch.command), *((f"args[{i}]", arg) for i, arg in enumerate(launch.args))]
        if (found := next(references(text), None) or odd_reference(text))
    ]
    problems += [
        f"args[{index}] looks like a key. Declare it in env as ${{NAME}} instead: arguments are visible to all."
        for index, arg in enumerate(launch.args)
        if looks_like_key(arg)
    ]
    return problems


def _url_problems(launch: Launch) -> list[str]:
    problems = ["A remote server has no command, arguments or environment."] if launch.command or launch.env else []
    try:
        parts = urlsplit(launch.url)
        port = parts.port
    except ValueError:
        return [*problems, "url: it is no URL."]
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        return [*problems, "url: it must start with https:// (or http:// for a private server) and name a host."]
    if parts.username is not None or parts.password is not None:
        problems.append("url: no user name and no password in it. Use a header with ${NAME}.")
    if parts.scheme == "http" and not launch.private:
        problems.append("url: https only, unless the server is marked private.")
    if "${" in launch.url:
        problems.append("url: references are resolved in env and headers only.")
    if looks_like_key(launch.url):
        problems.append("url: it looks as if it held a key. Use a header with ${NAME}.")
    return problems


def _value_problems(field: str, pairs: tuple[tuple[str, str], ...], fitting: re.Pattern[str]) -> list[str]:
    problems = []
    for name, value in pairs:
        if not fitting.match(name):
            problems.append(f"{field}: {name!r} is no fitting name.")
        elif any(character in value for character in "\r\n\0"):
            problems.append(f"{field}.{name}: no line breaks in it.")
        elif odd := odd_reference(value):
            problems.append(f"{field}.{name} has {odd!r}: only ${{NAME}} is known.")
        elif not any(references(value)) and (looks_like_key(value) or (is_secret_field(name) and len(value) >= 8)):
            problems.append(
                f"{field}.{name} looks like a secret in clear. "
                f"Put it into MEAH's environment and write ${{{_as_variable(name)}}}."
            )
    return problems


def _as_variable(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", name).upper()
