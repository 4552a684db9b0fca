"""Access tokens of an OAuth issuer: what has to hold before one counts, with a real issuer on loopback."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from django.contrib.auth import get_user_model

from core.errors import MeahError
from meah_site.http import keys as keys_module
from meah_site.http.credentials import Doorkeeper, NotAdmittedError
from meah_site.http.oauth_resource import Bearer, OAuthConfig, ResourceServer
from tests.approvals.requests import person
from tests.conftest import Home
from tests.meah_site.issuer import Issuer, Key, confused, running_issuer, unsigned

AUDIENCE = "https://meah.example.com/mcp"


@pytest.fixture
def issuer(home: Home) -> Iterator[Issuer]:
    person("ann")
    with running_issuer() as running:
        yield running


def config(issuer: Issuer, **changed: Any) -> OAuthConfig:
    return OAuthConfig(**{"issuer": issuer.url, "audience": AUDIENCE, "resource": AUDIENCE} | changed)


def verified(issuer: Issuer, token: str, **changed: Any) -> Bearer:
    return asyncio.run(ResourceServer(config(issuer, **changed)).verified(token))


def refusal(issuer: Issuer, token: str, **changed: Any) -> str:
    with pytest.raises(MeahError) as refused:
        verified(issuer, token, **changed)
    assert token not in str(refused.value)
    return refused.value.message


def test_a_good_token_speaks_for_its_user_and_client(issuer: Issuer) -> None:
    found = verified(issuer, issuer.token(AUDIENCE, scope="profile agent"))
    assert (found.principal, found.client_id) == ("oauth:ann/desk", "desk")
    assert found.user_id == get_user_model()._default_manager.get(username="ann").pk
    assert found.scopes == ("profile", "agent")
    assert verified(issuer, issuer.token(AUDIENCE, aud=["x", AUDIENCE], client_id=None)).principal == "oauth:ann"
    assert verified(issuer, issuer.token(AUDIENCE, client_id=None, azp="cli")).principal == "oauth:ann/cli"


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_keys_may_be_of_either_kind_and_be_found_by_metadata_or_by_address(issuer: Issuer, algorithm: str) -> None:
    key = Key("other", algorithm)
    issuer.published = [{"kty": "oct", "k": "c2VjcmV0", "kid": "other"}, key.public, issuer.key.public]
    token = issuer.token(AUDIENCE, key=key)
    assert verified(issuer, token).principal == "oauth:ann/desk"
    assert verified(issuer, token, jwks_url=f"{issuer.url}/keys").principal == "oauth:ann/desk"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another audience": ({"aud": "https://other.example.com/mcp"}, "somebody else"),
    "no audience": ({"aud": None}, "somebody else|aud"),
    "our audience and more text": ({"aud": AUDIENCE + "/x"}, "somebody else"),
    "another issuer": ({"iss": "https://evil.example.com"}, "another issuer"),
    "no issuer": ({"iss": None}, "iss"),
    "expired": ({"exp": int(time.time()) - 60}, "expired"),
    "never expires": ({"exp": None}, "exp"),
    "not yet": ({"nbf": int(time.time()) + 300}, "not valid"),
    "nobody here": ({"sub": "mallory"}, "No active user"),
    "nobody at all": ({"sub": None}, "No active user"),
    "somebody else's case": ({"sub": "ANN"}, "No active user"),
}


@pytest.mark.parametrize(("changed", "word"), WRONG.values(), ids=WRONG)
def test_a_token_whose_claims_do_not_hold_is_refused(issuer: Issuer, changed: dict[str, Any], word: str) -> None:
    message = refusal(issuer, issuer.token(AUDIENCE, **changed))
    assert any(part in message for part in word.split("|")), message


def test_a_token_that_is_not_signed_by_a_published_key_is_refused(issuer: Issuer) -> None:
    claims = issuer.claims(AUDIENCE)
    forged = {
        "none": unsigned(claims),
        "confused": confused(issuer.key, claims),
        "unknown kid": Key("unknown").signed(claims),
        "known kid": Key("one").signed(claims),
        "another key without a name": jwt.encode(claims, Key("x").private, algorithm="RS256"),
        "not a JWT": "abc",
        "dots": "a.b.c",
        "critical": issuer.key.signed(claims, crit=["exp"]),
        "its own key": issuer.key.signed(claims, kid="zwei", jwk=Key("zwei").public, jku="http://127.0.0.1:1/keys"),
        "cut": issuer.token(AUDIENCE)[:-3],
    }
    for name, token in forged.items():
        assert refusal(issuer, token), name


def test_a_key_that_is_for_encryption_or_for_another_algorithm_does_not_count(issuer: Issuer) -> None:
    for changed in ({"use": "enc"}, {"alg": "PS256"}, {"alg": "RSA-OAEP"}):
        issuer.published = [issuer.key.public | changed]
        assert "does not publish" in refusal(issuer, issuer.token(AUDIENCE))


def test_an_inactive_user_is_nobody(issuer: Issuer) -> None:
    get_user_model()._default_manager.update(is_active=False)
    assert "No active user" in refusal(issuer, issuer.token(AUDIENCE))


def test_the_claim_that_names_the_user_can_be_chosen(issuer: Issuer) -> None:
    token = issuer.token(AUDIENCE, sub="0815", preferred_username="ann")
    assert verified(issuer, token, user_claim="preferred_username").principal == "oauth:ann/desk"
    assert "No active user" in refusal(issuer, token)


def test_keys_that_rotate_are_found_and_the_old_ones_forgotten(issuer: Issuer, monkeypatch: Any) -> None:
    monkeypatch.setattr(keys_module, "ASK_EVERY_S", 0.0)

    async def main() -> None:
        server = ResourceServer(config(issuer))
        old = issuer.token(AUDIENCE)
        await server.verified(old)
        await server.verified(old)
        assert issuer.asked == 1
        fresh = Key("two")
        issuer.published = [fresh.public]
        assert (await server.verified(issuer.token(AUDIENCE, key=fresh))).principal == "oauth:ann/desk"
        with pytest.raises(MeahError):
            await server.verified(old)

    asyncio.run(main())


def test_made_up_key_ids_do_not_become_requests_to_the_issuer(issuer: Issuer) -> None:
    async def main() -> None:
        server = ResourceServer(config(issuer))
        await server.verified(issuer.token(AUDIENCE))
        for number in range(20):
            with pytest.raises(MeahError):
                await server.verified(Key(f"made-up-{number % 2}", "ES256").signed(issuer.claims(AUDIENCE)))

    asyncio.run(main())
    assert issuer.asked == 1


def test_an_issuer_that_is_silent_is_bridged_and_one_that_never_spoke_lets_nobody_in(
    issuer: Issuer, monkeypatch: Any
) -> None:
    async def main() -> None:
        server = ResourceServer(config(issuer))
        await server.verified(issuer.token(AUDIENCE))
        monkeypatch.setattr(keys_module, "FRESH_S", 0.0)
        monkeypatch.setattr(keys_module, "ASK_EVERY_S", 0.0)
        issuer.answer = lambda _path: None  # type: ignore[method-assign]
        await server.verified(issuer.token(AUDIENCE))
        with pytest.raises(MeahError, match="can not be read"):
            await ResourceServer(config(issuer)).verified(issuer.token(AUDIENCE))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("changed", "prefix", "role"),
    [
        ({"scope": "agent"}, "", "agent"),
        ({"scope": "agent approve"}, "", "approver"),
        ({"scope": None, "scp": ["meah:approve"]}, "meah:", "approver"),
        ({"scope": "agent"}, "meah:", None),
        ({"scope": "agents"}, "", None),
        ({"scope": 5}, "", None),
        ({"scope": None}, "", None),
    ],
)
def test_scopes_say_which_role_is_served(issuer: Issuer, changed: Any, prefix: str, role: str | None) -> None:
    keeper = Doorkeeper(oauth=ResourceServer(config(issuer, scope_prefix=prefix)))
    header = f"Bearer {issuer.token(AUDIENCE, **changed)}"
    if role is not None:
        admitted = asyncio.run(keeper.admit(header))
        assert (admitted.identity.role, admitted.identity.principal) == (role, "oauth:ann/desk")
        return
    with pytest.raises(NotAdmittedError) as refused:
        asyncio.run(keeper.admit(header))
    assert (refused.value.status, refused.value.error) == (403, "insufficient_scope")


def test_a_token_of_meah_is_never_tried_as_the_issuers_nor_the_other_way_round(issuer: Issuer) -> None:
    keeper = Doorkeeper(oauth=ResourceServer(config(issuer)))
    for header in ("Bearer meah_" + "x" * 43, f"Bearer meah_{issuer.token(AUDIENCE)}"):
        with pytest.raises(NotAdmittedError):
            asyncio.run(keeper.admit(header))
    assert issuer.asked == 0
    with pytest.raises(NotAdmittedError):
        asyncio.run(Doorkeeper().admit(f"Bearer {issuer.token(AUDIENCE)}"))


def test_the_metadata_lead_to_the_issuer(issuer: Issuer) -> None:
    server = ResourceServer(config(issuer, scope_prefix="meah:"))
    assert server.metadata() == {
        "resource": AUDIENCE,
        "resource_name": "MEAH",
        "authorization_servers": [issuer.url],
        "scopes_supported": ["meah:agent", "meah:approve"],
        "bearer_methods_supported": ["header"],
    }
    assert server.metadata_url() == "https://meah.example.com/.well-known/oauth-protected-resource/mcp"
