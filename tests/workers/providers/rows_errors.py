"""Section 2.2 of the reference: error bodies; and what 429 really means, section 2.4."""

from __future__ import annotations

import json
from typing import Any

from tests.fake_provider import Scripted, chunk, html_reply, json_reply, stream_reply, text_reply
from tests.workers.providers.quirks import Row, Want, failing

RATE = Want("E_RATE_LIMIT", True)
SERVER = Want("E_PROVIDER", True)
INVALID = Want("E_INVALID_REQUEST", False)
BILLING = Want("E_RATE_LIMIT", False, "billing")
QUOTA = Want("E_RATE_LIMIT", False, "quota_window")
CONTEXT = Want("E_INVALID_REQUEST", False, "context_length", hint="Shorten")


def error(message: Any, code: Any = None, kind: str | None = None, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **more}}


def openrouter(raw: Any, code: int = 429, name: str = "Hyperbolic", **more: Any) -> dict[str, Any]:
    metadata = {"raw": raw, "provider_name": name, **more}
    return {"error": {"message": "Provider returned error", "code": code, "metadata": metadata}, "user_id": "user_1"}


def want(base: Want, **changes: Any) -> Want:
    return Want(**{**base.__dict__, **changes})


def one(name: str, reply: Scripted, wanted: Want, **options: Any) -> Row:
    return Row(name, [reply], wanted, **options)


TOO_MANY = want(RATE, says="[Hyperbolic] Too Many Requests")
NOVITA = {
    "code": 400,
    "reason": "INVALID_REQUEST_BODY",
    "message": "max_tokens (current value: 65536) must be between 0 and 32768 ",
    "metadata": {},
}
LLAMA_FULL = {
    "error": {
        "code": 400,
        "message": "the request exceeds the available context size. try increasing the context size or enable shift",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 14429,
        "n_ctx": 8192,
    }
}
AZURE_FILTER = {
    "error": {
        "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {
            "code": "ResponsibleAIPolicyViolation",
            "content_filter_result": {"hate": {"filtered": True, "severity": "high"}},
        },
    }
}
GEMINI_KEY = [
    {
        "error": {
            "code": 400,
            "message": "API key not valid. Please pass a valid API key.",
            "status": "INVALID_ARGUMENT",
            "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}],
        }
    }
]
CLOUDFLARE = (
    "<!DOCTYPE html><html><head><title>api.example.com | 524: A timeout occurred</title>"
    "<script>alert('not for you')</script></head><body><h1>Error code 524</h1>"
    "<p>Ray ID: 8f1c2d3e4f5a6b7c</p></body></html>"
)
OLLAMA_LIMIT = (
    "you (someone) have reached your session usage limit, upgrade for higher limits: https://ollama.com/upgrade"
)
KEY_IN_PAGE = (
    "<html><title>Oops</title><body>token sk-proj-Zz9Yy8Xx7Ww6Vv5Uu4Tt3Ss2Rr1Qq0Pp9Oo8Nn7Mm6 leaked</body></html>"
)

