"""What to do about a failure: one place for the advice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from workers.providers.complaint import Complaint

if TYPE_CHECKING:
    from workers.providers.failures import Asked

HEAVY_OUTPUT_TOKENS: Final = 4_000
REASONING_TOKENS: Final = 2_000
_GLM: Final = re.compile(r"(^|[/_-])glm", re.IGNORECASE)
_UPSTREAM: Final = re.compile(r"all (upstream )?providers? failed|all upstream|upstream providers failed")

BASE_URL: Final = (
    "The base URL usually lacks /v1: give it up to /v1 (or the provider's own version), "
    "the client appends /chat/completions."
)
KEY: Final = (
    "Check the variable that the provider's apiKeyEnv names, and that the key belongs to this base URL; "
    "`manage.py doctor --probe` tries it."
)
PROXY_PAGE: Final = (
    "A web page came instead of JSON: a proxy, a login page or the wrong base URL answered. "
    "Check that the base URL is the API's, usually ending in /v1."
)
ORIGIN_PAGE: Final = (
    "A web page came instead of JSON: the proxy in front of the provider could not reach it. "
    "Try again later, or route to another provider."
)
SATURATED: Final = "The model is saturated at every upstream provider: try another model, or wait."
GLM: Final = (
    "GLM models fail on long answers: lower the role's maxOutputTokens to 4000 or less, "
    "or route the role to a steadier model."
)
TRUNCATED: Final = (
    "The answer was cut on its way and was not asked for again, since its tokens are spent: "
    "run the task again, or ask for a shorter answer."
)
_BY_REASON: Final[dict[str, str]] = {
    "billing": "The account has no credit or quota: top it up, or route to another provider.",
    "quota_window": "The plan's quota is used up until it resets: route to another provider until then.",
    "content_filter": "The provider's content filter refused it: reword the task, or route to another model.",
    "context_length": "Shorten the task or its context, lower maxOutputTokens, or route to a model with more room.",
    "max_tokens_range": "Lower maxOutputTokens (of the call, the role or the default) to what the model takes.",
    "overloaded": "The model is overloaded: wait, or route to another model.",
    "capacity": "The provider has no capacity at the moment: wait, or route to another model.",
    "loading": "The server is still loading the model: try again in a while.",
    "plan": "The plan does not cover this model or has ended: see the provider's account page.",
    "no_provider": "No upstream provider fits the request: choose another model or loosen the routing at the provider.",
    "in_flight_budget": "Too much is running on this account at once: wait, or lower maxConcurrent.",
    "concurrency": "Too many requests at once for this key: wait a minute or two, or lower maxConcurrent.",
    "too_large": "The request is too large for this provider: shorten the task or its context.",
    "wrong_path": BASE_URL,
    "not_found": BASE_URL,
    "html": PROXY_PAGE,
}


def for_reason(reason: str) -> str:
    """The advice for a reason alone; an empty string where there is none."""
    return _BY_REASON.get(reason, "")


def for_failure(code: str, reason: str, *, status: int, complaint: Complaint, asked: Asked) -> str:
    """The advice for a provider's error; an empty string leaves it to the code's own."""
    words = complaint.words
    if _UPSTREAM.search(words):
        return SATURATED
    if code == "E_PROVIDER" and status >= 500 and _is_heavy_glm(asked):
        return GLM
    if reason == "unknown_model":
        return _unknown_model(words, asked)
    if reason == "billing" and ("1113" in complaint.codes or "can only afford" in words):
        return _billing(words)
    if code == "E_AUTH" and not reason:
        return _auth(complaint)
    hint = _BY_REASON.get(reason, "")
    return _with_page(hint, status) if complaint.is_html else hint


def _with_page(hint: str, status: int) -> str:
    page = ORIGIN_PAGE if status >= 500 else PROXY_PAGE
    return page if hint in ("", page) else f"{hint} {page}"


def _is_heavy_glm(asked: Asked) -> bool:
    return asked.max_output_tokens > HEAVY_OUTPUT_TOKENS and _GLM.search(asked.model) is not None


def _unknown_model(words: str, asked: Asked) -> str:
    if "pull" in words:
        return f"Pull the model on that machine first (`ollama pull {asked.model}`), or name one it has."
    return f"Check the model's id with meah_list_models or the provider's own list. If it is right: {BASE_URL}"


def _billing(words: str) -> str:
    if "can only afford" in words:
        return "Lower maxOutputTokens to what the account can still afford, or top it up."
    return (
        "No balance, or the key belongs to the other Z.AI product: for a coding plan "
        "the base URL is https://api.z.ai/api/coding/paas/v4; otherwise top the account up."
    )


def _auth(complaint: Complaint) -> str:
    return f"{KEY} {PROXY_PAGE}" if complaint.is_html else KEY
