"""The client for everything that speaks OpenAI's chat completions."""

from __future__ import annotations

import asyncio
import functools
import json
import ssl
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import httpx

from core.errors import MeahError
from core.secrets import name_secrets, read_secret
from workers.providers import catalogue, network
from workers.providers.adapt import clamp_lesson, described, lessons, once_per_subject, request_body
from workers.providers.address import Target, targets_of
from workers.providers.answer import Answer, completion_of
from workers.providers.assembly import BadEventError
from workers.providers.base import (
    Adaptation,
    Completion,
    CompletionRequest,
    Endpoint,
    ModelList,
    OnText,
    ProviderFailure,
    RetryPolicy,
)
from workers.providers.complaint import complaint_of, is_error
from workers.providers.failures import AnsweredFailure, Asked, failure_of
from workers.providers.inflate import BodyTooLargeError, BrokenEncodingError
from workers.providers.jsontext import NotJsonError, parse
from workers.providers.reception import Reception
from workers.providers.redirect import followed
from workers.providers.tries import Tries
from workers.providers.url import chat_url, models_url

_T = TypeVar("_T")

CONNECT_S: Final = 15.0
STALL_S: Final = 120.0
_AFTER_FINISH_S: Final = 5.0
_AFTER_DONE_S: Final = 0.2
_ERROR_BODY_S: Final = 5.0
_ERROR_BODY_SHARE: Final = 0.5
_KEEPALIVE_CONNECTIONS: Final = 20
_MAX_PAGES: Final = 20
_ADAPTED_REASONS: Final = ("", "max_tokens_range")
_NOT_LISTED: Final = (404, 405, 501)
_CHARS_PER_TOKEN: Final = 4
_UNREADABLE: Final = (httpx.HTTPError, httpx.StreamError, BodyTooLargeError, BrokenEncodingError, BadEventError)


@dataclass
class _Exchange:
    """One request to one address; `reception` is there once the head of the response has come."""

    method: str
    asked: Asked
    deadline: float
    content: bytes = b""
    on_text: OnText | None = None
    reception: Reception | None = None
    headers: dict[str, str] = field(default_factory=dict)


