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

application = Boundary(
    ProtocolTypeRouter({"http": django_application, "websocket": websocket}), hosts=settings.ALLOWED_HOSTS
)
