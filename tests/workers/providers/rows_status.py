"""Section 2.3 of the reference: status codes; and delays that decide whether to wait, section 2.5."""

from __future__ import annotations

from collections.abc import Iterable

from tests.fake_provider import Cut, Reply, chat, json_reply, text_reply
from tests.workers.providers.quirks import Row, Want
from tests.workers.providers.rows_errors import BILLING, CONTEXT, INVALID, RATE, SERVER, error, one, openrouter, want

FILTERED = want(INVALID, reason="content_filter")
CONFIG = Want("E_CONFIG", False, "redirect", says="redirects to http://elsewhere.example/v1", hint="Update")
GLM_HINT = "lower the role's maxOutputTokens to 4000"


def status(code: int, wanted: Want, message: str = "It failed", *, row: str = "") -> Row:
    return one(row or f"status-{code}", json_reply(error(message), status=code), wanted)


def redirect(code: int, wanted: Want = CONFIG, location: str = "http://elsewhere.example/v1/chat/completions") -> Row:
    reply = text_reply("moved", status=code, headers=[("Location", location)])
    return one(f"status-{code}", reply, wanted)


def waiting(name: str, headers: Iterable[tuple[str, str]], wanted: Want, *, code: int = 429) -> Row:
    """The server asks for a wait, then answers."""
    reply = json_reply(error("Later"), status=code, headers=headers)
    return Row(f"delay-{name}", [reply, chat("Hello")], wanted)


WAITED = Want(text="Hello", raw="stop", asks=2)


def refused_after(seconds: float) -> Want:
    return want(RATE, details={"retryAfterSec": seconds}, asks=1)


