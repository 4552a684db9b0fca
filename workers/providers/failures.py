"""From a status and a complaint to one of our errors: the tables, and the order in which they are asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from workers.providers import hints
from workers.providers.adapt import token_limit
from workers.providers.base import ProviderFailure
from workers.providers.complaint import Complaint
from workers.providers.delays import header_delay_s, longest
from workers.providers.url import shown


@dataclass(frozen=True)
class Asked:
    """What a failure must know of the request to give good advice."""

    provider: str
    model: str
    max_output_tokens: int
    url: str


@dataclass(frozen=True)
class Verdict:
    """`retryable` None leaves it to the code; `retry_limit` None to the policy; `cool_down` multiplies its base."""

    code: str
    reason: str = ""
    retryable: bool | None = None
    retry_limit: int | None = None
    cool_down: int = 1
    min_wait_s: float | None = None


class AnsweredFailure(ProviderFailure):
    """A failure that the server itself told: `complaint` is what it said."""

    def __init__(self, code: str, message: str, *, complaint: Complaint, **rest: Any) -> None:
        super().__init__(code, message, **rest)
        self.complaint = complaint


INVALID: Final = Verdict("E_INVALID_REQUEST")
AUTH: Final = Verdict("E_AUTH")
CONTEXT: Final = Verdict("E_INVALID_REQUEST", "context_length")
CONTENT_FILTER: Final = Verdict("E_INVALID_REQUEST", "content_filter")
BILLING: Final = Verdict("E_RATE_LIMIT", "billing", retryable=False)
QUOTA: Final = Verdict("E_RATE_LIMIT", "quota_window", retryable=False)
RATE: Final = Verdict("E_RATE_LIMIT")
BUSY: Final = Verdict("E_RATE_LIMIT", "overloaded", cool_down=10)
SERVER: Final = Verdict("E_PROVIDER")
SERVER_ONCE: Final = Verdict("E_PROVIDER", retry_limit=1)
PLAN: Final = Verdict("E_AUTH", "plan")
IN_FLIGHT: Final = Verdict("E_RATE_LIMIT", "in_flight_budget", retryable=True)
NO_ROUTE: Final = Verdict("E_PROVIDER", "no_provider", retryable=False)
UNKNOWN_MODEL: Final = Verdict("E_INVALID_REQUEST", "unknown_model")
WRONG_PATH: Final = Verdict("E_INVALID_REQUEST", "wrong_path")

_STATUS: Final[dict[int, Verdict]] = {
    401: AUTH,
    402: BILLING,
    403: AUTH,
    404: replace(INVALID, reason="not_found"),
    405: WRONG_PATH,
    408: Verdict("E_TIMEOUT", "upstream_timeout"),
    409: SERVER_ONCE,
    413: replace(INVALID, reason="too_large"),
    424: SERVER_ONCE,
    425: replace(SERVER_ONCE, reason="too_early", min_wait_s=1.0),
    429: RATE,
    434: AUTH,
    451: CONTENT_FILTER,
    498: Verdict("E_RATE_LIMIT", "capacity"),
    499: replace(SERVER_ONCE, reason="upstream_cancelled"),
    529: Verdict("E_RATE_LIMIT", "overloaded"),
}


def _numbered(verdict: Verdict, *codes: int) -> dict[str, Verdict]:
    return {str(code): verdict for code in codes}


_BUSINESS: Final[dict[str, Verdict]] = {
    **_numbered(AUTH, *range(1000, 1005), *range(1110, 1122), 1220),
    **_numbered(BILLING, 1113),
    **_numbered(INVALID, *range(1210, 1216), 1222),
    **_numbered(UNKNOWN_MODEL, 1211),
    **_numbered(SERVER, 1234),
    **_numbered(CONTEXT, 1261),
    **_numbered(CONTENT_FILTER, 1301),
    **_numbered(replace(RATE, reason="concurrency", cool_down=60), 1302, 1303),
    **_numbered(BUSY, 1305),
    **_numbered(QUOTA, 1304, 1308, 1310, *range(1316, 1322)),
    **_numbered(PLAN, 1309, 1311, *range(1313, 1316)),
    "base_resp/1002": RATE,
    "base_resp/1004": AUTH,
    "base_resp/1008": BILLING,
    "base_resp/1026": CONTENT_FILTER,
    "base_resp/1027": CONTENT_FILTER,
    "base_resp/1039": RATE,
    "base_resp/2013": INVALID,
    "base_resp/2049": AUTH,
    "insufficient_quota": BILLING,
    "exceeded_current_quota_error": BILLING,
    "billing_not_active": BILLING,
    "engine_overloaded_error": BUSY,
    "overloaded_error": Verdict("E_RATE_LIMIT", "overloaded"),
    "capacity_exceeded": Verdict("E_RATE_LIMIT", "capacity"),
    "openrouter_in_flight_budget": IN_FLIGHT,
    "invalid_api_key": AUTH,
    "api_key_invalid": AUTH,
    "invalid_authentication_error": AUTH,
    "incorrect_api_key_error": AUTH,
    "content_filter": CONTENT_FILTER,
    "content_policy_violation": CONTENT_FILTER,
    "responsibleaipolicyviolation": CONTENT_FILTER,
    "data_inspection_failed": CONTENT_FILTER,
    "context_length_exceeded": CONTEXT,
    "exceed_context_size_error": CONTEXT,
    "model_context_window_exceeded": CONTEXT,
    "model_not_found": UNKNOWN_MODEL,
}


@dataclass(frozen=True)
class _Rule:
    pattern: re.Pattern[str]
    verdict: Verdict
    only: frozenset[int] = frozenset()
    never: frozenset[int] = frozenset()

    def fits(self, status: int, words: str) -> bool:
        if status in self.never or (self.only and status not in self.only):
            return False
        return self.pattern.search(words) is not None


def _rule(pattern: str, verdict: Verdict, *, only: set[int] | None = None, never: set[int] | None = None) -> _Rule:
    return _Rule(re.compile(pattern), verdict, frozenset(only or ()), frozenset(never or ()))


_LIMITED: Final = {0, 402, 403, 413, 429, 503}
_RULES: Final[tuple[_Rule, ...]] = (
    _rule(
        r"(invalid|incorrect|wrong|expired|missing|no) api[ _-]?key"
        r"|api[ _-]?key (is )?(not valid|invalid|expired|missing)"
        r"|no auth credentials|invalid authentication",
        AUTH,
        never={429},
    ),
    _rule(
        r"content management policy|content[ _]polic|content_filter|flagged (as|by|for)|moderation|safety system",
        CONTENT_FILTER,
    ),
    _rule(
        r"insufficient (balance|credit|quota|funds)|credit balance is too low|payment required|billing (hard )?limit"
        r"|can only afford|out of credits|arrears",
        BILLING,
        never={401},
    ),
    _rule(
        r"will reset at|usage limit|per[ -]?day|perday|daily (limit|quota)|weekly|monthly|limit: 0\b(?![.,]\d)",
        QUOTA,
        only=_LIMITED,
    ),
    _rule(
        r"context_length_exceeded|maximum context|context (size|length|window)|prompt (is )?too long"
        r"|input (is )?too long"
        r"|too many (input |prompt )?tokens|max_new_tokens|reduce the length"
        r"|exceeds? the (available |maximum )?context",
        CONTEXT,
        never={429},
    ),
    _rule(r"tokens per minute|request too large|prompt tokens|requested \d+", CONTEXT, only={413}),
    _rule(r"loading model|model (is )?(currently )?loading", Verdict("E_PROVIDER", "loading", cool_down=10)),
    _rule(r"overloaded|engine is busy|at capacity", BUSY, only={0, 429}),
    _rule(r"no (available |allowed )?providers?\b|no endpoints? (found|available)", NO_ROUTE, only={500, 502, 503}),
    _rule(r"unexpected endpoint|unknown endpoint|no route|cannot post", WRONG_PATH, never={429, 500, 502, 503}),
    _rule(
        r"model\b.{0,120}(not found|does not exist|doesn't exist|not exist)|(unknown|no such|invalid) model\b"
        r"|not a valid model|pulling it first|no endpoints found",
        UNKNOWN_MODEL,
        never={401, 429, 502, 503},
    ),
)
_RESET_AT: Final = re.compile(r"reset(?:s)? at (\d{4}-\d\d-\d\d[ t]\d\d:\d\d(?::\d\d)?)", re.IGNORECASE)
_AFFORDABLE: Final = re.compile(r"can only afford (\d{1,9})", re.IGNORECASE)


def failure_of(
    complaint: Complaint,
    *,
    status: int,
    headers: Mapping[str, str],
    asked: Asked,
) -> AnsweredFailure:
    """The error for an answer that is one. `status` is HTTP's; an embedded one counts where that is a success."""
    effective = status if status >= 400 else complaint.status or 0
    verdict = _verdict(effective, complaint)
    delay_s = longest(header_delay_s(headers), complaint.delay_s, verdict.min_wait_s)
    verdict = _after_headers(verdict, status=effective, headers=headers, delay_s=delay_s)
    return AnsweredFailure(
        verdict.code,
        _message(complaint, status=status, effective=effective, asked=asked),
        hint=hints.for_failure(verdict.code, verdict.reason, status=effective, complaint=complaint, asked=asked),
        retryable=verdict.retryable,
        reason=verdict.reason,
        details=_details(complaint, status=status, headers=headers, asked=asked),
        retry_after_s=delay_s,
        retry_limit=verdict.retry_limit,
        cool_down=verdict.cool_down,
        complaint=complaint,
    )


