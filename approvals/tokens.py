"""API tokens of users: made, shown once, recognised by their digest, revoked."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from audit.services import record
from core.canonical import utc_text
from core.errors import MeahError

from .models import Token

PREFIX = "meah_"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_DAYS = 3650
# Over HTTP a token is used with every request: not each of them is worth a write.
USE_NOTED_EVERY = timedelta(minutes=1)


def create(
    *, name: str, user: Any, scopes: Sequence[str], expires_at: datetime | None, principal: str
) -> tuple[Token, str]:
    """A new token, and its secret: the only time that it can be seen. Raises MeahError E_INVALID_REQUEST."""
    _check(name, user, scopes, expires_at)
    secret = PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        token = Token.objects.create(
            name=name,
            user=user,
            digest=digest_of(secret),
            hint=secret[: len(PREFIX) + 4],
            scopes=sorted(set(scopes)),
            expires_at=expires_at,
        )
        data = {
            "name": name,
            "user": user.get_username(),
            "scopes": token.scopes,
            "expiresAt": utc_text(expires_at) if expires_at else None,
        }
        record("token.created", principal=principal, subject=token.public_id, data=data)
    return token, secret


def _check(name: str, user: Any, scopes: Sequence[str], expires_at: datetime | None) -> None:
    if not NAME.fullmatch(name):
        raise MeahError(
            "E_INVALID_REQUEST", f"{name!r} is no name for a token.", hint="Letters, digits, '.', '_', '-'."
        )
    if Token.objects.filter(name=name).exists():
        raise MeahError(
            "E_INVALID_REQUEST", f"There is a token named {name} already.", hint="Names stay taken for ever."
        )
    if not user.is_active:
        raise MeahError("E_INVALID_REQUEST", f"{user.get_username()} is not active.")
    if unknown := sorted(set(scopes) - set(Token.Scope.values)):
        raise MeahError(
            "E_INVALID_REQUEST", f"Unknown scopes: {', '.join(unknown)}.", hint=f"Use {', '.join(Token.Scope.values)}."
        )
    if not scopes:
        raise MeahError("E_INVALID_REQUEST", "A token needs a scope.", hint=f"Use {', '.join(Token.Scope.values)}.")
    if expires_at is not None and expires_at <= timezone.now():
        raise MeahError("E_INVALID_REQUEST", "The token would have expired already.")


def digest_of(secret: str) -> str:
    """A plain digest is enough: the secret has 256 random bits, so there is nothing to guess."""
    return hashlib.sha256(secret.encode()).hexdigest()


def recognise(secret: str, *, scope: str = "") -> Token:
    """The living token of this secret. Raises MeahError E_PERMISSION, which never says more than it must."""
    token = Token.objects.select_related("user").filter(digest=digest_of(secret)).first()
    expired = token is not None and token.expires_at is not None and token.expires_at <= timezone.now()
    if token is None or token.revoked_at is not None or expired or not token.user.is_active:
        raise MeahError(
            "E_PERMISSION",
            "The token is unknown, expired or revoked.",
            hint="`manage.py tokens create NAME --user USER --scope SCOPE` makes a new one.",
            reason="token",
        )
    if scope and scope not in token.scopes:
        raise MeahError("E_PERMISSION", f"The token {token.name} lacks the scope {scope}.", reason="scope")
    if token.last_used_at is None or timezone.now() - token.last_used_at > USE_NOTED_EVERY:
        Token.objects.filter(pk=token.pk).update(last_used_at=Now())
    return token


def revoke(token: Token, *, principal: str) -> None:
    """Takes effect at once; a repeat changes nothing."""
    with transaction.atomic():
        if Token.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=Now()):
            record("token.revoked", principal=principal, subject=token.public_id, data={"name": token.name})
