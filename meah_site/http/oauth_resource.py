"""MEAH as an OAuth resource server: access tokens of one issuer, checked by its published keys.

A token counts when its signature, issuer, audience and times hold, and when its subject is an active user here.
Signatures are asymmetric only: with a shared secret, or none, whoever can read the public key could sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import jwt
from django.contrib.auth import get_user_model

from audit.dbthread import in_db
from core.errors import JsonObject, MeahError
from core.text import one_line, visible
from meah_site.http.keys import IssuerKeys

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
REQUIRED: Final = ["exp", "iss", "aud"]
LEEWAY_S: Final = 10
METADATA_PATH: Final = "/.well-known/oauth-protected-resource"
MAX_CLIENT_CHARS: Final = 100


@dataclass(frozen=True)
class OAuthConfig:
    """Of settings: `audience` is what tokens have to be issued for, `resource` the URL that clients know us by."""

    issuer: str
    audience: str
    resource: str
    jwks_url: str = ""
    user_claim: str = "sub"
    scope_prefix: str = ""


@dataclass(frozen=True)
class Bearer:
    """Whom a verified token speaks for."""

    principal: str
    user_id: int
    subject: str
    client_id: str
    issuer: str
    scopes: tuple[str, ...]


class ResourceServer:
    """Verifies access tokens, and says where clients get theirs."""

    def __init__(self, config: OAuthConfig) -> None:
        self._config = config
        self._keys = IssuerKeys(config.issuer, config.jwks_url)

    async def verified(self, token: str) -> Bearer:
        """Raises MeahError E_PERMISSION whose message may be shown to the client; E_NETWORK without the keys."""
        claims = await self._claims(token)
        name = claims.get(self._config.user_claim)
        user_id = await in_db(_active_user, name) if isinstance(name, str) and name else None
        if user_id is None:
            raise _refused(f"No active user here is the token's {self._config.user_claim}.")
        client = claims.get("client_id") or claims.get("azp") or ""
        client = one_line(visible(client), MAX_CLIENT_CHARS) if isinstance(client, str) else ""
        return Bearer(
            principal=f"oauth:{name}" + (f"/{client}" if client else ""),
            user_id=user_id,
            subject=f"{self._config.user_claim}:{name}",
            client_id=client or "oauth",
            issuer=self._config.issuer,
            scopes=self._scopes(claims),
        )

    def metadata(self) -> JsonObject:
        """RFC 9728: what a client without a token reads to find the issuer."""
        return {
            "resource": self._config.resource,
            "resource_name": "MEAH",
            "authorization_servers": [self._config.issuer],
            "scopes_supported": [self._config.scope_prefix + name for name in ("agent", "approve")],
            "bearer_methods_supported": ["header"],
        }

    def metadata_url(self) -> str:
        """Of the resource https://host/mcp: https://host/.well-known/oauth-protected-resource/mcp."""
        scheme, _, rest = self._config.resource.partition("://")
        host, _, path = rest.partition("/")
        return f"{scheme}://{host}{METADATA_PATH}" + (f"/{path}" if path else "")

    @property
    def agent_scope(self) -> str:
        return f"{self._config.scope_prefix}agent"

    async def _claims(self, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise _refused("The token is no JWT, and no token of MEAH.") from error
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS or header.get("crit"):
            raise _refused("The token is not signed in a way that is accepted here.")
        key = await self._keys.find(header.get("kid"), algorithm)
        if key is None:
            raise _refused("The token is signed with a key that its issuer does not publish.")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=self._config.issuer,
                audience=self._config.audience,
                leeway=LEEWAY_S,
                options={"require": REQUIRED},
            )
        except jwt.PyJWTError as error:
            raise _refused(_words(error)) from error
        return claims

    def _scopes(self, claims: dict[str, Any]) -> tuple[str, ...]:
        """`scope` (RFC 9068) or `scp`, which some issuers write, as text or list; without our prefix."""
        found = claims.get("scope", claims.get("scp", ""))
        names = found.split() if isinstance(found, str) else found if isinstance(found, list) else []
        prefix = self._config.scope_prefix
        return tuple(name[len(prefix) :] for name in names if isinstance(name, str) and name.startswith(prefix))


def _active_user(name: str) -> int | None:
    """Sync, for the database thread."""
    manager = get_user_model()._default_manager
    user = manager.filter(is_active=True, username=name).only("pk").first()
    return None if user is None else int(user.pk)


def _words(error: jwt.PyJWTError) -> str:
    match error:
        case jwt.ExpiredSignatureError():
            return "The token has expired."
        case jwt.InvalidAudienceError():
            return "The token was issued for somebody else."
        case jwt.InvalidIssuerError():
            return "The token is of another issuer."
        case jwt.InvalidSignatureError():
            return "The token's signature is wrong."
        case jwt.MissingRequiredClaimError():
            return f"The token lacks {error.claim}."
    return "The token is not valid."


def _refused(message: str) -> MeahError:
    return MeahError("E_PERMISSION", message, reason="token")
