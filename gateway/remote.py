"""Remote servers over Streamable HTTP (or the older SSE transport): where requests may go, and how they failed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from core.addresses import NotPublicError, public_addresses
from core.errors import MeahError
from core.frames import request_id

from .children import FRAME_BYTES
from .environment import http_headers
from .failures import AmbiguousError, NotSentError
from .launch import Launch

CONNECT_S: Final = 15.0
# The status of an answer that no server gave: the connection failed.
_NO_ANSWER: Final = 599


class TooLargeError(httpx2.StreamError):
    """The SDK reports it for the one request whose answer it was."""

    def __init__(self) -> None:
        Exception.__init__(self, "the answer is larger than 16 MiB")


class _Capped(httpx2.AsyncByteStream):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > FRAME_BYTES:
                raise TooLargeError
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class Watch(httpx2.AsyncBaseTransport):
    """Carries the requests of one server, and remembers how each of them failed below JSON-RPC."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)
        self._faults: dict[int | str, MeahError] = {}
        self.last: MeahError | None = None

    def fault_of(self, number: int) -> MeahError | None:
        return self._faults.pop(number, None)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        number = request_id(request.content) if request.method == "POST" else None
        try:
            response = await self._inner.handle_async_request(await self._addressed(request))
        except MeahError as error:
            return self._failed(number, error)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol) as error:
            return self._failed(number, self._not_reached(error))
        except httpx2.TransportError as error:
            return self._failed(number, self._cut(error))
        return self._looked_at(number, response)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _addressed(self, request: httpx2.Request) -> httpx2.Request:
        """To a public address that was looked up just now, unless the operator said that the server is private."""
        if self._launch.private:
            return request
        url = request.url
        if url.scheme != "https":
            raise self._refused("its URL is not https")
        try:
            addresses = await public_addresses(url.host, url.port or 443)
        except NotPublicError as error:
            raise self._refused(str(error)) from error
        except OSError as error:
            raise self._not_reached(error) from error
        request.extensions = {**request.extensions, "sni_hostname": url.host}
        request.url = url.copy_with(host=addresses[0])
        return request

    def _looked_at(self, number: int | str | None, response: httpx2.Response) -> httpx2.Response:
        kind = response.headers.get("content-type", "")
        if response.headers.get("content-encoding", "identity") != "identity":
            return self._failed(number, self._odd("compressed its answer although it was asked not to"))
        if response.status_code >= 400:
            self._remember(number, self._status(response.status_code))
        if not kind.startswith("text/event-stream"):
            response.stream = _Capped(response.stream)
        return response

    def _failed(self, number: int | str | None, error: MeahError) -> httpx2.Response:
        self._remember(number, error)
        return httpx2.Response(_NO_ANSWER)

    def _remember(self, number: int | str | None, error: MeahError) -> None:
        self.last = error
        if number is not None:
            self._faults[number] = error

    def _status(self, status: int) -> MeahError:
        server = self._launch.server
        details = {"httpStatus": status}
        if status in (401, 403):
            return MeahError(
                "E_AUTH",
                f"The server {server} refused MEAH's credentials (HTTP {status}).",
                hint="Check the variables that its headers refer to.",
                details=details,
            )
        if status == 404:
            return NotSentError(
                "E_UNAVAILABLE",
                f"The server {server} knows nothing at its URL, or not this session any more.",
                details=details,
            )
        if status < 500:
            return MeahError(
                "E_PROVIDER",
                f"The server {server} refused the request (HTTP {status}).",
                retryable=False,
                details=details,
            )
        return AmbiguousError(
            "E_NETWORK", f"The server {server} failed (HTTP {status}).", retryable=False, details=details
        )

    def _not_reached(self, error: Exception) -> MeahError:
        return NotSentError(
            "E_NETWORK", f"The server {self._launch.server} can not be reached: {_words(error)}.", reason="connect"
        )

    def _cut(self, error: Exception) -> MeahError:
        return AmbiguousError(
            "E_NETWORK",
            f"The connection to {self._launch.server} broke before its answer came: {_words(error)}.",
            hint="A write may have happened: read back what it should have changed before repeating it.",
            retryable=False,
            reason="connection_closed",
        )

    def _odd(self, what: str) -> MeahError:
        return AmbiguousError("E_NETWORK", f"The server {self._launch.server} {what}.", retryable=False)

    def _refused(self, why: str) -> MeahError:
        return NotSentError(
            "E_CONFIG",
            f"The server {self._launch.server} is not marked private, but {why}.",
            hint="Correct the URL; mark the server private if it really stands on this machine or in your own network.",
            reason="private_address",
        )


class Tap:
    """A read stream that tells when the transport has ended."""

    def __init__(self, inner: Any, ended: Callable[[], None]) -> None:
        self._inner = inner
        self._ended = ended

    async def receive(self) -> Any:
        try:
            return await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._ended()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


@asynccontextmanager
async def http_streams(launch: Launch) -> AsyncIterator[tuple[Any, Any, Watch]]:
    """The streams of a remote server. Raises MeahError E_CONFIG when a header does not resolve."""
    watch = Watch(launch)
    headers = {"accept-encoding": "identity", **http_headers(launch)}
    client = httpx2.AsyncClient(
        transport=watch, headers=headers, timeout=httpx2.Timeout(CONNECT_S, read=None), trust_env=False
    )
    if launch.transport == "sse":
        async with sse_client(launch.url, httpx_client_factory=_ready(client)) as (read, write):
            yield read, write, watch
        return
    async with (
        client,
        streamable_http_client(launch.url, http_client=client, max_sse_event_size=FRAME_BYTES) as (
            read,
            write,
        ),
    ):
        yield read, write, watch


def _ready(client: httpx2.AsyncClient) -> Callable[..., httpx2.AsyncClient]:
    return lambda **_options: client


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