ERRORS: list[Row] = [
    *failing(
        "E1",
        error("Rate limit reached for requests", "rate_limit_exceeded", "requests"),
        429,
        want(RATE, says="Rate limit reached for requests"),
    ),
    *failing("E1:null-code", error("The server had an error", None, "server_error"), 500, SERVER),
    *failing("E2", error("Bad gateway upstream", 502), 502, want(SERVER, details={"providerCode": "502"})),
    one("E2:200", json_reply(error("Upstream is limiting", 429)), want(RATE, says="HTTP 200 with error 429")),
    *failing("E3", error("Requests have exceeded the call rate limit", "429"), 429, RATE),
    one("E3:200", json_reply(error("Internal", "500")), SERVER),
    *failing(
        "E4",
        {"error": {"code": "1302", "message": "Rate limit reached for requests"}, "request_id": "2026-1"},
        429,
        want(RATE, reason="concurrency", details={"providerCode": "1302", "requestId": "2026-1"}),
    ),
    *failing("E5", {"error": "The model crashed"}, 500, want(SERVER, says="The model crashed")),
    one("E5:401", json_reply({"error": "nope"}, status=401), Want("E_AUTH", False, says="nope", hint="apiKeyEnv")),
    *failing("E6", {"code": "invalid-argument", "error": "Temperature is silly"}, 400, want(INVALID, says="is silly")),
    *failing(
        "E7",
        {"object": "error", "message": "Extra thing", "type": "BadRequestError", "param": None, "code": 400},
        400,
        want(INVALID, says="Extra thing"),
    ),
    *failing(
        "E9",
        {"message": "Model qwen-9 does not exist", "type": "not_found_error", "param": "m", "code": "model_not_found"},
        404,
        want(INVALID, reason="unknown_model", says="qwen-9 does not exist", hint="/v1"),
    ),
    *failing(
        "E10",
        {"detail": "Not Found"},
        404,
        want(INVALID, reason="not_found", says="Not Found", hint="appends /chat/completions"),
        stream=want(SERVER, says="Not Found"),
    ),
    *failing(
        "E10:list",
        {"detail": [{"loc": ["body", "messages", 0], "msg": "field required", "type": "missing"}]},
        422,
        want(INVALID, says="body.messages.0: field required"),
        stream=want(SERVER, says="body.messages.0: field required"),
    ),
    *failing("E10:object", {"detail": {"message": "Unsupported thing"}}, 400, want(INVALID, says="Unsupported thing"),
             stream=SERVER),
    *failing(
        "E11",
        [{"error": {"code": 400, "message": "Bad field", "status": "INVALID_ARGUMENT", "details": []}}],
        400,
        want(INVALID, says="Bad field"),
    ),
    *failing("E13", openrouter("Too Many Requests"), 429, TOO_MANY),
    *failing("E13:raw-json", openrouter(json.dumps(error("Too Many Requests", 429))), 429, TOO_MANY),
    *failing("E13:raw-object", openrouter({"message": "Too Many Requests"}), 429, TOO_MANY),
    *failing("E13:previous", openrouter("Too Many Requests", previous_errors=[{"code": 401}]), 429, TOO_MANY),
    one("E14", json_reply({**openrouter("Too Many Requests"), "choices": None}), TOO_MANY),
    one("E14:missing", json_reply(openrouter("Too Many Requests")), TOO_MANY),
    one("E14:empty", json_reply({**openrouter("Too Many Requests"), "choices": []}), TOO_MANY),
    one("E14:stream", stream_reply({**openrouter("Too Many Requests"), "choices": []}), TOO_MANY),
    *failing(
        "E15",
        {"error": "Unexpected endpoint or method. (POST /chat/completions)"},
        200,
        want(INVALID, reason="wrong_path", says="Unexpected endpoint", hint="lacks /v1"),
    ),
    *failing(
        "E16",
        LLAMA_FULL,
        200,
        want(CONTEXT, details={"promptTokens": 14429, "contextTokens": 8192}),
    ),
    *failing("E17", error("Context size has been exceeded.", 500, "server_error"), 500, CONTEXT),
    *failing(
        "E19",
        error("Loading model", 503, "unavailable_error"),
        503,
        want(SERVER, reason="loading", hint="still loading"),
    ),
    one(
        "E20",
        html_reply("<!doctype html><html><head><title>My App</title></head><body>Welcome</body></html>"),
        Want("E_MALFORMED_RESPONSE", False, "html", says="My App", hint="/v1", details={"snippet": "My App Welcome"}),
    ),
    one(
        "E20:524",
        html_reply(CLOUDFLARE, status=524),
        want(SERVER, says="Cloudflare error 524, Ray ID 8f1c2d3e4f5a6b7c", hint="web page"),
    ),
    one("E20:404", html_reply("<html><title>404</title></html>", status=404),
        want(INVALID, reason="not_found", hint="lacks /v1")),
    one("E20:google", html_reply("<!DOCTYPE html><title>Error 400 (Bad Request)!!1</title>", status=400),
        want(INVALID, says="Error 400 (Bad Request)!!1", hint="web page")),
    one("E20:403", html_reply("<html><title>Just a moment...</title></html>", status=403), Want("E_AUTH", False)),
    one("E20:redacted", html_reply(KEY_IN_PAGE), Want("E_MALFORMED_RESPONSE", False, "html")),
    one("E20:stream-type", text_reply("<html><title>Lost</title></html>", content_type="text/event-stream"),
        Want("E_MALFORMED_RESPONSE", False, "html", says="Lost")),
    one("E21", text_reply("", status=422), want(INVALID, says="HTTP 422 with an empty body")),
    one("E21:500", text_reply("", status=500), want(SERVER, says="HTTP 500 with an empty body")),
    one("E21:401", text_reply("", status=401), Want("E_AUTH", False)),
    *failing(
        "E23",
        openrouter(json.dumps(NOVITA), code=400, name="Novita"),
        400,
        want(INVALID, reason="max_tokens_range", says="[Novita] max_tokens", details={"maxTokensLimit": 32768}, asks=1),
    ),
    *failing("E24", AZURE_FILTER, 400, want(INVALID, reason="content_filter", says="content management policy")),
    *failing(
        "E25",
        error("Requests have exceeded token rate limit of your tier. Please retry after 37 seconds.", "429"),
        429,
        want(RATE, details={"retryAfterSec": 37.0}, asks=1),
    ),
    *failing("E27", GEMINI_KEY, 400, Want("E_AUTH", False, says="API key not valid")),
    one("E29", json_reply(OLLAMA_LIMIT, status=429), want(QUOTA, says="session usage limit")),
    one("E29:text", text_reply(OLLAMA_LIMIT, status=429), want(QUOTA, says="session usage limit")),
    *failing(
        "E30",
        error('model "llama9" not found, try pulling it first', None, "api_error"),
        404,
        want(INVALID, reason="unknown_model", hint="ollama pull"),
    ),
    one("E30:503", json_reply(error("server busy, please try again", None, "api_error"), status=503), SERVER),
    one("E30:499", json_reply(error("request canceled", None, "api_error"), status=499),
        want(SERVER, reason="upstream_cancelled")),
    one("extra:minimax", json_reply({"choices": None, "base_resp": {"status_code": 1008, "status_msg": "no balance"}}),
        want(BILLING, says="no balance")),
    one("extra:minimax-rate", json_reply({"base_resp": {"status_code": 1002, "status_msg": "rate limit"}}), RATE),
    one("extra:success-false", json_reply({"code": 500, "msg": "404 NOT_FOUND", "success": False}), SERVER),
    one("extra:errors-list", json_reply({"errors": [{"message": "No such route"}]}, status=400),
        want(INVALID, says="No such route")),
    one("extra:sse-error-body", text_reply('data: {"error":{"message":"Slow down","code":429}}\n\n', status=429,
        content_type="text/event-stream"), want(RATE, says="Slow down")),
    one("extra:truncated-json", text_reply('{"error": {"message": "half', status=502, content_type="application/json"),
        SERVER),
    one("extra:hidden", json_reply(error("pay\u202eme\u200b now"), status=400), want(INVALID, says="⟨U+202E⟩")),
    one("extra:long", json_reply(error("x" * 100_000), status=400), INVALID),
    one("extra:nested", json_reply(b'{"error":' + b"[" * 50_000 + b"]" * 50_000 + b"}", status=400), INVALID),
    one("extra:error-wins", json_reply({"error": {"message": "Oops", "code": 500}, "choices": [{"message": {
        "content": "hello"}, "finish_reason": "stop"}]}), want(SERVER, says="Oops", asks=1, partial="hello")),
    one("extra:after-text", stream_reply(chunk("Half of it"), error("Overloaded now", 503)),
        want(SERVER, says="Overloaded now", asks=1, partial="Half of it")),
]  # fmt: skip

