"""Who sends a request: the user of one of MEAH's own tokens, or of an OAuth issuer's. What fails is nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from approvals import tokens
from approvals.models import Token
from audit.dbthread import in_db
from core.errors import MeahError
from meah_site.http.oauth_resource import ResourceServer
from meah_site.mcp_server import Identity

MAX_HEADER_CHARS: Final = 8_192


@dataclass(frozen=True)
class NotAdmittedError(Exception):
    """`status` 401 or 403; `error` is a word of RFC 6750, empty where nothing was presented at all."""

    status: int
    error: str
    description: str


@dataclass(frozen=True)
class Admitted:
    """`user` is what the SDK binds a session to; None only where no authentication is asked for."""

    identity: Identity
    user: AuthenticatedUser | None = None


class Doorkeeper:
    """Asks every request for its credential; nothing is remembered, so that revoking one takes effect at once."""

    def __init__(self, *, required: bool = True, oauth: ResourceServer | None = None) -> None:
        self.required = required
        self.oauth = oauth

    async def admit(self, authorization: str) -> Admitted:
        """`authorization` is the header. Raises NotAdmittedError."""
        if not authorization:
            if self.required:
                raise NotAdmittedError(401, "", "This needs a bearer token: `manage.py tokens create` makes one.")
            return Admitted(Identity("agent"))
        scheme, _, secret = authorization.partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret or len(authorization) > MAX_HEADER_CHARS:
            raise NotAdmittedError(401, "invalid_token", "The Authorization header holds no bearer token.")
        if secret.startswith(tokens.PREFIX) or self.oauth is None:
            return await in_db(_of_token, secret)
        return await self._of_issuer(self.oauth, secret)

    async def _of_issuer(self, oauth: ResourceServer, secret: str) -> Admitted:
        try:
            bearer = await oauth.verified(secret)
        except MeahError as error:
            raise NotAdmittedError(401, "invalid_token", error.message) from error
        role = _role(bearer.scopes, bearer.principal)
        owner = AccessToken(
            token="",
            client_id=bearer.client_id,
            scopes=list(bearer.scopes),
            subject=bearer.subject,
            claims={"iss": bearer.issuer},
        )
        return Admitted(Identity(role, bearer.principal, bearer.user_id), AuthenticatedUser(owner))


def _of_token(secret: str) -> Admitted:
    """Sync, for the database thread."""
    try:
        token = tokens.recognise(secret)
    except MeahError as error:
        raise NotAdmittedError(401, "invalid_token", error.message) from error
    role = _role(token.scopes, token.name)
    owner = AccessToken(token="", client_id=token.public_id, scopes=token.scopes, subject=str(token.user_id))
    return Admitted(Identity(role, f"token:{token.name}", token.user_id), AuthenticatedUser(owner))


def _role(scopes: list[str] | tuple[str, ...], name: str) -> str:
    """The approver role serves all that the agent role does. Raises NotAdmittedError where neither is given."""
    if Token.Scope.APPROVE in scopes:
        return "approver"
    if Token.Scope.AGENT in scopes:
        return "agent"
    raise NotAdmittedError(403, "insufficient_scope", f"{name} has neither the scope agent nor approve.")