class OpenAICompatible:
    """Implements `Provider` over HTTP. One instance serves one event loop; `aclose` it there.

    `tls` replaces the usual trust; `stall_s` is how long a begun answer may pause.
    """

    def __init__(self, endpoint: Endpoint, *, tls: ssl.SSLContext | None = None, stall_s: float = STALL_S) -> None:
        name_secrets([endpoint.api_key_env])
        self._endpoint = endpoint
        self._tls = tls
        self._stall_s = stall_s
        self._client: httpx.AsyncClient | None = None

    async def complete(
        self,
        request: CompletionRequest,
        *,
        deadline: float,
        retry: RetryPolicy,
        adaptations: Sequence[Adaptation] = (),
        on_text: OnText | None = None,
    ) -> Completion:
        asked = self._asked(request, chat_url(self._endpoint.base_url))
        tries = Tries(retry, deadline=deadline)
        learned: list[Adaptation] = []
        subjects: set[str] = set()
        while True:
            body = request_body(request, [*adaptations, *learned])
            try:
                completion = await self._attempt(body, asked=asked, tries=tries, on_text=on_text)
            except ProviderFailure as failure:
                failure.adaptations_learned = list(learned)
                fresh = self._lessons(failure, body, subjects) if tries.may_adapt() else []
                if fresh:
                    tries.adapt()
                    learned += fresh
                    continue
                await tries.wait(failure)
            else:
                return _with_story(completion, learned, tries)

    async def list_models(self, *, deadline: float) -> ModelList:
        url: str | None = models_url(self._endpoint.base_url)
        pages: list[ModelList] = []
        while url and len(pages) < _MAX_PAGES:
            value = await self._page(url, deadline=deadline)
            if value is None:
                return ModelList(listed=False)
            page = catalogue.models_of(value)
            if page is None:
                raise _no_list(url)
            known = {name for earlier in pages for name in earlier.ids}
            pages.append(page)
            url = catalogue.next_page(url, value) if set(page.ids) - known else None
        return catalogue.joined(pages)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _asked(self, request: CompletionRequest, url: str) -> Asked:
        return Asked(self._endpoint.name, request.model, request.max_output_tokens, url)

    def _lessons(self, failure: ProviderFailure, body: dict[str, Any], subjects: set[str]) -> list[Adaptation]:
        """What the server taught about its parameters; nothing where parameters are none of the trouble."""
        if self._endpoint.strict_params or not isinstance(failure, AnsweredFailure):
            return []
        if failure.code != "E_INVALID_REQUEST" or failure.reason not in _ADAPTED_REASONS or failure.retry_limit == 0:
            return []
        found = [*lessons(failure.complaint, body), *clamp_lesson(failure.complaint, body)]
        return once_per_subject(found, subjects)

    async def _attempt(self, body: dict[str, Any], *, asked: Asked, tries: Tries, on_text: OnText | None) -> Completion:
        tries.begin()
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        exchange = _Exchange("POST", asked, tries.deadline, content, on_text)
        answer = await self._in_time(self._answer(exchange), exchange, tries)
        return completion_of(
            answer,
            asked=asked,
            headers=exchange.headers,
            accept_reasoning=self._endpoint.accept_reasoning,
            prompt_tokens_estimate=_estimate(body),
        )

    async def _in_time(self, work: Awaitable[_T], exchange: _Exchange, tries: Tries) -> _T:
        """Await it within the one deadline. Raises ProviderFailure E_TIMEOUT."""
        try:
            async with asyncio.timeout(max(0.0, tries.left_s)):
                return await work
        except TimeoutError:
            raise tries.told(network.timeout(exchange.reception, budget_ms=tries.budget_ms)) from None

    async def _answer(self, exchange: _Exchange) -> Answer:
        response = await self._open(exchange)
        try:
            reception = self._receiving(response, exchange)
            if response.status_code >= 400:
                raise await self._refusal(response, exchange)
            await self._receive(response, reception, exchange.asked)
            return _read(reception, exchange.asked)
        finally:
            await response.aclose()

    async def _page(self, url: str, *, deadline: float) -> Any:
        """One document of a model list; None where the server has no such list."""
        tries = Tries(RetryPolicy(0), deadline=deadline)
        tries.begin()
        exchange = _Exchange("GET", Asked(self._endpoint.name, "", 0, url), deadline)
        return await self._in_time(self._document(exchange), exchange, tries)

    async def _document(self, exchange: _Exchange) -> Any:
        response = await self._open(exchange)
        try:
            reception = self._receiving(response, exchange)
            if response.status_code in _NOT_LISTED:
                return None
            if response.status_code >= 400:
                raise await self._refusal(response, exchange)
            await self._receive(response, reception, exchange.asked)
            try:
                value = parse(reception.text()).wrapped
            except NotJsonError:
                _read(reception, exchange.asked)
                raise _no_list(exchange.asked.url) from None
        finally:
            await response.aclose()
        if is_error(value):
            raise failure_of(complaint_of(value), status=200, headers=exchange.headers, asked=exchange.asked)
        return value

    async def _open(self, exchange: _Exchange) -> httpx.Response:
        """The response, its body still to be read; one redirect within the same https host is followed."""
        url = exchange.asked.url
        response = await self._send(exchange, url)
        if not 300 <= response.status_code < 400:
            return response
        await response.aclose()
        again = followed(response.status_code, response.headers.get("location", ""), url, exchange.asked)
        response = await self._send(exchange, again)
        if 300 <= response.status_code < 400:
            await response.aclose()
            raise network.redirect_failure(response.status_code, "", exchange.asked)
        return response

    async def _send(self, exchange: _Exchange, url: str) -> httpx.Response:
        headers = self._headers()
        try:
            targets = await targets_of(url, self._endpoint)
            for target in targets[:-1]:
                try:
                    return await self._send_to(target, exchange, headers)
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    continue
            return await self._send_to(targets[-1], exchange, headers)
        except (httpx.InvalidURL, UnicodeError):
            raise MeahError("E_CONFIG", "The base URL is not valid.", reason="base_url") from None
        except (httpx.HTTPError, OSError) as error:
            raise network.connection_failure(error, exchange.asked) from None

    async def _send_to(self, target: Target, exchange: _Exchange, headers: dict[str, str]) -> httpx.Response:
        client = self._client_here()
        request = client.build_request(
            exchange.method,
            target.url,
            headers={**headers, "Host": target.host_header},
            content=exchange.content or None,
            extensions={
                "sni_hostname": target.server_name,
                "timeout": client.timeout.as_dict(),
                "trace": network.HandshakeGuard(),
            },
        )
        return await client.send(request, stream=True)

    def _receiving(self, response: httpx.Response, exchange: _Exchange) -> Reception:
        exchange.headers = dict(response.headers)
        exchange.reception = Reception(
            content_type=response.headers.get("content-type", ""),
            content_encoding=response.headers.get("content-encoding", ""),
            on_text=exchange.on_text,
        )
        return exchange.reception

    async def _receive(self, response: httpx.Response, reception: Reception, asked: Asked) -> None:
        """Read the body to its end, or to where nothing more is worth waiting for."""
        try:
            async with asyncio.timeout(None) as patience:
                async for raw in response.aiter_raw():
                    reception.feed(raw)
                    patience.reschedule(self._until(reception, patience.when()))
        except _UNREADABLE as error:
            if not reception.finished:
                raise network.reading_failure(error, reception, asked) from None
        except TimeoutError:
            if not reception.finished:
                raise network.stalled(reception, idle_s=self._stall_s) from None

    def _until(self, reception: Reception, before: float | None) -> float | None:
        """When patience ends, in the loop's time: soon after the end mark, later after the last word.

        Once the answer has ended, nothing that follows puts it off (`before`).
        """
        now = asyncio.get_running_loop().time()
        if reception.finished:
            end = now + (_AFTER_DONE_S if reception.done else _AFTER_FINISH_S)
            return end if before is None else min(end, before)
        if reception.last_output_at is None:
            return None
        return now + self._stall_s - (time.monotonic() - reception.last_output_at)

    async def _refusal(self, response: httpx.Response, exchange: _Exchange) -> ProviderFailure:
        """The failure that an error status means; its body is read for a while, whatever state it is in."""
        reception = exchange.reception
        assert reception is not None
        patience_s = min(_ERROR_BODY_S, (exchange.deadline - time.monotonic()) * _ERROR_BODY_SHARE)
        is_cut = False
        try:
            async with asyncio.timeout(max(0.0, patience_s)):
                async for raw in response.aiter_raw():
                    reception.feed(raw)
        except (TimeoutError, *_UNREADABLE):
            is_cut = True
        complaint = reception.complaint(is_cut=is_cut)
        return failure_of(complaint, status=response.status_code, headers=exchange.headers, asked=exchange.asked)

    def _headers(self) -> dict[str, str]:
        headers = {
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": "meah",
        }
        if name := self._endpoint.api_key_env:
            headers["Authorization"] = f"Bearer {_key(name, self._endpoint.name)}"
        return headers

    def _client_here(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                verify=self._tls or _usual_trust(),
                trust_env=False,
                follow_redirects=False,
                timeout=httpx.Timeout(None, connect=CONNECT_S),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=_KEEPALIVE_CONNECTIONS),
            )
        return self._client


