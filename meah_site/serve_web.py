"""Serving the admin: daphne on a socket of our own, with an engine beside it in the same event loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from approvals.models import Process
from audit.dbthread import in_db
from core.errors import MeahError
from core.logs import event

if TYPE_CHECKING:
    from meah_site.engine import Engine
    from meah_site.http.endpoint import McpEndpoint

log = logging.getLogger("meah.web")

HOST = "127.0.0.1"
WANTED_EVERY_S = 0.5


@dataclass(frozen=True)
class Served:
    """An ASGI application, and the endpoint in it that lives as long as the engine."""

    application: Any
    mcp: McpEndpoint


def bound_socket(port: int, host: str = HOST) -> socket.socket:
    """A listening socket, on loopback unless another address is given.

    Raises MeahError E_CONFIG naming the way out when the port is taken.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _not_bound(port, error) from error
    listener.listen(128)
    return listener


async def _outdated(engine: Any, wanted: Callable[[], bool]) -> bool:
    """True once another version has migrated the database, False once nobody wants this process any more."""
    while wanted():
        try:
            async with asyncio.timeout(WANTED_EVERY_S):
                await engine.outdated.wait()
            return True
        except TimeoutError:
            continue
    return False


def _not_bound(port: int, error: OSError) -> MeahError:
    if error.errno == errno.EADDRINUSE:
        return MeahError(
            "E_CONFIG",
            f"Port {port} is in use, by another program or by a MEAH that runs already.",
            hint=f"Take another one: `make run PORT={port + 1}`, or `manage.py up --port {port + 1}`. "
            "If MEAH runs already, `manage.py login_link` prints a link to it.",
        )
    return MeahError("E_CONFIG", f"Port {port} can not be used: {error.strerror}.", hint="Use a port above 1023.")


def serve(
    listener: socket.socket,
    on_ready: Callable[[], None],
    *,
    wanted: Callable[[], bool] = lambda: True,
    made: Callable[[], Served] | None = None,
    engine: Engine | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, or until it is not `wanted` any more; then all workers here are cancelled.

    `made` gives what is served, the console where it is left out. Raises MeahError when the engine could not start.
    """
    reactor, server = _daphne()
    # Only now: daphne makes asyncio's loop the reactor's, and the engine lives in that loop.
    from meah_site.engine import Engine

    life = _Life(reactor, (made or _console)(), engine or Engine(Process.Kind.CONSOLE))
    port = listener.getsockname()[1]
    # Twisted closes the number that it is given: kept in the object too, it would soon name another file.
    fileno = listener.detach()

    def ready() -> None:
        on_ready()
        event(log, "console_ready" if made is None else "mcp_ready", port=port)

    life.begin_with_reactor(ready, wanted)
    server(
        application=life.served.application,
        endpoints=[f"fd:fileno={fileno}"],
        server_name="MEAH",
        verbosity=0,
        request_buffer_size=65_536,
    ).run()
    if life.failure is not None:
        raise life.failure


class _Life:
    """The engine, and what is served with it, from the reactor's start to its end."""

    def __init__(self, reactor: Any, served: Served, engine: Engine) -> None:
        self.served = served
        self.failure: Exception | None = None
        self._reactor = reactor
        self._engine = engine
        self._task: asyncio.Future[None] | None = None

    def begin_with_reactor(self, on_ready: Callable[[], None], wanted: Callable[[], bool]) -> None:
        """To be called before the reactor runs."""
        from twisted.internet import defer

        def begin() -> None:
            self._task = asyncio.ensure_future(self._live(on_ready, wanted))

        self._reactor.callWhenRunning(begin)
        self._reactor.addSystemEventTrigger(
            "before", "shutdown", lambda: defer.Deferred.fromFuture(asyncio.ensure_future(self._end()))
        )

    async def _live(self, on_ready: Callable[[], None], wanted: Callable[[], bool]) -> None:
        try:
            await self._engine.start()
            await self.served.mcp.open(self._engine)
            await in_db(on_ready)
            if await _outdated(self._engine, wanted):
                event(log, "schema_is_newer", level="error", hint="Another version migrated the database: start again.")
                self._engine.pool.close("The database was migrated by a newer version of MEAH; this process ends.")
                await self._engine.pool.idle()
        except Exception as error:
            self.failure = error
        self._reactor.stop()

    async def _end(self) -> None:
        """Answers that are still open first: what they wait for is the engine's."""
        if self._task is not None:
            self._task.cancel()
        await self.served.mcp.close()
        await self._engine.stop("MEAH was stopped")


def _daphne() -> tuple[Any, Any]:
    """The reactor over asyncio's loop, and the class of the server."""
    from daphne.server import Server
    from twisted.internet import reactor

    from meah_site.http import daphne_requests

    daphne_requests.install()
    logging.getLogger("daphne").setLevel(logging.WARNING)
    return reactor, Server


def _console() -> Served:
    from meah_site.asgi import application, mcp

    return Served(application, mcp)
