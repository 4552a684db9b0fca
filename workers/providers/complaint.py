"""What a server complains about, read out of every shape that error bodies have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from workers.providers.base import clean
from workers.providers.delays import duration_s, longest, reset_s, text_delay_s
from workers.providers.html import page_of
from workers.providers.jsontext import NotJsonError, loads

_MAX_DEPTH: Final = 8
_MAX_WORDS: Final = 4_000
_MAX_LOCATIONS: Final = 3
_MAX_NODES: Final = 200
_MAX_NAME_CHARS: Final = 100
_MESSAGE_KEYS: Final = ("message", "error", "detail", "msg", "error_description", "status_msg", "errors", "title")
_INNER_KEYS: Final = (
    "error",
    "metadata",
    "raw",
    "details",
    "detail",
    "errors",
    "innererror",
    "base_resp",
    "violations",
)
_CODE_KEYS: Final = (
    "code",
    "type",
    "status",
    "reason",
    "error_code",
    "error_type",
    "status_code",
    "quotaId",
    "limit_source",
)
_STATUS_KEYS: Final = ("code", "status", "status_code", "error_code", "statusCode")
_STATUS: Final = re.compile(r"[45]\d\d\Z")
_STATUS_OF_TYPE: Final = {
    "invalid_request_error": 400, "bad_request": 400, "invalid_argument": 400,
    "authentication_error": 401, "unauthenticated": 401, "unauthorized": 401,
    "permission_error": 403, "permission_denied": 403,
    "not_found_error": 404, "not_found": 404, "notfounderror": 404,
    "rate_limit_error": 429, "rate_limit_exceeded": 429, "resource_exhausted": 429,
    "server_error": 500, "internal_server_error": 500, "internal": 500,
    "unavailable": 503, "service_unavailable": 503, "deadline_exceeded": 504, "overloaded_error": 529,
}  # fmt: skip


@dataclass
class Complaint:
    """An error as the server tells it; every text is foreign, and the message unredacted.

    `status` is the one embedded in the body (400 to 599); `codes` are all codes, types and reasons, lower case.
    """

    message: str = ""
    codes: tuple[str, ...] = ()
    status: int | None = None
    param: str = ""
    upstream: str = ""
    delay_s: float | None = None
    numbers: dict[str, int] = field(default_factory=dict)
    request_id: str = ""
    snippet: str = ""
    is_html: bool = False
    is_empty: bool = False

    @property
    def words(self) -> str:
        """Everything it says in one lower-case text, for patterns."""
        return " ".join([self.message[:_MAX_WORDS], *self.codes, self.param]).lower()

    @property
    def code(self) -> str:
        return self.codes[0] if self.codes else ""


def is_error(value: Any) -> bool:
    """Whether a document is an error, whatever else it has. Asked before anybody looks for an answer."""
    if isinstance(value, list):
        return bool(value) and is_error(value[0])
    if not isinstance(value, dict):
        return False
    if any(value.get(name) for name in ("error", "detail", "errors")):
        return True
    if value.get("object") == "error" or value.get("type") == "error" or value.get("success") is False:
        return True
    if _base_status(value):
        return True
    has_words = isinstance(value.get("message"), str) or isinstance(value.get("msg"), str)
    return not value.get("choices") and has_words and value.get("code") not in (None, 0, "", "0", 200, "200")


def complaint_of(value: Any, *, text: str = "") -> Complaint:
    """The complaint in a body: a parsed value, or `text` where that is no JSON."""
    if value is None:
        return _of_text(text)
    if isinstance(value, str):
        return Complaint(message=_message(value), delay_s=text_delay_s(value[:_MAX_WORDS]))
    nodes = list(islice(_nodes(value), _MAX_NODES))
    message = _message(value)
    upstream = _first(nodes, "provider_name")
    return Complaint(
        message=f"[{upstream}] {message}" if upstream else message,
        codes=tuple(dict.fromkeys(_codes(nodes))),
        status=_status(nodes),
        param=_first(nodes, "param"),
        upstream=upstream,
        delay_s=longest(text_delay_s(message[:_MAX_WORDS]), *_delays(nodes)),
        numbers=_numbers(nodes),
        request_id=_first(nodes, "request_id"),
    )


def _of_text(text: str) -> Complaint:
    if not text:
        return Complaint(is_empty=True)
    if page := page_of(text):
        return Complaint(message=page.summary, snippet=page.snippet, is_html=True)
    return Complaint(message=text, delay_s=text_delay_s(text[:_MAX_WORDS]))


def _message(value: Any, depth: int = 0) -> str:
    """The first non-empty sentence, from the most telling place on."""
    if depth > _MAX_DEPTH:
        return ""
    if isinstance(value, str):
        return _message_in_text(value, depth)
    if isinstance(value, list):
        return _message_in_list(value, depth)
    if not isinstance(value, dict):
        return ""
    inner = value.get("error")
    if isinstance(inner, dict | list) and (found := _message(inner, depth + 1)):
        return found
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and (found := _message(metadata.get("raw"), depth + 1)):
        return found
    if found := _message(_base_resp(value), depth + 1):
        return found
    return next((found for key in _MESSAGE_KEYS if (found := _message(value.get(key), depth + 1))), "")


def _message_in_text(text: str, depth: int) -> str:
    text = text.strip()
    if text.startswith(("{", "[")):
        try:
            return _message(loads(text), depth + 1) or text
        except NotJsonError:
            return text
    page = page_of(text)
    return page.summary if page else text


def _message_in_list(values: list[Any], depth: int) -> str:
    """The first message; of validation errors, where and what, for the first few."""
    found = [_located(value) for value in values[:_MAX_LOCATIONS] if isinstance(value, dict) and "loc" in value]
    if found:
        return "; ".join(found)
    return next((text for value in values[:_MAX_LOCATIONS] if (text := _message(value, depth + 1))), "")


def _located(value: dict[str, Any]) -> str:
    loc = value["loc"]
    where = ".".join(str(part) for part in loc[:_MAX_DEPTH]) if isinstance(loc, list) else str(loc)
    return f"{where}: {value.get('msg') or value.get('message') or value.get('type')}"


def _nodes(value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """All objects of an error, outermost first, also those packed into strings."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            value = loads(value)
        except NotJsonError:
            return
    if isinstance(value, list):
        for item in value[:_MAX_DEPTH]:
            yield from _nodes(item, depth + 1)
    if isinstance(value, dict):
        yield value
        for key in _INNER_KEYS:
            yield from _nodes(value.get(key), depth + 1)