STATUSES: list[Row] = [
    one("status-204", Reply(status=204), Want("E_MALFORMED_RESPONSE", False, "empty_response")),
    one("status-200-empty", text_reply(""), Want("E_MALFORMED_RESPONSE", False, "empty_response")),
    one("status-200-empty:blank", text_reply(" \n\n "), Want("E_MALFORMED_RESPONSE", False, "empty_response")),
    redirect(301),
    redirect(302),
    redirect(303),
    redirect(307),
    redirect(308),
    one("status-301:no-location", text_reply("", status=301), want(CONFIG, says="answered HTTP 301")),
    one("status-301:secret", text_reply("", status=301, headers=[("Location", "https://u:p@evil.example/x?key=abc")]),
        want(CONFIG, says="redirects to https://evil.example/x.")),
    status(400, INVALID),
    status(400, CONTEXT, "This model's maximum context length is 8192 tokens, not 9000", row="status-400:long"),
    one("status-400:code", json_reply(error("Too long", "context_length_exceeded"), status=400), CONTEXT),
    status(401, Want("E_AUTH", False, hint="variable")),
    status(402, BILLING),
    one("status-402:affordable",
        json_reply(openrouter("requested up to 4096 tokens, but can only afford 1500", 402), status=402),
        want(BILLING, hint="Lower maxOutputTokens", details={"affordableTokens": "1500"})),
    one("status-402:in-flight", json_reply(error("In flight", 402, limit_source="openrouter_in_flight_budget"),
        status=402, headers=[("Retry-After", "0.06")]), want(RATE, reason="in_flight_budget")),
    status(403, Want("E_AUTH", False)),
    status(403, FILTERED, "Your input was flagged by moderation", row="status-403:moderation"),
    status(403, CONTEXT, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097",
           row="status-403:together"),
    status(404, want(INVALID, reason="not_found", hint="usually lacks /v1")),
    status(404, want(INVALID, reason="unknown_model", hint="meah_list_models"), "The model `gpt-9` does not exist",
           row="status-404:model"),
    status(404, want(INVALID, reason="unknown_model"), "No endpoints found for x/y", row="status-404:openrouter"),
    status(405, want(INVALID, reason="wrong_path", hint="/v1")),
    status(406, INVALID),
    status(408, Want("E_TIMEOUT", False, "upstream_timeout")),
    status(409, SERVER),
    status(410, INVALID),
    status(412, INVALID),
    status(413, want(INVALID, reason="too_large")),
    status(413, CONTEXT, "Request too large for model on tokens per minute (TPM): Limit 6000, Requested 9000",
           row="status-413:groq"),
    status(415, INVALID),
    status(422, INVALID, "Something is missing"),
    status(424, SERVER),
    one("status-425", json_reply(error("Too early"), status=425),
        want(SERVER, reason="too_early", details={"retryAfterSec": 1.0})),
    status(426, INVALID),
    status(429, RATE),
    status(434, Want("E_AUTH", False)),
    status(435, INVALID),
    status(451, FILTERED),
    status(498, want(RATE, reason="capacity")),
    status(499, want(SERVER, reason="upstream_cancelled")),
    status(500, SERVER),
    status(501, SERVER),
    status(502, SERVER),
    status(503, SERVER),
    status(503, want(SERVER, retryable=False, reason="no_provider"), "No available provider fits the routing",
           row="status-503:no-provider"),
    status(504, SERVER),
    *(status(code, SERVER) for code in (*range(520, 528), 530)),
    status(529, want(RATE, reason="overloaded")),
    one("status-0", Reply([Cut()], framing="raw"), Want("E_NETWORK", True, "cut")),
    one("status-0:mid-body", Reply([b'{"choices":[{"mess', Cut()], 200, [("Content-Length", "500")]),
        Want("E_NETWORK", True, "truncated", asks=1)),
    one("status-0:before-body", Reply([Cut()], 200, [("Content-Length", "500")]), Want("E_NETWORK", True, "cut")),
    one("status-0:not-http", Reply([b"SSH-2.0-OpenSSH_9.6\r\n\r\n", Cut()], framing="raw"),
        Want("E_NETWORK", True, "protocol")),
    one("status-0:error-body-cut", Reply([b'{"error":', Cut()], 503, [("Content-Length", "500")]), SERVER),
    one("extra:glm", json_reply(error("It failed"), status=500), want(SERVER, hint=GLM_HINT), model="z-ai/glm-4.7",
        max_output_tokens=8000),
    one("extra:glm-short", json_reply(error("It failed"), status=500), want(SERVER, hint="Try again"),
        model="z-ai/glm-4.7", max_output_tokens=4000),
    one("extra:should-not-retry", json_reply(error("No"), status=500, headers=[("x-should-retry", "false")]),
        want(SERVER, retryable=False)),
    one("extra:should-retry-400", json_reply(error("No"), status=400, headers=[("x-should-retry", "true")]), INVALID),
]  # fmt: skip

DELAYS: list[Row] = [
    waiting("ms", [("retry-after-ms", "80"), ("retry-after", "900")], WAITED),
    waiting("x-ms", [("x-ms-retry-after-ms", "80")], WAITED),
    waiting("seconds", [("retry-after", "0.08")], WAITED),
    waiting("seconds:too-long", [("Retry-After", "20")], refused_after(20.0)),
    waiting("http-date", [("Date", "Wed, 21 Oct 2026 07:28:00 GMT"), ("Retry-After", "Wed, 21 Oct 2026 07:29:00 GMT")],
            refused_after(60.0)),
    waiting("http-date:past", [("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")], WAITED),
    *(waiting(f"ignored:{text}", [("Retry-After", text)], WAITED)
      for text in ("-5", "nan", "inf", "1e400", "", "soon", "2026-10-21T07:28:00Z", "9" * 400, "-1", "0")),
    waiting("should-retry", [("x-should-retry", "true")], WAITED),
    waiting("should-retry:budget", [("x-should-retry", "true"), ("retry-after", "50")], refused_after(50.0)),
    waiting("ratelimit-reset", [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "2m59.56s")],
            refused_after(179.56)),
    waiting("ratelimit-reset:plenty", [("x-ratelimit-remaining-requests", "9"), ("x-ratelimit-reset-requests", "6m0s")],
            WAITED),
    Row("delay-both", [json_reply(error("Please retry after 37 seconds"), status=429, headers=[("Retry-After", "5")])],
        refused_after(37.0)),
]  # fmt: skip
