"""Who decides at a command: the user of MEAH_TOKEN, or of a password asked on a terminal. Never a name alone."""

from __future__ import annotations

import getpass
import sys
from typing import Any

from django.contrib.auth import authenticate, get_user_model

from core.errors import MeahError
from core.secrets import read_secret

from . import tokens

TOKEN_VARIABLE = "MEAH_TOKEN"  # noqa: S105 - the variable's name


def approving_user(*, scope: str, username: str = "") -> Any:
    """The authenticated user. Raises MeahError E_PERMISSION."""
    if secret := read_secret(TOKEN_VARIABLE):
        return tokens.recognise(secret, scope=scope).user
    if not sys.stdin.isatty():
        raise MeahError(
            "E_PERMISSION",
            "Nobody is authenticated.",
            hint=f"Set {TOKEN_VARIABLE} to a token with the scope {scope}, or run this on a terminal.",
        )
    name = username or input("User: ")
    user = authenticate(username=name, password=getpass.getpass(f"Password of {name}: "))
    if user is None or not get_user_model()._default_manager.filter(pk=user.pk, is_active=True).exists():
        raise MeahError("E_PERMISSION", "The user or the password is wrong.", hint="Try again.")
    return user
