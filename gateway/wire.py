"""What every request to a downstream server carries, in both protocol eras, and which ones were really sent."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import anyio
import mcp_types
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from core.errors import JsonObject, MeahError

from .children import Unreadable
from .failures import AmbiguousError, DownstreamError, NotSentError

CLIENT: Final = mcp_types.Implementation(name="meah", version="1")
# Ids of our own, apart from those that the SDK's session counts up from 1 for the handshake.
_FIRST_ID: Final = 1_000_000
# Errors that the SDK's HTTP transport makes up for answers that it could not use.
_NO_WORD_OF_ITS_OWN: Final = frozenset({"Server returned an error response", "Not Found", "Session terminated"})
_MADE_UP: Final = (
    "Failed to parse ",
    "SSE stream ",
    "Unexpected content type",
    "server answered a request with 202",
)


class Marked:
    """A write stream that remembers which requests were handed to the transport."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.sent: set[int | str] = set()

    async def send(self, item: SessionMessage) -> None:
        number = item.message.id if isinstance(item.message, mcp_types.JSONRPCRequest) else None
        if number is not None:
            self.sent.add(number)
        try:
            await self._inner.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            if number is not None:
                self.sent.discard(number)
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)


class Wire:
    """Requests over an open session, with results as the server sent them.

    The SDK's own `call_tool` would check results against its models, and refuse what those do not know.
    """

    def __init__(self, server: str, read: Any, write: Any, fault_of: Callable[[int], MeahError | None]) -> None:
        self.marked = Marked(write)
        self.dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(read, self.marked)
        self.over = False
        self.remote = False
        self.lost: Callable[[], None] = lambda: None
        self.end_note = ""
        self.last_fault: Callable[[], MeahError | None] = lambda: None
        self._server = server
        self._fault_of = fault_of
        self._ids = itertools.count(_FIRST_ID)

    async def request(
        self,
        session: ClientSession,
        method: str,
        params: JsonObject,
        *,
        on_progress: ProgressFnT | None = None,
        header_schema: JsonObject | None = None,
    ) -> JsonObject:
        """One request and its result. Cancelling it tells the server so.

        Raises NotSentError, AmbiguousError, DownstreamError.
        """
        number = next(self._ids)
        sent, headers = stamped(session.protocol_version or "", method, params, header_schema)
        options: CallOptions = {"request_id": number, "headers": headers}
        if on_progress is not None:
            options["on_progress"] = on_progress
        try:
            return await self.dispatcher.send_raw_request(method, sent, options)
        except MCPError as error:
            raise self._told(error, number) from error
        finally:
            self.marked.sent.discard(number)

    def _told(self, error: MCPError, number: int) -> MeahError:
        fault = self._fault_of(number)
        if fault is not None and error.message in _NO_WORD_OF_ITS_OWN:
            if error.message == "Session terminated":
                self.lost()
            return fault
        if fault is not None and fault.details.get("httpStatus") in (400, 404) and "session" in error.message.lower():
            self.lost()
            return NotSentError("E_UNAVAILABLE", f"The server {self._server} has ended the session.", reason="session")
        if isinstance(error.error.data, Unreadable):
            return _unreadable(self._server, error.error.data.reason)
        if error.code == mcp_types.CONNECTION_CLOSED and (
            self.over or self.dispatcher._closed or number not in self.marked.sent
        ):
            # What was never handed over can not have been answered, whether or not the end was noticed yet.
            return self._closed(number)
        if self.remote and error.message.startswith(_MADE_UP):
            return _unreadable(self._server, "unusable")
        return DownstreamError(self._server, error.code, error.message, error.error.data)

    def _closed(self, number: int) -> MeahError:
        note = f" {self.end_note}" if self.end_note else ""
        if number not in self.marked.sent:
            return NotSentError(
                "E_UNAVAILABLE", f"The connection to {self._server} has just ended.{note}", reason="closed"
            )
        return AmbiguousError(
            "E_NETWORK",
            f"The connection to {self._server} ended before its answer came.{note}",
            hint="A write may have happened: read back what it should have changed before repeating it.",
            retryable=False,
            reason="connection_closed",
        )


def stamped(
    version: str, method: str, params: JsonObject, header_schema: JsonObject | None = None
) -> tuple[JsonObject, dict[str, str]]:
    """The params and HTTP headers of a request in the era that was negotiated."""
    headers = {MCP_PROTOCOL_VERSION_HEADER: version}
    if version not in MODERN_PROTOCOL_VERSIONS:
        return params, headers
    meta = {
        **params.get("_meta", {}),
        mcp_types.PROTOCOL_VERSION_META_KEY: version,
        mcp_types.CLIENT_INFO_META_KEY: CLIENT.model_dump(by_alias=True, exclude_none=True),
        mcp_types.CLIENT_CAPABILITIES_META_KEY: {},
    }
    headers[MCP_METHOD_HEADER] = method
    if isinstance(name := params.get("name"), str):
        headers[MCP_NAME_HEADER] = encode_header_value(name)
    if header_schema is not None and find_invalid_x_mcp_header(header_schema) is None:
        headers |= mcp_param_headers(x_mcp_header_map(header_schema), params.get("arguments") or {})
    return {**params, "_meta": meta}, headers


def _unreadable(server: str, reason: str) -> MeahError:
    why = {
        "too_large": "is larger than 16 MiB",
        "not_json": "is no valid JSON-RPC",
        "unusable": "broke off, or is none of MCP",
    }.get(reason, reason)
    return AmbiguousError(
        "E_NETWORK",
        f"The server {server} answered, but its answer {why}.",
        hint="A write has probably happened: read back what it should have changed. Ask for less at once.",
        retryable=False,
        reason=f"answer_{reason}",
    )
