"""The ASGI application that daphne serves."""

from __future__ import annotations

import os

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "meah_site.settings")

django_application = get_asgi_application()

# Only now: the socket's consumer needs the apps.
from django.conf import settings  # noqa: E402

from meah_site.boundary import Boundary  # noqa: E402
from meah_site.console.routing import websocket  # noqa: E402
from meah_site.http.site import McpSite, made_endpoint  # noqa: E402

# Whoever serves opens and closes it, with an engine behind.
mcp = made_endpoint(origins=settings.MEAH_ALLOWED_ORIGINS)

application = Boundary(
    ProtocolTypeRouter({"http": McpSite(mcp, django_application), "websocket": websocket}),
    hosts=settings.MEAH_HOSTS,
    origins=settings.MEAH_ALLOWED_ORIGINS,
)
