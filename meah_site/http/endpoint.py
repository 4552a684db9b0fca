"""`/mcp`: who it is, then what it says, strictly decoded, and only then the SDK."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from core.errors import JsonObject
from core.logs import event
from meah_site.http.bodies import ClientGoneError, RefusedBodyError, message_of, replayed, whole_body
from meah_site.http.credentials import Admitted, Doorkeeper, NotAdmittedError
from meah_site.http.replies import Header, header, reply
from meah_site.http.sessions import RoleSessions
from meah_site.http.side import KEY, HttpSide

log = logging.getLogger("meah.http")

SESSION_HEADER: Final = b"mcp-session-id"
METHODS: Final = "GET, POST, DELETE, OPTIONS"
SENT: Final = (
    "authorization, content-type, accept, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, last-event-id"
)
END_WITHIN_S: Final = 3.0


class McpEndpoint:
    """An ASGI application for HTTP, from `open` to `close`; before and after that it answers 503."""

    def __init__(self, doorkeeper: Doorkeeper, origins: Sequence[str] = ()) -> None:
        """`origins`: pages that browsers may show the answers to."""
        self.doorkeeper = doorkeeper
        self._origins = frozenset(origins)
        self._roles: dict[str, RoleSessions] = {}
        self._open: set[asyncio.Task[Any]] = set()

    async def open(self, engine: Any) -> None:
        """`engine` runs what is accepted here."""
        roles = {role: RoleSessions(role, engine) for role in ("agent", "approver")}
        for sessions in roles.values():
            await sessions.start()
        self._roles = roles

    async def close(self) -> None:
        """End sessions and whatever is still being answered, within seconds."""
        roles, self._roles = self._roles, {}
        await asyncio.gather(*(sessions.stop() for sessions in roles.values()))
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open, timeout=END_WITHIN_S)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._answer(scope, receive, self._shared(scope, send))
        except ClientGoneError:
            pass
        finally:
            self._open.discard(task)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "OPTIONS" and header(scope, b"origin"):
            await reply(send, 204, None, _preflight())
            return
        if not self._roles:
            await reply(send, 503, {"error": "MEAH's MCP server does not run here."}, [(b"retry-after", b"1")])
            return
        try:
            admitted = await self.doorkeeper.admit(header(scope, b"authorization"))
        except NotAdmittedError as refused:
            await self._turn_away(send, refused)
            return
        try:
            await self._serve(admitted, scope, receive, send)
        except RefusedBodyError as refused:
            await reply(send, refused.status, refused.frame)

    async def _serve(self, admitted: Admitted, scope: Any, receive: Any, send: Any) -> None:
        sessions = self._roles[admitted.identity.role]
        side = HttpSide(admitted.identity, header(scope, SESSION_HEADER))
        if scope["method"] == "POST":
            body = await whole_body(receive)
            sessions.on_frame(message_of(body), side.session)
            receive = replayed(body, receive)

        async def watched() -> Any:
            message = await receive()
            side.closed = side.closed or message["type"] == "http.disconnect"
            return message

        known = {} if admitted.user is None else {"user": admitted.user}
        await sessions.serve({**scope, **known, KEY: side}, watched, send)

    async def _turn_away(self, send: Any, refused: NotAdmittedError) -> None:
        event(log, "request_not_admitted", level="warn", status=refused.status, why=refused.description)
        body: JsonObject = {"error": refused.error or "unauthorized", "error_description": refused.description}
        await reply(send, refused.status, body, [(b"www-authenticate", self._challenge(refused).encode())])

    def _challenge(self, refused: NotAdmittedError) -> str:
        """RFC 6750; and where OAuth is configured, RFC 9728's pointer to where a token can be had."""
        parts = {"error": refused.error, "error_description": refused.description} if refused.error else {}
        if (oauth := self.doorkeeper.oauth) is not None:
            parts |= {"resource_metadata": oauth.metadata_url(), "scope": oauth.agent_scope}
        return "Bearer " + ", ".join(f'{key}="{_quoted(value)}"' for key, value in (parts or {"realm": "MEAH"}).items())

    def _shared(self, scope: Any, send: Any) -> Any:
        """For a browser's page of an origin that was allowed, also its answers."""
        origin = header(scope, b"origin")
        if origin not in self._origins:
            return send
        shown = [
            (b"access-control-allow-origin", origin.encode()),
            (b"access-control-expose-headers", b"mcp-session-id, www-authenticate"),
            (b"vary", b"origin"),
        ]

        async def sharing(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *shown]}
            await send(message)

        return sharing


def _preflight() -> list[Header]:
    return [
        (b"access-control-allow-methods", METHODS.encode()),
        (b"access-control-allow-headers", SENT.encode()),
        (b"access-control-max-age", b"600"),
    ]


def _quoted(value: str) -> str:
    return "".join(char for char in value if " " <= char <= "~" and char not in '"\\')
