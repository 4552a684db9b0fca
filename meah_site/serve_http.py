"""`runmcp --transport http`: MCP alone on a port of its own, refused where anybody could reach it unknown."""

from __future__ import annotations

import gc
import ipaddress
import logging
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now

from approvals.models import Process, Token
from core.errors import MeahError
from core.logs import event
from meah_site.boundary import LOOPBACK, Boundary
from meah_site.http_options import HttpOptions, in_url
from meah_site.serve_web import Served, bound_socket, serve

log = logging.getLogger("meah.http")


def serve_http(options: HttpOptions) -> None:
    """Serve until SIGINT or SIGTERM. Raises MeahError E_CONFIG when it must not, or can not, start."""
    from meah_site.engine import Engine

    _check(options)
    listener = bound_socket(options.port, options.host)
    gc.enable()
    engine = Engine(Process.Kind.RUNMCP, allow_writes=options.allow_writes)
    serve(listener, lambda: _greet(options), made=lambda: served(options), engine=engine)


def served(options: HttpOptions) -> Served:
    """What answers there, behind the layer that compares hosts and origins."""
    from meah_site.http.site import McpSite, made_endpoint, no_pages

    origins = [*settings.MEAH_ALLOWED_ORIGINS, *options.origins]
    mcp = made_endpoint(required=options.authenticate, origins=origins)
    return Served(Boundary(_http_only(McpSite(mcp, no_pages)), hosts=hosts(options), origins=origins), mcp)


def hosts(options: HttpOptions) -> list[str]:
    """The bound address; all of loopback's names where it is one, or where it is every address."""
    bound = [in_url(options.host)]
    everywhere = ipaddress.ip_address(options.host).is_unspecified
    if options.is_loopback or everywhere:
        bound = list(LOOPBACK)
    given = [host for host in settings.MEAH_HOSTS if host not in LOOPBACK]
    return [*bound, *given, *options.hosts]


def _check(options: HttpOptions) -> None:
    """Beyond loopback nobody comes in unknown, and there has to be somebody who can come in."""
    if options.is_loopback:
        if not options.authenticate:
            hint = "Every program and user of this machine can call MEAH as an agent. Leave --no-auth out."
            event(log, "no_authentication", level="warn", url=options.url, hint=hint)
        return
    if not options.authenticate:
        raise MeahError(
            "E_CONFIG",
            f"--no-auth is for loopback only, not for {options.host}.",
            hint="Leave it out, and give clients a token: `manage.py tokens create NAME --user USER --scope agent`.",
        )
    if not settings.MEAH_OAUTH_ISSUER and not _has_token():
        raise MeahError(
            "E_CONFIG",
            f"Nobody could authenticate at {options.host}: there is no token, and no OAuth issuer.",
            hint="`manage.py tokens create NAME --user USER --scope agent` makes a token; or set MEAH_OAUTH_ISSUER.",
        )
    hint = "Tokens pass in clear: put a proxy with TLS in front, and name its host with --allow-host."
    event(log, "not_encrypted", level="warn", url=options.url, hint=hint)


def _has_token() -> bool:
    living = Token.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), revoked_at=None, user__is_active=True)
    usable = {Token.Scope.AGENT, Token.Scope.APPROVE}
    return any(usable & set(scopes) for scopes in living.values_list("scopes", flat=True))


def _greet(options: HttpOptions) -> None:
    hint = ""
    if options.authenticate and not settings.MEAH_OAUTH_ISSUER and not _has_token():
        hint = "No token can be used yet: `manage.py tokens create NAME --user USER --scope agent` makes one."
    event(log, "server_ready", transport="http", url=options.url, hint=hint)


def _http_only(app: Any) -> Any:
    async def http(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4404})
        else:
            await app(scope, receive, send)

    return http
