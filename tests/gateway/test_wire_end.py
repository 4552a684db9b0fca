"""A request that meets a pipe which has just closed was not sent, even before anybody has noticed the end."""

from __future__ import annotations

from typing import Any

import mcp_types
from mcp.shared.exceptions import MCPError

from gateway.failures import AmbiguousError, DownstreamError, NotSentError
from gateway.wire import Wire


class _Stream:
    async def send(self, item: Any) -> None: ...

    async def aclose(self) -> None: ...


def told(*, was_sent: bool, over: bool) -> Exception:
    wire = Wire("x", _Stream(), _Stream(), lambda number: None)
    wire.over = over
    if was_sent:
        wire.marked.sent.add(7)
    return wire._told(MCPError(mcp_types.CONNECTION_CLOSED, "Connection closed"), 7)


def test_how_an_end_is_told_depends_on_whether_it_was_sent() -> None:
    assert isinstance(told(was_sent=False, over=False), NotSentError)
    assert isinstance(told(was_sent=False, over=True), NotSentError)
    assert isinstance(told(was_sent=True, over=True), AmbiguousError)
    # A server's own error may have the same number.
    assert isinstance(told(was_sent=True, over=False), DownstreamError)
