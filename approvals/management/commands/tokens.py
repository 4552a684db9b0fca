"""`manage.py tokens`: API tokens of users."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from approvals import tokens
from approvals.models import Token
from core.errors import MeahError

PRINCIPAL = "system"


class Command(BaseCommand):
    help = "API tokens: create (shown once), list, revoke."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="make a token and show it once")
        create.add_argument("name", help="the principal becomes token:NAME")
        create.add_argument("--user", required=True, help="the user behind it")
        create.add_argument("--scope", required=True, action="append", choices=Token.Scope.values)
        create.add_argument("--days", type=int, default=90, help="until it expires; 0 for never (default 90)")
        actions.add_parser("list", help="list tokens")
        revoke = actions.add_parser("revoke", help="revoke a token at once")
        revoke.add_argument("name")

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        try:
            getattr(self, f"_{action}")(**options)
        except MeahError as error:
            raise CommandError(f"{error.message} {error.hint}") from error

    def _create(self, *, name: str, user: str, scope: list[str], days: int, **_: Any) -> None:
        owner = get_user_model()._default_manager.filter(username=user).first()
        if owner is None:
            raise CommandError(f"There is no user {user}. `manage.py createsuperuser` or the admin makes one.")
        if not 0 <= days <= tokens.MAX_DAYS:
            raise CommandError(f"--days takes 0 to {tokens.MAX_DAYS}.")
        expires_at = timezone.now() + timedelta(days=days) if days else None
        token, secret = tokens.create(name=name, user=owner, scopes=scope, expires_at=expires_at, principal=PRINCIPAL)
        self.stderr.write(f"Token {token.name} of {user}, scopes {', '.join(token.scopes)}. It is shown only now:")
        self.stdout.write(secret)

    def _list(self, **_: Any) -> None:
        rows = list(Token.objects.select_related("user"))
        if not rows:
            self.stdout.write("No tokens. `manage.py tokens create NAME --user USER --scope agent` makes one.")
        for token in rows:
            state = "revoked" if token.revoked_at else _expiry(token)
            self.stdout.write(
                f"{token.name:<24} {token.user.get_username():<16} {','.join(token.scopes):<24} {token.hint}…  {state}"
            )

    def _revoke(self, *, name: str, **_: Any) -> None:
        token = Token.objects.filter(name=name).first()
        if token is None:
            raise CommandError(f"There is no token {name}. `manage.py tokens list` shows them.")
        tokens.revoke(token, principal=PRINCIPAL)
        self.stdout.write(f"{name} is revoked.")


def _expiry(token: Token) -> str:
    if token.expires_at is None:
        return "never expires"
    return f"{'expired' if token.expires_at <= timezone.now() else 'expires'} {token.expires_at:%Y-%m-%d}"
