"""A connection to a downstream server: one owner task enters and leaves it; anybody may call it.

Started at the first call, kept, restarted after a crash with a growing pause, ended as a whole tree. A `tools/call` is
never sent twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import anyio
import mcp_types
from mcp.client.session import ClientSession
from mcp.client.subscriptions import listen
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError

from core.errors import JsonObject, MeahError
from core.logs import event
from core.redaction import redact

from .children import Child, spawn
from .failures import NotSentError
from .groups import Ledger
from .handshake import LEGACY, NotModernError, era_of, list_tools, negotiate, refuse_self
from .launch import Launch
from .lines import Tail
from .remote import Tap, http_streams
from .reports import Hooks, Report
from .wire import CLIENT, Wire

log = logging.getLogger("meah.gateway")

START_TIMEOUT_S: Final = 60.0
MAX_BACKOFF_S: Final = 30.0
RELIST_PAUSE_S: Final = 0.25
RELIST_MAX_PAUSE_S: Final = 300.0

T = TypeVar("T")


@dataclass
class Open:
    """A connection that can be called."""

    wire: Wire
    session: ClientSession
    listing: list[Any]
    pins: Mapping[str, str] = field(default_factory=dict)

    async def call(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        meta: JsonObject | None = None,
        on_progress: ProgressFnT | None = None,
        schema: JsonObject | None = None,
    ) -> JsonObject:
        """The result as the server sent it. Raises NotSentError, AmbiguousError, DownstreamError; never tries twice."""
        params: JsonObject = {"name": tool, "arguments": arguments}
        if meta:
            params["_meta"] = meta
        return await self.wire.request(
            self.session, "tools/call", params, on_progress=on_progress, header_schema=schema
        )


class Connection:
    """One server's connection over time. All of it belongs to one event loop."""

    def __init__(self, launch: Launch, ledger: Ledger, hooks: Hooks, *, start_timeout_s: float | None = None) -> None:
        self.launch = launch
        self.tail = Tail()
        self.starts = 0
        # Held by the call of a server that takes one at a time.
        self.turn = asyncio.Lock()
        self._told_up_to = 0
        self._ledger = ledger
        self._hooks = hooks
        self._start_timeout_s = start_timeout_s or START_TIMEOUT_S
        self._open: Open | None = None
        self._opening: asyncio.Future[Open] | None = None
        self._owner: asyncio.Task[None] | None = None
        self._closed = False
        self._stop = asyncio.Event()
        self._dead = asyncio.Event()
        self._relist = asyncio.Event()
        self._failures = 0
        self._not_before = 0.0
        self._last_error = ""

    async def open(self) -> Open:
        """The open connection, started if need be; all who wait share one start. Raises NotSentError."""
        if self._open is not None and self.is_open:
            return self._open
        if self._opening is None or self._opening.done():
            self._refuse_while_backing_off()
            self._begin()
        assert self._opening is not None
        return await asyncio.shield(self._opening)

    @property
    def is_open(self) -> bool:
        """Whether it can be called at once."""
        return self._open is not None and not self._dead.is_set() and not self._stop.is_set()

    @property
    def is_running(self) -> bool:
        """Whether there may be a process or a session of it."""
        return self._owner is not None and not self._owner.done()

    async def end(self) -> None:
        """End what is open, within a few seconds; calls in flight end with it. The next call starts it again."""
        self._stop.set()
        if self._owner is not None:
            await asyncio.wait([self._owner])

    async def close(self) -> None:
        """End it for good."""
        self._closed = True
        await self.end()

    async def list_again(self) -> Mapping[str, str]:
        """Ask the server what it offers now, and compare that with the pins; it is started where it was not open."""
        was_open = self.is_open
        opened = await self.open()
        if was_open:
            opened.listing = await list_tools(opened.wire, opened.session)
            return await self.check_again()
        return opened.pins

    async def check_again(self) -> Mapping[str, str]:
        """Compare the last listing with the pins once more: a person may have accepted one since."""
        if self._open is None:
            return {}
        self._open.pins = await self._hooks.listed(self.launch, self._open.listing)
        return self._open.pins

    def tell_news(self) -> None:
        """Report again where the running server has written to stderr since the last report."""
        if self._open is not None and self.tail.received != self._told_up_to:
            self._report("active")

    def _begin(self) -> None:
        if not self._closed:
            self._stop = asyncio.Event()
        self._opening = asyncio.get_running_loop().create_future()
        # Nobody may be left waiting for it when it fails.
        self._opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        # A task of its own: what a caller's cancellation must not take with it.
        self._owner = asyncio.create_task(
            self._own(self._opening, self._owner), name=f"downstream-{self.launch.server}"
        )

    def _refuse_while_backing_off(self) -> None:
        left = self._not_before - time.monotonic()
        if left > 0:
            raise NotSentError(
                "E_UNAVAILABLE",
                f"The server {self.launch.server} failed and is not started again for {left:.1f} s: {self._last_error}",
                hint="Try again later, or look at its page in the admin.",
                reason="backing_off",
            )

    # -- the owner task

    async def _own(self, opening: asyncio.Future[Open], before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._dead, self._relist = asyncio.Event(), asyncio.Event()
        self._report("connecting")
        ended: BaseException | None
        try:
            ended = await self._run(self.launch.era, opening)
            if isinstance(ended, NotModernError) and not self._stop.is_set():
                self._dead = asyncio.Event()
                ended = await self._run(LEGACY, opening)
        except Exception as error:
            ended = error
        finally:
            self._open = None
        self._conclude(ended, opening)

    async def _run(self, era: str, opening: asyncio.Future[Open]) -> Exception | None:
        """One transport from its beginning to its end. What goes wrong in it is returned: task groups would wrap it."""
        async with self._transport() as (wire, session):
            try:
                self._open = await self._until_over(self._shake_hands(wire, session, era))
                self.launch = replace(self.launch, era=era_of(session))
            except (MCPError, MeahError, NotModernError, RuntimeError, ValueError, OSError) as error:
                return self._at_start(error, wire, era)
            self.starts += 1
            self._failures = 0
            opening.set_result(self._open)
            self._report("active")
            await self._serve(wire, session)
            return None

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[tuple[Wire, ClientSession]]:
        source = self._stdio() if self.launch.transport == "stdio" else self._remote()
        async with source as wire:
            session = ClientSession(
                dispatcher=wire.dispatcher,
                client_info=CLIENT,
                message_handler=self._on_message,
            )
            async with session:
                yield wire, session

    @asynccontextmanager
    async def _stdio(self) -> AsyncIterator[Wire]:
        dead = self._dead
        child = await spawn(self.launch, self._ledger, self.tail, dead.set)
        wire = Wire(self.launch.server, child.incoming, child.outgoing, lambda number: None)
        child.gone = lambda: _over(wire, child, dead)
        try:
            yield wire
        finally:
            with anyio.CancelScope(shield=True):
                await child.end(self._ledger)

    @asynccontextmanager
    async def _remote(self) -> AsyncIterator[Wire]:
        async with http_streams(self.launch) as (read, write, watch):
            wire = Wire(self.launch.server, Tap(read, self._dead.set), write, watch.fault_of)
            wire.remote, wire.lost, wire.last_fault = True, self._dead.set, lambda: watch.last
            yield wire

    async def _shake_hands(self, wire: Wire, session: ClientSession, era: str) -> Open:
        if self.launch.transport == "sse":
            era = LEGACY
        await negotiate(session, era=era, same_pipe=self.launch.transport == "stdio")
        refuse_self(session)
        listing = await list_tools(wire, session)
        return Open(wire, session, listing, await self._hooks.listed(self.launch, listing))

    def _at_start(self, error: Exception, wire: Wire, era: str) -> Exception:
        closed = isinstance(error, MCPError) and error.code == mcp_types.CONNECTION_CLOSED
        if closed and not era and self.launch.transport == "stdio":
            # Some servers end when they meet what they do not know: once more, with the older handshake.
            return NotModernError()
        if isinstance(error, MCPError) and (fault := wire.last_fault()) is not None:
            return fault
        if closed:
            return MeahError("E_UNAVAILABLE", f"it ended while it started. {wire.end_note}")
        return error

    async def _until_over(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result, unless the start takes too long, or the server ends, or nobody wants it any more."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([task, stopped], timeout=self._start_timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if stopped.done():
                raise MeahError("E_UNAVAILABLE", "it was stopped while it started.")
            raise MeahError("E_TIMEOUT", f"it did not answer within {self._start_timeout_s:g} s.")
        finally:
            stopped.cancel()
            await cancelled(task)

    async def _serve(self, wire: Wire, session: ClientSession) -> None:
        """Until the server ends or is no longer wanted; meanwhile list its tools again when it says they changed."""
        ends = [asyncio.ensure_future(event.wait()) for event in (self._stop, self._dead)]
        helpers = [asyncio.ensure_future(self._list_again(wire, session))]
        if _tells_of_changes(session):
            helpers.append(asyncio.ensure_future(self._subscribe(session)))
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            wire.over = True
            for task in (*ends, *helpers):
                await cancelled(task)

    async def _list_again(self, wire: Wire, session: ClientSession) -> None:
        """One listing at a time; a server that cries change at every listing is asked less and less often."""
        pause = RELIST_PAUSE_S
        while True:
            await self._relist.wait()
            await asyncio.sleep(pause)
            self._relist.clear()
            try:
                listing = await list_tools(wire, session)
            except MeahError as error:
                event(log, "relist_failed", level="warn", server=self.launch.server, code=error.code)
                continue
            changed = self._open is not None and listing != self._open.listing
            pause = RELIST_PAUSE_S if changed else min(RELIST_MAX_PAUSE_S, pause * 2)
            if changed and self._open is not None:
                self._open.listing = listing
                self._open.pins = {}
                self._open.pins = await self._hooks.listed(self.launch, listing)

    async def _subscribe(self, session: ClientSession) -> None:
        """Changes of the newer era come over a subscription."""
        try:
            async with listen(session, tools_list_changed=True) as changes:
                async for _ in changes:
                    self._relist.set()
        except Exception as error:
            event(log, "subscription_ended", server=self.launch.server, why=type(error).__name__)

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._relist.set()

    # -- the end of it

    def _conclude(self, ended: BaseException | None, opening: asyncio.Future[Open]) -> None:
        if ended is None:
            wanted = self._stop.is_set()
            self._report("idle", "" if wanted else "it ended by itself")
            return
        why = _why(ended)
        self._failures += 1
        self._not_before = time.monotonic() + min(MAX_BACKOFF_S, 0.25 * 2**self._failures)
        self._last_error = why
        event(log, "server_failed", level="warn", server=self.launch.server, why=why)
        if not opening.done():
            opening.set_exception(self._not_started(ended, why))
        self._report("failed", why)

    def _not_started(self, ended: BaseException, why: str) -> NotSentError:
        code = ended.code if isinstance(ended, MeahError) else "E_UNAVAILABLE"
        hint = ended.hint if isinstance(ended, MeahError) else "Its page in the admin has the end of its stderr."
        reason = ended.reason if isinstance(ended, MeahError) else ""
        return NotSentError(
            code, f"The server {self.launch.server} could not be started: {why}", hint=hint, reason=reason or "start"
        )

    def _report(self, state: str, error: str = "") -> None:
        self._told_up_to = self.tail.received
        self._hooks.reported(Report(self.launch.server, state, error, redact(self.tail.text()), self.launch.era))


def _over(wire: Wire, child: Child, dead: asyncio.Event) -> None:
    wire.over = True
    status = child.exit_status
    if status is not None:
        wire.end_note = f"It exited with status {status}." if status >= 0 else f"It was killed by signal {-status}."
    dead.set()


def _tells_of_changes(session: ClientSession) -> bool:
    tools = session.server_capabilities.tools if session.server_capabilities else None
    return era_of(session) != LEGACY and tools is not None and bool(tools.list_changed)


def _why(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return _why(error.exceptions[0])
    if isinstance(error, MCPError):
        return redact(f"it answered with an error: {error.message} ({error.code})")
    if isinstance(error, MeahError):
        return redact(error.message)
    return redact(f"{type(error).__name__}: {error}")


async def cancelled(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
