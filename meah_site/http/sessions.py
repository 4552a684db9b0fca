"""The SDK's HTTP server over one role's tools, entered and left by one task of its own."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from core.frames import MAX_FRAME_BYTES
from core.tasks import in_task
from meah_site.mcp_server import Identity, MeahServer
from meah_site.own_tools import own_tools

MAX_SESSIONS: Final = 1_000
STOP_WITHIN_S: Final = 3.0
# At INFO they write the id of each session into the log, and where nobody authenticates that is all there is.
for _name in ("mcp.server.streamable_http", "mcp.server.streamable_http_manager"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class RoleSessions:
    """Serves the agent's or the approver's tools. A session of the one role is unknown to the other."""

    def __init__(self, role: str, engine: Any) -> None:
        offered = own_tools(role, engine.pool, engine.runner)
        owner = engine.membership.public_id
        self._meah = MeahServer(offered, owner, Identity(role), on_caller=lambda _principal: None)
        presented = self._meah.options()
        # The manager asks without saying that the list of tools may change.
        self._meah.server.create_initialization_options = lambda *_, **__: presented  # type: ignore[method-assign]
        self._manager = StreamableHTTPSessionManager(
            self._meah.server, max_request_body_size=MAX_FRAME_BYTES, max_sessions=MAX_SESSIONS
        )
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def on_frame(self) -> Any:
        return self._meah.on_frame

    async def start(self) -> None:
        """Raises whatever keeps it from starting."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = in_task(self._own(ready), name="mcp-http-sessions")
        await ready

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=STOP_WITHIN_S)

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        await self._manager.asgi_app(scope, receive, send)

    async def _own(self, ready: asyncio.Future[None]) -> None:
        watch = in_task(self._meah.watch.run(), name="watch-listing")
        try:
            async with self._manager.run():
                ready.set_result(None)
                await self._stop.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            watch.cancel()