@functools.cache
def _usual_trust() -> ssl.SSLContext:
    """certifi's authorities, or those of SSL_CERT_FILE; made once, since that takes a while."""
    return httpx.create_ssl_context()


def _key(name: str, provider: str) -> str:
    value = read_secret(name)
    if value is None:
        raise MeahError(
            "E_CONFIG",
            f"The variable {name}, which should hold the key of {provider}, is not set in this process.",
            hint=f"Set {name} where MEAH starts: export it in the shell, or write it into the .env file beside "
            f'manage.py, or for Claude Desktop into the "env" block of the MEAH server\'s entry in '
            f"claude_desktop_config.json; then restart.",
            reason="key_unset",
            details={"variable": name},
        )
    if not value.isascii() or not value.isprintable() or " " in value:
        raise MeahError(
            "E_CONFIG",
            f"The value of {name} holds a space, a line break or a sign that no key has.",
            hint=f"Copy the key again and set {name} to nothing but the key.",
            reason="key_invalid",
            details={"variable": name},
        )
    return value


def _read(reception: Reception, asked: Asked) -> Answer:
    try:
        return reception.answer()
    except _UNREADABLE as error:
        raise network.reading_failure(error, reception, asked) from None


def _with_story(completion: Completion, learned: list[Adaptation], tries: Tries) -> Completion:
    return replace(
        completion,
        adaptations_learned=learned,
        notes=[*completion.notes, *map(described, learned)],
        attempts=tries.attempts,
        waited_ms=tries.waited_ms,
    )


def _no_list(url: str) -> ProviderFailure:
    return ProviderFailure(
        "E_MALFORMED_RESPONSE",
        "The answer is no list of models.",
        hint="Check that the base URL is an OpenAI-compatible API, usually ending in /v1.",
        reason="no_model_list",
        details={"url": url},
    )


def _estimate(body: dict[str, Any]) -> int:
    return sum(len(message["content"]) for message in body["messages"]) // _CHARS_PER_TOKEN
