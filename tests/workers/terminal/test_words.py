"""What is a command at all, and which are allowed: everything else is refused before anything starts."""

from __future__ import annotations

import pytest

from core.errors import MeahError
from workers.routing import AllowedCommand
from workers.terminal.words import argv_of

LS = AllowedCommand("/bin/ls", None)
GIT = AllowedCommand("/usr/bin/git", ("log|status", "--oneline"))
ALLOWED = [LS, GIT]


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("ls -l", ["/bin/ls", "-l"]),
        ("/bin/ls", ["/bin/ls"]),
        (["ls", "a b", ";"], ["/bin/ls", "a b", ";"]),
        ("ls 'a b'", ["/bin/ls", "a b"]),
        ("git log --oneline", ["/usr/bin/git", "log", "--oneline"]),
    ],
)
def test_what_is_allowed_becomes_an_argument_list(command: str | list[str], argv: list[str]) -> None:
    assert argv_of(command, ALLOWED) == argv


@pytest.mark.parametrize("character", list(";&|><\\$(){}`\n\r"))
def test_what_only_a_shell_would_understand_is_refused(character: str) -> None:
    with pytest.raises(MeahError) as refused:
        argv_of(f"ls {character} x", ALLOWED)
    assert (refused.value.code, refused.value.reason) == ("E_PERMISSION", "command_refused")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("cat /etc/passwd", "E_PERMISSION"),
        ("/tmp/ls", "E_PERMISSION"),
        ("./ls", "E_PERMISSION"),
        ("LS", "E_PERMISSION"),
        ("git log", "E_PERMISSION"),
        ("git log --oneline --output=x", "E_PERMISSION"),
        ("git log --oneline\u200b", "E_PERMISSION"),
        ("git push --oneline", "E_PERMISSION"),
        ("git xlog --oneline", "E_PERMISSION"),
        ("", "E_INVALID_REQUEST"),
        ("   ", "E_INVALID_REQUEST"),
        ([], "E_INVALID_REQUEST"),
        ([""], "E_INVALID_REQUEST"),
        (["ls", "a\0b"], "E_INVALID_REQUEST"),
        ("ls 'open", "E_INVALID_REQUEST"),
        (["ls", *["x"] * 300], "E_INVALID_REQUEST"),
    ],
)
def test_what_is_not_allowed_is_refused(command: str | list[str], code: str) -> None:
    with pytest.raises(MeahError) as refused:
        argv_of(command, ALLOWED)
    assert refused.value.code == code