def _codes(nodes: list[dict[str, Any]]) -> Iterator[str]:
    for node in nodes:
        if "status_msg" in node:
            yield f"base_resp/{node.get('status_code')}"
            continue
        for key in _CODE_KEYS:
            value = node.get(key)
            if isinstance(value, str | int) and not isinstance(value, bool) and value not in ("", 0):
                yield clean(str(value), limit=_MAX_NAME_CHARS).lower()


def _status(nodes: list[dict[str, Any]]) -> int | None:
    for node in nodes:
        for key in _STATUS_KEYS:
            value = node.get(key)
            if isinstance(value, str | int) and _STATUS.match(str(value)):
                return int(value)
    types = (_type_name(node.get(key)) for node in nodes for key in ("status", "type", "code"))
    return next((_STATUS_OF_TYPE[name] for name in types if name in _STATUS_OF_TYPE), None)


def _type_name(value: Any) -> str:
    return value[:100].lower().replace("-", "_").replace(" ", "_") if isinstance(value, str) else ""


def _first(nodes: list[dict[str, Any]], key: str) -> str:
    found = (node[key] for node in nodes if isinstance(node.get(key), str) and node[key])
    return clean(next(found, ""), limit=_MAX_NAME_CHARS)


def _delays(nodes: list[dict[str, Any]]) -> Iterator[float | None]:
    for node in nodes:
        if isinstance(delay := node.get("retryDelay"), str):
            yield duration_s(delay)
        headers = node.get("headers")
        if isinstance(headers, dict) and isinstance(reset := headers.get("X-RateLimit-Reset"), str):
            yield reset_s(reset, datetime.now(UTC))


def _numbers(nodes: list[dict[str, Any]]) -> dict[str, int]:
    names = {"n_prompt_tokens": "promptTokens", "n_ctx": "contextTokens"}
    return {wire: node[name] for node in nodes for name, wire in names.items() if isinstance(node.get(name), int)}


def _base_resp(value: dict[str, Any]) -> Any:
    return value["base_resp"] if _base_status(value) else None


def _base_status(value: dict[str, Any]) -> int:
    """MiniMax puts its own status beside the choices; 0 is none."""
    inner = value.get("base_resp")
    status = inner.get("status_code") if isinstance(inner, dict) else 0
    return status if isinstance(status, int) else 0
