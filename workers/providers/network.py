"""Failures of the wire itself, told in words."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from core.errors import JsonObject
from workers.providers.answer import truncated
from workers.providers.assembly import BadEventError
from workers.providers.base import ProviderFailure
from workers.providers.failures import Asked
from workers.providers.inflate import BodyTooLargeError, BrokenEncodingError
from workers.providers.reception import MAX_BODY_BYTES, Reception

_STALLED_S: Final = 5.0
_STALLED_SHARE: Final = 0.25
_CLOSED: Final = re.compile("disconnected|closed connection|incomplete")


class HandshakeGuard:
    """A trace hook that closes a connection whose TLS handshake was given up; the library leaves it open."""

    def __init__(self) -> None:
        self._stream: Any = None

    async def __call__(self, name: str, info: Mapping[str, Any]) -> None:
        if name == "connection.connect_tcp.complete":
            self._stream = info["return_value"]
        elif name == "connection.start_tls.failed" and self._stream is not None:
            await self._stream.aclose()


def connection_failure(error: Exception, asked: Asked) -> ProviderFailure:
    """No connection, or one that broke before anything of the answer came."""
    where = _where(asked.url)
    causes = list(_causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return ProviderFailure(
            "E_NETWORK",
            f"The certificate of {where} could not be verified.",
            hint="Check the host name in the base URL; for a private CA set SSL_CERT_FILE.",
            retryable=False,
            reason="tls_certificate",
        )
    message, hint, reason = _told(error, causes, where)
    return ProviderFailure("E_NETWORK", message, hint=hint, reason=reason)


def _told(error: Exception, causes: list[BaseException], where: str) -> tuple[str, str, str]:
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return f"The host of {where} could not be found.", "Check the base URL's host name and DNS.", "dns"
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return (
            f"No TLS connection to {where} could be made.",
            "Check whether the port speaks TLS: the base URL may need http:// or another port.",
            "tls",
        )
    if isinstance(error, httpx.ConnectTimeout):
        return f"{where} did not accept a connection in time.", "", "connect_timeout"
    if isinstance(error, httpx.ConnectError):
        return f"{where} refused the connection or is not reachable.", "", "connect"
    if isinstance(error, httpx.RemoteProtocolError) and not _CLOSED.search(str(error)):
        return (
            f"{where} broke the HTTP protocol: {error}",
            "Check that the port of the base URL speaks HTTP (https:// or http://).",
            "protocol",
        )
    return f"The connection to {where} was cut before an answer came.", "", "cut"


def reading_failure(error: Exception, reception: Reception, asked: Asked) -> ProviderFailure:
    """A body that could not be read to its end."""
    if isinstance(error, BodyTooLargeError):
        failure = _unreadable(
            f"The answer is larger than {MAX_BODY_BYTES // 2**20} MiB.", "too_large", "Ask for a shorter answer."
        )
    elif isinstance(error, BrokenEncodingError):
        failure = _unreadable("The answer's compression is damaged.", "bad_encoding", "")
    elif isinstance(error, BadEventError):
        failure = _unreadable(f"An event of the stream could not be read: {error}.", "bad_event", "")
    elif reception.output_started:
        return truncated(reception.partial_answer(), "the connection broke")
    else:
        return connection_failure(error, asked)
    failure.partial_text = reception.partial_text
    return failure


def _unreadable(message: str, reason: str, hint: str) -> ProviderFailure:
    return ProviderFailure("E_MALFORMED_RESPONSE", message, hint=hint, reason=reason)


def timeout(reception: Reception | None, *, budget_ms: int) -> ProviderFailure:
    """The budget is spent; says how far the answer had come."""
    seconds = f"{budget_ms / 1000:g} s"
    if reception is None:
        return _late(f"The provider did not begin to answer within {seconds}.", "no_response")
    if reception.last_output_at is None:
        return _late(f"The provider kept the line open for {seconds} and said nothing.", "no_output")
    idle_s = time.monotonic() - reception.last_output_at
    text = reception.partial_answer().text
    details: JsonObject = {"partialChars": len(text), "sinceLastOutputMs": round(idle_s * 1000)}
    if idle_s > max(_STALLED_S, budget_ms / 1000 * _STALLED_SHARE):
        return _late(f"The answer stalled: nothing new for {idle_s:.0f} s.", "stalled", text=text, details=details)
    return _late(
        f"The answer was still being written after {seconds}.",
        "still_writing",
        hint="Raise timeoutMs, lower maxOutputTokens, or give a smaller task.",
        text=text,
        details=details,
    )


def stalled(reception: Reception, *, idle_s: float) -> ProviderFailure:
    """The answer began and then nothing of it came for too long, with budget left."""
    text = reception.partial_answer().text
    return _late(
        f"The answer stalled: nothing new for {idle_s:g} s.",
        "stalled",
        hint="Run the task again, or route to another model.",
        text=text,
        details={"partialChars": len(text), "sinceLastOutputMs": round(idle_s * 1000)},
    )


def _late(
    message: str, reason: str, *, hint: str = "", text: str = "", details: JsonObject | None = None
) -> ProviderFailure:
    return ProviderFailure(
        "E_TIMEOUT",
        message,
        hint=hint or "Raise timeoutMs, or route to a faster or steadier model.",
        reason=reason,
        details=details,
        partial_text=text,
    )


def redirect_failure(status: int, target: str, asked: Asked) -> ProviderFailure:
    """A redirect that is not followed."""
    to = f" to {target}" if target else ""
    return ProviderFailure(
        "E_CONFIG",
        f"{_where(asked.url)} answered HTTP {status}: the base URL redirects{to}.",
        hint="Update the provider's base URL to the address it redirects to, if you trust that one; "
        "requests and keys are never sent after a redirect to another place.",
        reason="redirect",
        details={"httpStatus": status},
    )


def _where(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen = 0
    while error is not None and seen < 10:
        yield error
        error = error.__cause__ or error.__context__
        seen += 1
