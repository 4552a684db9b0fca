"""daphne keeps a request's body, whatever its size, before the application sees anything of it: here it ends sooner."""

from __future__ import annotations

import json
from typing import Any, Final

from daphne import http_protocol
from daphne import server as daphne_server

from core.frames import MAX_FRAME_BYTES

# So much of a body that is too large is still read and thrown away, so that its sender reads the answer.
MAX_READ_BYTES: Final = 16 * MAX_FRAME_BYTES
TOO_LARGE: Final = {
    "ok": False,
    "error": {
        "code": "E_INVALID_REQUEST",
        "message": f"The request's body is larger than {MAX_FRAME_BYTES} bytes.",
    },
}


class CappedRequest(http_protocol.WebRequest):  # type: ignore[misc]
    """Keeps as much of a body as an application may ask for, and answers 413 to more."""

    received = 0

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 - Twisted's name
        self.received += len(data)
        if self.received <= MAX_FRAME_BYTES:
            super().handleContentChunk(data)
        elif self.received > MAX_READ_BYTES:
            self.channel.loseConnection()

    def process(self) -> Any:
        if self.received <= MAX_FRAME_BYTES:
            return super().process()
        body = json.dumps(TOO_LARGE).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        self.handle_reply({"type": "http.response.start", "status": 413, "headers": headers})
        self.handle_reply({"type": "http.response.body", "body": body})
        return None


class CappedFactory(http_protocol.HTTPFactory):  # type: ignore[misc]
    """daphne's factory, with requests of ours."""

    def buildProtocol(self, addr: Any) -> Any:  # noqa: N802 - Twisted's name
        protocol = super().buildProtocol(addr)
        protocol.requestFactory = CappedRequest
        return protocol


def install() -> None:
    """For every server that daphne starts from now on: it has no other seam."""
    daphne_server.HTTPFactory = CappedFactory
