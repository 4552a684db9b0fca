"""What answers over HTTP besides Django: `/mcp`, the metadata of OAuth, and for a server without pages `/healthz`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings

from core.errors import MeahError
from meah_site.boundary import MCP_PATH
from meah_site.http.credentials import Doorkeeper
from meah_site.http.endpoint import McpEndpoint
from meah_site.http.keys import check_url
from meah_site.http.oauth_resource import METADATA_PATH, OAuthConfig, ResourceServer
from meah_site.http.replies import reply
from meah_site.installation import installation_id


class McpSite:
    """An ASGI application for HTTP; what it does not know goes to `others`."""

    def __init__(self, mcp: McpEndpoint, others: Any) -> None:
        self.mcp = mcp
        self._others = others

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if path in (MCP_PATH, f"{MCP_PATH}/"):
            await self.mcp(scope, receive, send)
        elif path in (METADATA_PATH, f"{METADATA_PATH}{MCP_PATH}") and (oauth := self.mcp.doorkeeper.oauth) is not None:
            # Public by design, and read by pages too.
            await reply(send, 200, oauth.metadata(), [(b"access-control-allow-origin", b"*")])
        else:
            await self._others(scope, receive, send)


async def no_pages(scope: Any, receive: Any, send: Any) -> None:
    """All there is beside `/mcp` in a server without the admin."""
    if scope["path"] == "/healthz":
        await reply(send, 200, {"status": "ok", "installation": installation_id()})
        return
    why = "There is nothing here: MCP is at /mcp, the admin is served by `manage.py up`."
    await reply(send, 404, {"ok": False, "error": {"code": "E_NOT_FOUND", "message": why}})


def made_endpoint(*, required: bool = True, origins: Sequence[str] = ()) -> McpEndpoint:
    """Raises MeahError E_CONFIG when the settings of OAuth can not be used."""
    config = oauth_config()
    oauth = None if config is None else ResourceServer(config)
    return McpEndpoint(Doorkeeper(required=required, oauth=oauth), origins)


def oauth_config() -> OAuthConfig | None:
    """Of the settings; None without an issuer. Raises MeahError E_CONFIG."""
    if not settings.MEAH_OAUTH_ISSUER:
        return None
    for url in filter(None, (settings.MEAH_OAUTH_ISSUER, settings.MEAH_OAUTH_JWKS_URL)):
        check_url(url)
    ours = f"{settings.MEAH_BASE_URL}{MCP_PATH}"
    audience = settings.MEAH_OAUTH_AUDIENCE or ours
    if not audience.isascii() or '"' in audience:
        raise MeahError("E_CONFIG", "MEAH_OAUTH_AUDIENCE is no audience.", hint="Give what the issuer writes as `aud`.")
    return OAuthConfig(
        issuer=settings.MEAH_OAUTH_ISSUER,
        audience=audience,
        resource=audience if "://" in audience else ours,
        jwks_url=settings.MEAH_OAUTH_JWKS_URL,
        user_claim=settings.MEAH_OAUTH_USER_CLAIM,
        scope_prefix=settings.MEAH_OAUTH_SCOPE_PREFIX,
    )
