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
    from twisted.internet import defer

    reactor, server = _daphne()
    # Only now: daphne makes asyncio's loop the reactor's, and the engine lives in that loop.
    from meah_site.engine import Engine

    served = (made or _console)()
    engine = engine or Engine(Process.Kind.CONSOLE)
    failures: list[Exception] = []
    port = listener.getsockname()[1]
    # Twisted closes the number that it is given: kept in the object too, it would soon name another file.
    fileno = listener.detach()

    async def start() -> None:
        try:
            await engine.start()
            await served.mcp.open(engine)
            await in_db(on_ready)
            if made is None:
                event(log, "console_ready", port=port)
            if await _outdated(engine, wanted):
                event(log, "schema_is_newer", level="error", hint="Another version migrated the database: start again.")
                engine.pool.close("The database was migrated by a newer version of MEAH; this process ends.")
                await engine.pool.idle()
        except Exception as error:
            failures.append(error)
        reactor.stop()

    async def end() -> None:
        await served.mcp.close()
        await engine.stop("MEAH was stopped")

    def stop() -> Any:
        for task in tasks:
            task.cancel()
        return defer.Deferred.fromFuture(asyncio.ensure_future(end()))

    def begin() -> None:
        tasks.append(asyncio.ensure_future(start()))

    tasks: list[asyncio.Future[None]] = []
    reactor.callWhenRunning(begin)
    reactor.addSystemEventTrigger("before", "shutdown", stop)
    server(
        application=served.application,
        endpoints=[f"fd:fileno={fileno}"],
        server_name="MEAH",
        verbosity=0,
        request_buffer_size=65_536,
    ).run()
    if failures:
        raise failures[0]


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
