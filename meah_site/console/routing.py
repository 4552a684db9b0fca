"""Where the console's websocket is."""

from __future__ import annotations

from typing import Any, Final

from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from django.urls import path

from .socket import ConsoleSocket

SOCKET_PATH: Final = "ws/console/"

websocket: Any = AuthMiddlewareStack(URLRouter([path(SOCKET_PATH, ConsoleSocket.as_asgi())]))
