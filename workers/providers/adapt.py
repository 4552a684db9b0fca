"""The body of a request, and what to change in it when a model refuses one of its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from workers.providers.base import Adaptation, CompletionRequest, Message, clean
from workers.providers.complaint import Complaint

MAX_TOKENS: Final = "max_tokens"
MAX_COMPLETION_TOKENS: Final = "max_completion_tokens"
SYSTEM_ROLE: Final = "messages.system"
_REFUSED: Final = re.compile(
    r"unsupported|not support|n't support|extra inputs|extra_forbidden|not permitted|not allowed|unknown|unrecognized"
    r"|unexpected|not available|unavailable|cannot find field|invalid field"
    r"|only (the default|1|0\.\d|allowed)|must be (1|false)\b"
)
_STREAM: Final = re.compile(r"(?<![\w.])stream(ing|ed)?(?!_options)\b")
_SYSTEM: Final = re.compile(r"(system|developer)['\"`]?[ _-](role|message|instruction|prompt)|role[: ]+['\"`]?system")
_LIMITS: Final = (
    re.compile(r"\[\s*\d+\s*,\s*(\d{1,9})\s*\]"),
    re.compile(r"between \d+ and (\d{1,9})"),
    re.compile(r"(?:at most|up to|maximum (?:value|allowed|of|is)[^\d]{0,30}|less than or equal to|<=?|≤) ?(\d{1,9})"),
    re.compile(r"\d+ > (\d{1,9})"),
    re.compile(r"max(?:imum)?[ _]?(?:output |completion )?tokens?[^\d]{0,20}(?:is|:|of) (\d{1,9})"),
)
_TOKEN_FIELD: Final = re.compile(r"max_(completion_|output_|new_)?tokens|maxoutputtokens|completion tokens")


def request_body(request: CompletionRequest, adaptations: Sequence[Adaptation]) -> dict[str, Any]:
    """The JSON body: what every compatible server takes, changed as this model is known to need, in their order."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [dict(message) for message in request.messages],
        MAX_TOKENS: request.max_output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.temperature is not None:
        body["temperature"] = request.temperature
    for adaptation in adaptations:
        _apply(body, adaptation)
    return body


def lessons(complaint: Complaint, body: dict[str, Any]) -> list[Adaptation]:
    """What the complaint says this body must not have; empty where it says nothing of the kind."""
    words = complaint.words
    evidence = clean(complaint.message)
    found = [*_token_lessons(words, body, evidence), *_temperature_lessons(words, body, evidence)]
    found += [*_stream_lessons(words, body, evidence), *_system_lessons(words, body, evidence)]
    return found


def once_per_subject(found: Iterable[Adaptation], seen: set[str]) -> list[Adaptation]:
    """Those whose subject was not adapted before in this call; renaming there and back is one subject."""
    fresh: list[Adaptation] = []
    for adaptation in found:
        subject = _subject(adaptation)
        if subject not in seen:
            seen.add(subject)
            fresh.append(adaptation)
    return fresh


def token_limit(complaint: Complaint) -> int | None:
    """The most output tokens that a model says it takes, where it says so about that field."""
    words = complaint.words
    if not _TOKEN_FIELD.search(words):
        return None
    limits = (int(found[1]) for pattern in _LIMITS if (found := pattern.search(words)))
    return next((limit for limit in limits if limit > 0), None)


def described(adaptation: Adaptation) -> str:
    """One sentence for people."""
    if adaptation.action == "clamp":
        return f"{adaptation.field} lowered to {adaptation.value}: the model takes no more."
    if adaptation.field == SYSTEM_ROLE:
        return "The system prompt went into the first user message: the model takes no system role."
    if adaptation.action == "rename":
        return f"{adaptation.field} sent as {adaptation.value}: the model asks for it."
    return f"{adaptation.field} left out: the model refuses it."


def _subject(adaptation: Adaptation) -> str:
    if adaptation.action == "rename" and adaptation.field == MAX_COMPLETION_TOKENS:
        return f"{MAX_TOKENS}/rename"
    return f"{adaptation.field}/{adaptation.action}"


def _apply(body: dict[str, Any], adaptation: Adaptation) -> None:
    if adaptation.field == SYSTEM_ROLE:
        body["messages"] = _folded(body["messages"])
    elif adaptation.action == "clamp":
        _clamp(body, adaptation.value)
    elif adaptation.field in ("model", "messages") or adaptation.field not in body:
        return
    elif adaptation.action == "rename":
        body[str(adaptation.value)] = body.pop(adaptation.field)
    else:
        del body[adaptation.field]
        if adaptation.field == "stream":
            body.pop("stream_options", None)


def _clamp(body: dict[str, Any], limit: str | int | None) -> None:
    name = _token_name(body)
    if name and isinstance(limit, int) and limit > 0:
        body[name] = min(body[name], limit)


def _token_name(body: dict[str, Any]) -> str:
    return next((name for name in (MAX_TOKENS, MAX_COMPLETION_TOKENS) if name in body), "")


def _folded(messages: list[Message]) -> list[Message]:
    """System messages put in front of the first user message."""
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    rest = [dict(message) for message in messages if message["role"] != "system"]
    if system and rest:
        rest[0]["content"] = f"{system}\n\n{rest[0]['content']}"
    return rest or [{"role": "user", "content": system}]


def _token_lessons(words: str, body: dict[str, Any], evidence: str) -> list[Adaptation]:
    found: list[Adaptation] = []
    if MAX_TOKENS in body and MAX_COMPLETION_TOKENS in words:
        found.append(Adaptation(MAX_TOKENS, "rename", MAX_COMPLETION_TOKENS, evidence))
    elif MAX_COMPLETION_TOKENS in body and MAX_COMPLETION_TOKENS in words and _REFUSED.search(words):
        found.append(Adaptation(MAX_COMPLETION_TOKENS, "rename", MAX_TOKENS, evidence))
    return found


def clamp_lesson(complaint: Complaint, body: dict[str, Any]) -> list[Adaptation]:
    """Ask for no more output than the model says it can give."""
    name, limit = _token_name(body), token_limit(complaint)
    if not name or not limit or limit >= body[name]:
        return []
    return [Adaptation(name, "clamp", limit, clean(complaint.message))]


def _temperature_lessons(words: str, body: dict[str, Any], evidence: str) -> list[Adaptation]:
    if "temperature" in body and "temperature" in words and _REFUSED.search(words):
        return [Adaptation("temperature", "drop", None, evidence)]
    return []


def _stream_lessons(words: str, body: dict[str, Any], evidence: str) -> list[Adaptation]:
    if not _REFUSED.search(words):
        return []
    if "stream_options" in body and ("stream_options" in words or "include_usage" in words):
        return [Adaptation("stream_options", "drop", None, evidence)]
    if "stream" in body and _STREAM.search(words):
        return [Adaptation("stream", "drop", None, evidence)]
    return []


def _system_lessons(words: str, body: dict[str, Any], evidence: str) -> list[Adaptation]:
    has_system = any(message["role"] == "system" for message in body["messages"])
    refused = _REFUSED.search(words) or "not enabled" in words
    if has_system and refused and _SYSTEM.search(words):
        return [Adaptation(SYSTEM_ROLE, "rename", "user", evidence)]
    return []
