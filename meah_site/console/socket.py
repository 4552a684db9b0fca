"""The console's websocket. It tells, and takes no commands: whatever changes something is a form of a page."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Final
from urllib.parse import parse_qs

from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone

from audit.dbthread import in_db
from audit.services import record, user_principal
from core.errors import JsonObject
from core.logs import event

from .hub import Listener, hub

log = logging.getLogger("meah.console")

# Closing codes of our own: RFC 6455 section 7.4.2 leaves 4000 to 4999 to applications.
SPOKE: Final = 4008
TRY_AGAIN: Final = 4013
NOT_ALLOWED: Final = 4403
VIEW_WORKERS: Final = "workers.view_worker"
VIEW_REQUESTS: Final = "approvals.view_approval"
VIEW_SERVERS: Final = "gateway.view_server"
# A person who lost the right to look is shown out within this time.
ASK_AGAIN_EVERY_S: Final = 30.0


class ConsoleSocket(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """Open to staff who may see workers; requests and servers are told to those who may see them."""

    async def connect(self) -> None:
        self._told: asyncio.Task[None] | None = None
        self._rights = await self._ask()
        if VIEW_WORKERS not in self._rights:
            # Accepted first: a refused handshake tells a browser nothing, and it would try again for ever.
            await self.accept()
            await self.close(NOT_ALLOWED)
            return
        await self.accept()
        self._told = asyncio.create_task(self._tell(_after(self.scope["query_string"])), name="console-socket")

    async def disconnect(self, code: int) -> None:
        if self._told is not None:
            self._told.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **_: Any) -> None:
        """There is nothing to say here. Who says something all the same is recorded, and shown out."""
        if VIEW_WORKERS not in self._rights:
            return
        user = self.scope["user"]
        await in_db(_record_refusal, user)
        event(log, "console_socket_spoken_to", level="warn", user=user.pk)
        await self.close(SPOKE)

    async def _ask(self) -> frozenset[str]:
        user, session = self.scope.get("user"), self.scope.get("session")
        return await in_db(_rights, getattr(user, "pk", None), getattr(session, "session_key", None))

    async def _tell(self, after: int) -> None:
        try:
            async with hub.listening(after) as listener:
                await self._pass_on(listener)
        except Exception as error:
            event(log, "console_socket_failed", level="warn", exc_info=error)
            await self.close(TRY_AGAIN)

    async def _pass_on(self, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        ask_at = loop.time() + ASK_AGAIN_EVERY_S
        while True:
            message = await self._next(listener, ask_at)
            if loop.time() >= ask_at:
                self._rights = await self._ask()
                ask_at = loop.time() + ASK_AGAIN_EVERY_S
                if VIEW_WORKERS not in self._rights:
                    await self.close(NOT_ALLOWED)
                    return
            if message is None and listener.is_late:
                await self.close(TRY_AGAIN)
                return
            if message is not None and (seen := self._seen(message)):
                await self.send(json.dumps(seen, ensure_ascii=False, separators=(",", ":")))

    async def _next(self, listener: Listener, until: float) -> JsonObject | None:
        try:
            async with asyncio.timeout_at(until):
                return await listener.messages.get()
        except TimeoutError:
            return None

    def _seen(self, message: JsonObject) -> JsonObject | None:
        """The message as far as this person may see things."""
        if message["type"] == "servers" and VIEW_SERVERS not in self._rights:
            return None
        hidden = {
            name
            for name, right in (("held", VIEW_REQUESTS), ("servers", VIEW_SERVERS))
            if name in message and right not in self._rights
        }
        return {key: value for key, value in message.items() if key not in hidden} if hidden else message


def _rights(user_id: int | None, session_key: str | None) -> frozenset[str]:
    """What an active member of the staff may see here; nothing for anybody else, nor after a log-out."""
    if not Session.objects.filter(session_key=session_key or "", expire_date__gt=timezone.now()).exists():
        return frozenset()
    user = get_user_model().objects.filter(pk=user_id or 0, is_active=True, is_staff=True).first()
    if user is None:
        return frozenset()
    return frozenset(right for right in (VIEW_WORKERS, VIEW_REQUESTS, VIEW_SERVERS) if user.has_perm(right))


def _record_refusal(user: Any) -> None:
    with transaction.atomic():
        record("console.message_refused", principal=user_principal(user))


def _after(query: bytes) -> int:
    """The last entry that the page knows; -1 asks to begin anew."""
    given = parse_qs(query.decode("ascii", "replace")).get("after", [""])[0]
    return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else -1