def _verdict(status: int, complaint: Complaint) -> Verdict:
    if complaint.is_html or complaint.is_empty:
        return _by_status(status, html=complaint.is_html)
    if status == 401:
        return AUTH
    known = next((_BUSINESS[code] for code in complaint.codes if code in _BUSINESS), None)
    if known:
        return known
    words = complaint.words
    fitting = next((rule.verdict for rule in _RULES if rule.fits(status, words)), None)
    if fitting:
        return fitting
    if status in (0, 400, 422, 500) and token_limit(complaint):
        return replace(INVALID, reason="max_tokens_range")
    return _by_status(status)


def _by_status(status: int, *, html: bool = False) -> Verdict:
    if status in _STATUS:
        return _STATUS[status]
    if 400 <= status < 500:
        return INVALID
    if status < 400 and html:
        return Verdict("E_MALFORMED_RESPONSE", "html")
    return SERVER


def _after_headers(verdict: Verdict, *, status: int, headers: Mapping[str, str], delay_s: float | None) -> Verdict:
    """What `x-should-retry` and a delay on a 402 change."""
    if status == 402 and verdict is BILLING and delay_s is not None:
        return IN_FLIGHT
    wish = headers.get("x-should-retry", "").strip().lower()
    if wish == "false":
        return replace(verdict, retryable=False)
    return replace(verdict, retry_limit=None) if wish == "true" else verdict


def _message(complaint: Complaint, *, status: int, effective: int, asked: Asked) -> str:
    answered = f"{asked.provider} answered HTTP {status}"
    if complaint.is_empty:
        return f"{answered} with an empty body."
    if effective != status and effective:
        answered = f"{answered} with error {effective}"
    kind = " with a web page" if complaint.is_html else ""
    said = complaint.message or complaint.code or "no message"
    return f'{answered}{kind}: "{said}"'


def _details(complaint: Complaint, *, status: int, headers: Mapping[str, str], asked: Asked) -> dict[str, Any]:
    request_id = complaint.request_id or headers.get("x-request-id", "")
    found: dict[str, Any] = {
        "httpStatus": status,
        "url": shown(asked.url),
        "providerCode": complaint.code,
        "requestId": request_id,
        "snippet": complaint.snippet,
        "maxTokensLimit": token_limit(complaint),
        "resetAt": _group(_RESET_AT, complaint.message),
        "affordableTokens": _group(_AFFORDABLE, complaint.message),
        **complaint.numbers,
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def _group(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text[:4_000])
    return found[1] if found else ""
