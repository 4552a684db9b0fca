"""Agreeing with a server on a protocol era, remembered ones first, and listing its tools to the end."""

from __future__ import annotations

from typing import Any, Final

import anyio
import mcp_types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from core.errors import JsonObject, MeahError

from .wire import Wire

LEGACY: Final = "legacy"
# A server that never answers what it does not know costs this once; then its era is remembered.
PROBE_S: Final = 5.0
MAX_PAGES: Final = 100
MAX_TOOLS: Final = 5_000


class NotModernError(Exception):
    """Positive or negative, the server gave no sign of 2026-07-28: it wants the older handshake."""


async def negotiate(session: ClientSession, *, era: str, same_pipe: bool) -> None:
    """Open the session in the era that is remembered, or find it out.

    Raises NotModernError where the older handshake has to be tried on a new transport, and MCPError or MeahError where
    the server can not be used.
    """
    if era == LEGACY:
        await _legacy_or_modern(session)
        return
    try:
        await _modern(session)
    except NotModernError:
        if not same_pipe:
            raise
        await _legacy_or_modern(session)


async def _modern(session: ClientSession) -> None:
    raw: Any = None
    with anyio.move_on_after(PROBE_S):
        try:
            raw = await session.send_discover(LATEST_MODERN_VERSION)
        except MCPError as error:
            if error.code == mcp_types.CONNECTION_CLOSED:
                raise
            _refuse_if_only_newer(error)
            raise NotModernError from error
    try:
        found = mcp_types.DiscoverResult.model_validate(raw)
    except ValidationError as error:
        raise NotModernError from error
    if not any(version in MODERN_PROTOCOL_VERSIONS for version in found.supported_versions):
        raise NotModernError
    session.adopt(found)


async def _legacy_or_modern(session: ClientSession) -> None:
    try:
        await session.initialize()
    except MCPError as error:
        # It has locked itself to the newer era: a probe that we gave up on reached it after all.
        if error.code != mcp_types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await _modern(session)


def _refuse_if_only_newer(error: MCPError) -> None:
    if error.code != mcp_types.UNSUPPORTED_PROTOCOL_VERSION or not isinstance(error.error.data, dict):
        return
    supported = error.error.data.get("supported")
    if isinstance(supported, list) and supported and not any(str(version) < "2026" for version in supported):
        shown = ", ".join(str(version)[:20] for version in supported[:5])
        raise MeahError("E_CONFIG", f"The server speaks only MCP {shown}, which this MEAH does not know.")


def era_of(session: ClientSession) -> str:
    """What to remember for the next time: `legacy`, or the modern version."""
    version = session.protocol_version or ""
    return version if version in MODERN_PROTOCOL_VERSIONS else LEGACY


def refuse_self(session: ClientSession) -> None:
    info = session.server_info
    if info is not None and info.name == "meah":
        raise MeahError(
            "E_CONFIG",
            "The server is a MEAH: MEAH does not have itself as a downstream server.",
            hint="Configure the servers behind it here instead.",
            reason="loop",
        )


async def list_tools(wire: Wire, session: ClientSession) -> list[Any]:
    """Every tool of every page, as the server sent it: one odd tool hides no other."""
    tools: list[Any] = []
    seen: set[str] = set()
    params: JsonObject = {}
    for _ in range(MAX_PAGES):
        page = await wire.request(session, "tools/list", params)
        listed = page.get("tools")
        tools += listed if isinstance(listed, list) else []
        cursor = page.get("nextCursor")
        if len(tools) > MAX_TOOLS:
            break
        if not isinstance(cursor, str) or not cursor or cursor in seen:
            return tools
        seen.add(cursor)
        params = {"cursor": cursor}
    raise MeahError("E_UNAVAILABLE", f"The server's list of tools does not end: {len(tools)} and more.")