RESET = "Usage limit reached for 5 hour. Your limit will reset at 2026-12-01 03:04:05"


def zai(code: int, message: str = "It failed") -> dict[str, Any]:
    return {"error": {"code": str(code), "message": message}}


def zai_rows(name: str, codes: list[int], status: int, wanted: Want, message: str = "It failed") -> list[Row]:
    return [row for code in codes for row in failing(f"{name}:{code}", zai(code, message), status, wanted)]


GEMINI_DAY = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota, please check your plan and billing details.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}],
    }
}
GEMINI_WAIT = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota, please check your plan and billing details.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "58s"}],
    }
}

MEANINGS: list[Row] = [
    *failing("429-insufficient-quota", error("You exceeded your current quota", "insufficient_quota",
             "insufficient_quota"), 429, BILLING),
    *failing("429-1113", zai(1113, "Insufficient balance or no resource package."), 429,
             want(BILLING, hint="https://api.z.ai/api/coding/paas/v4")),
    *failing("429-1302", zai(1302), 429, want(RATE, reason="concurrency")),
    *failing("429-1305", zai(1305), 429, want(RATE, reason="overloaded")),
    *zai_rows("429-window", [1308, 1310, *range(1316, 1322)], 429,
              want(QUOTA, details={"resetAt": "2026-12-01 03:04:05"}), RESET),
    *zai_rows("429-plan", [1309, 1311, 1313, 1314, 1315], 429, Want("E_AUTH", False, "plan", hint="plan")),
    *failing("429-1301", zai(1301), 400, want(INVALID, reason="content_filter")),
    *failing("429-1234", zai(1234), 500, SERVER),
    *zai_rows("429-params", [1210, 1212, 1213, 1214, 1215, 1222], 400, INVALID),
    *failing("429-params:1211", zai(1211), 400, want(INVALID, reason="unknown_model")),
    *zai_rows("429-auth", [1000, 1001, 1004, 1110, 1112, 1121], 401, Want("E_AUTH", False)),
    *failing("429-gemini-day", GEMINI_DAY, 429, QUOTA),
    *failing("429-gemini-day:limit-0", error("Quota exceeded for metric: x, limit: 0, model: gemini", 429), 429, QUOTA),
    *failing("429-gemini-delay", GEMINI_WAIT, 429, want(RATE, details={"retryAfterSec": 58.0}, asks=1)),
    *failing("429-groq", error("Rate limit reached. Please try again in 5.289s.", "rate_limit_exceeded"), 429,
             want(RATE, details={"retryAfterSec": 5.289}, asks=1), budget_s=4.0),
    *failing("429-openrouter", openrouter("All upstream providers failed"), 429, want(RATE, hint="try another model")),
    *failing("429-openrouter:502", openrouter("All upstream providers failed", 502), 502,
             want(SERVER, hint="try another model")),
    *failing("429-moonshot", error("The engine is overloaded", None, "engine_overloaded_error"), 429,
             want(RATE, reason="overloaded")),
    *failing("429-moonshot:quota", error("Your account is suspended", None, "exceeded_current_quota_error"), 429,
             BILLING),
    one("429-too-long", json_reply(error("Wait"), status=429, headers=[("retry-after-ms", "504641000")]),
        want(RATE, details={"retryAfterSec": 504641.0}, asks=1)),
]  # fmt: skip
