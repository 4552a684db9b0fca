"""What an HTTP request tells the tools besides its message: who sends it, over which session, and if it went away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from meah_site.mcp_server import Identity

KEY: Final = "meah.side"


@dataclass
class HttpSide:
    """One request. `closed`: the client has closed the stream of its answer, which in the newer era takes it back."""

    identity: Identity
    session: str = ""
    closed: bool = False


def side_of(context: Any) -> HttpSide | None:
    """None over stdio. A request over HTTP always has one: without it nobody is known, and this raises KeyError."""
    request = getattr(context, "request", None)
    if request is None:
        return None
    side: HttpSide = request.scope[KEY]
    return side
