"""Tokens in the admin: shown once, for whom one may, revoked at once."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from approvals import tokens
from approvals.models import Token
from audit.models import Entry
from core.errors import MeahError
from tests.approvals.requests import payload, person
from tests.rows import page, posted, staff_client

pytestmark = pytest.mark.django_db

LIST = "/admin/approvals/token/"
ADD = f"{LIST}add/"


def make(client: Client, user: Any, /, **changes: Any) -> str:
    return posted(client, ADD, **({"name": "ci", "user": user.pk, "scopes": ["agent"], "days": "90"} | changes))


def secret_in(html: str) -> str:
    found = re.search(r'id="secret"[^>]*>(meah_[\w-]+)<', html)
    assert found is not None
    return found[1]


def token_of(user: Any, name: str = "ci") -> tuple[Token, str]:
    return tokens.create(name=name, user=user, scopes=["agent"], expires_at=None, principal="system")


def test_a_token_is_shown_once_and_kept_nowhere(admin_client: Client, admin_user: Any) -> None:
    assert "No tokens" in page(admin_client, LIST)
    answer = admin_client.post(ADD, {"name": "ci", "user": admin_user.pk, "scopes": ["agent", "read"], "days": "90"})
    assert answer.status_code == 200
    assert "no-store" in answer.headers["Cache-Control"]
    secret = secret_in(answer.content.decode())
    token = Token.objects.get(name="ci")
    assert tokens.recognise(secret, scope="read") == token
    assert token.expires_at is not None
    for url in (LIST, f"{LIST}{token.pk}/change/", "/admin/", ADD):
        assert secret not in page(admin_client, url)
    assert all(secret not in bytes(entry.payload).decode() for entry in Entry.objects.all())
    assert all(secret not in str(session.get_decoded()) for session in Session.objects.all())
    assert payload("token.created")["principal"] == "user:admin"


def test_the_same_form_twice_makes_no_second_token(admin_client: Client, admin_user: Any) -> None:
    make(admin_client, admin_user)
    html = make(admin_client, admin_user)
    assert "There is a token named ci already" in html
    assert 'id="secret"' not in html
    assert Token.objects.count() == 1


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "a b"}, "is no name for a token"),
        ({"scopes": []}, "This field is required"),
        ({"scopes": ["root"]}, "Select a valid choice"),
        ({"days": "99999"}, "less than or equal to 3650"),
        ({"user": 10**6}, "Select a valid choice"),
    ],
)
def test_what_can_not_be_made_is_said(
    admin_client: Client, admin_user: Any, changes: dict[str, Any], problem: str
) -> None:
    assert problem in make(admin_client, admin_user, **changes)
    assert not Token.objects.exists()


def test_only_who_may_do_everything_makes_tokens_for_others(admin_user: Any) -> None:
    maker, client = person("maker", "approvals.add_token", "approvals.view_token")
    assert "Select a valid choice" in make(client, admin_user)
    assert not Token.objects.exists()
    secret_in(make(client, maker))
    assert Token.objects.get().user == maker


def test_revoking_is_a_button_behind_a_page_and_counts_at_once(admin_client: Client, admin_user: Any) -> None:
    token, secret = token_of(admin_user)
    url = f"{LIST}{token.public_id}/revoke/"
    assert "is refused from the next call on" in page(admin_client, url)
    assert tokens.recognise(secret) == token
    html = posted(admin_client, url)
    assert "revoked" in html
    with pytest.raises(MeahError):
        tokens.recognise(secret)
    assert payload("token.revoked")["subject"] == token.public_id


def test_rights_of_others_tokens(admin_user: Any) -> None:
    token, _ = token_of(admin_user)
    looker = staff_client("approvals.view_token")
    assert token.name in page(looker, LIST)
    assert looker.get(ADD).status_code == 403
    assert looker.post(f"{LIST}{token.public_id}/revoke/").status_code == 403
    owner, client = person("owner", "approvals.view_token")
    own, _ = token_of(owner, "own")
    posted(client, f"{LIST}{own.public_id}/revoke/")
    assert Token.objects.get(pk=own.pk).revoked_at is not None
    assert Token.objects.get(pk=token.pk).revoked_at is None


def test_a_token_is_never_edited_or_deleted(admin_client: Client, admin_user: Any) -> None:
    token, _ = token_of(admin_user)
    assert admin_client.post(f"{LIST}{token.pk}/change/", {"scopes": '["approve"]'}).status_code == 403
    assert admin_client.post(f"{LIST}{token.pk}/delete/", {"post": "yes"}).status_code == 403
    assert Token.objects.get().scopes == ["agent"]
