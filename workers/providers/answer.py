"""An answer as it was received, judged: a completion, or the failure that it really is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from workers.providers import hints
from workers.providers.base import Completion, FinishReason, ProviderFailure, Usage, clean
from workers.providers.complaint import Complaint
from workers.providers.failures import Asked, failure_of
from workers.providers.jsontext import mend
from workers.providers.thinking import without_orphan
from workers.providers.usage import usage_of

_LENGTH: Final = frozenset({"length", "model_length", "max_tokens", "max_output_tokens", "max_new_tokens"})
_STOP: Final = frozenset({"stop", "eos", "eos_token", "end_turn", "completed", "stop_sequence", "complete", "finished"})
_FILTERED: Final = frozenset(
    {"content_filter", "sensitive", "safety", "recitation", "prohibited_content", "blocklist", "spii"}
)
_TOOLS: Final = frozenset({"tool_calls", "function_call", "tool_use"})
_FAILED: Final = {
    "insufficient_system_resource": ("E_PROVIDER", "insufficient_system_resource"),
    "error": ("E_PROVIDER", "finish_error"),
    "network_error": ("E_NETWORK", "upstream_network"),
    "model_context_window_exceeded": ("E_INVALID_REQUEST", "context_length"),
}
_MAX_NAME_CHARS: Final = 200
_CONTEXT_RATIO: Final = 0.5
_ESTIMATE_FROM_TOKENS: Final = 1_000
_REASONING_FACTOR: Final = 2


@dataclass
class Answer:
    """What came, before it is judged: whole and unredacted. `done` = the stream's own end mark was seen."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    finish_raw: str | None = None
    usage: Any = None
    model: str | None = None
    has_tool_calls: bool = False
    keys: list[str] = field(default_factory=list)
    has_choices: bool = True
    streamed: bool = False
    done: bool = True
    complaint: Complaint | None = None
    notes: list[str] = field(default_factory=list)


def completion_of(
    answer: Answer,
    *,
    asked: Asked,
    headers: Mapping[str, str],
    accept_reasoning: bool,
    prompt_tokens_estimate: int = 0,
) -> Completion:
    """The completion. Raises ProviderFailure, which keeps what text there is."""
    _split_orphan(answer)
    usage = usage_of(answer.usage, has_text=bool(answer.text))
    try:
        _refuse_failed(answer, asked=asked, headers=headers)
        _refuse_cut(answer)
        if not answer.text.strip():
            _take_reasoning(answer, usage=usage, asked=asked, accept_reasoning=accept_reasoning)
    except ProviderFailure as failure:
        failure.usage = usage
        failure.partial_text = failure.partial_text or mend(answer.text)
        if answer.text or answer.reasoning:
            failure.retry_limit = 0
        raise
    finish = _finish(answer)
    notes = [*answer.notes, *_remarks(answer, usage, asked=asked, estimate=prompt_tokens_estimate)]
    return Completion(
        text=mend(answer.text),
        finish_reason=finish,
        finish_reason_raw=_cleaned(answer.finish_raw),
        usage=usage,
        resolved_model=_cleaned(answer.model),
        truncated=finish == "length",
        notes=[clean(note) for note in notes],
    )


def truncated(answer: Answer, how: str) -> ProviderFailure:
    """An answer that began and was cut."""
    return ProviderFailure(
        "E_NETWORK",
        f"The answer was cut after {len(answer.text)} characters: {how}.",
        hint=hints.TRUNCATED,
        reason="truncated",
        details={"partialChars": len(answer.text), "reasoningChars": len(answer.reasoning) or None},
        partial_text=mend(answer.text),
        usage=usage_of(answer.usage, has_text=bool(answer.text)),
        retry_limit=0,
    )


def _cleaned(text: str | None) -> str | None:
    return text and clean(text, limit=_MAX_NAME_CHARS)


def _word(answer: Answer) -> str:
    return (answer.finish_raw or "").lower()


def _split_orphan(answer: Answer) -> None:
    answer.text, reasoning = without_orphan(answer.text)
    if reasoning:
        answer.reasoning += reasoning
        answer.notes.append("Reasoning before an orphaned closing tag was taken out.")


def _refuse_failed(answer: Answer, *, asked: Asked, headers: Mapping[str, str]) -> None:
    """Errors inside an answer, and finish reasons that are none."""
    if answer.complaint is not None:
        raise failure_of(answer.complaint, status=200, headers=headers, asked=asked)
    word = _word(answer)
    if word in _FILTERED:
        raise ProviderFailure(
            "E_INVALID_REQUEST",
            "The provider's content filter stopped the answer.",
            hint=hints.for_reason("content_filter"),
            reason="content_filter",
            details={"finishReason": _cleaned(answer.finish_raw), "partialChars": len(answer.text)},
            retry_limit=0,
        )
    if word in _FAILED:
        code, reason = _FAILED[word]
        raise ProviderFailure(
            code,
            f"The provider ended the answer with {_cleaned(answer.finish_raw)}.",
            hint=hints.for_reason(reason),
            reason=reason,
            details={"finishReason": _cleaned(answer.finish_raw), "partialChars": len(answer.text)},
        )


def _refuse_cut(answer: Answer) -> None:
    if not answer.streamed or answer.done or answer.finish_raw:
        return
    failure = truncated(answer, "the stream ended without an end mark or a finish reason")
    if not (answer.text or answer.reasoning):
        failure.retry_limit = None
    raise failure


def _take_reasoning(answer: Answer, *, usage: Usage | None, asked: Asked, accept_reasoning: bool) -> None:
    """An answer without text: take its reasoning where that was agreed, else say what it is."""
    if answer.refusal:
        raise ProviderFailure(
            "E_PROVIDER",
            f'The model refused: "{answer.refusal}"',
            hint="Reword the task, or route to another model.",
            retryable=False,
            reason="refusal",
            partial_text=mend(answer.refusal),
        )
    if _word(answer) in _LENGTH:
        raise _spent_on_reasoning(answer, usage=usage, asked=asked)
    if answer.has_tool_calls or _word(answer) in _TOOLS:
        raise _malformed("The model asked for tools instead of answering; workers have none.", "unexpected_tool_calls")
    if not answer.reasoning.strip():
        raise _empty(answer)
    if not accept_reasoning:
        raise _malformed(
            "The answer is empty: the model only reasoned.",
            "empty_content_reasoning_only",
            hint="Run the task again, or route to a model or server that separates reasoning from the answer.",
            reasoningChars=len(answer.reasoning),
        )
    answer.text = answer.reasoning
    answer.notes.append("The answer was empty; its reasoning was taken for it, as this provider is set.")


def _spent_on_reasoning(answer: Answer, *, usage: Usage | None, asked: Asked) -> ProviderFailure:
    reasoning = usage.reasoning_tokens if usage else None
    suggested = max(
        hints.REASONING_TOKENS, _REASONING_FACTOR * asked.max_output_tokens, _REASONING_FACTOR * (reasoning or 0)
    )
    return ProviderFailure(
        "E_INVALID_REQUEST",
        f"The model spent all {asked.max_output_tokens} output tokens on reasoning and gave no answer.",
        hint=f"Raise maxOutputTokens to {hints.REASONING_TOKENS} or more (try {suggested}), "
        "or route to a model that reasons less.",
        reason="output_budget_spent_on_reasoning",
        details={
            "reasoningTokens": reasoning,
            "reasoningChars": len(answer.reasoning) or None,
            "suggestedMaxOutputTokens": suggested,
        },
        retry_limit=0,
    )


def _empty(answer: Answer) -> ProviderFailure:
    if not answer.has_choices:
        keys = ", ".join(answer.keys) or "none"
        return _malformed(
            f"The answer has no choices; its keys are: {keys}.",
            "no_choices",
            hint="Check that the base URL is an OpenAI-compatible API.",
            keys=answer.keys,
        )
    return _malformed(
        "The answer is well-formed and empty.",
        "empty_completion",
        hint="The prompt may exceed the context that the server loaded the model with: "
        "shorten it, or raise the server's context. Else route to another model.",
    )


def _malformed(message: str, reason: str, *, hint: str = "", **details: Any) -> ProviderFailure:
    return ProviderFailure("E_MALFORMED_RESPONSE", message, hint=hint, reason=reason, details=details)


def _finish(answer: Answer) -> FinishReason:
    word = _word(answer)
    if word in _LENGTH:
        return "length"
    if word not in _STOP:
        answer.notes.append(
            f"The finish reason {_cleaned(answer.finish_raw) or 'is missing; it'} was taken for a stop."
        )
    return "stop"


def _remarks(answer: Answer, usage: Usage | None, *, asked: Asked, estimate: int) -> list[str]:
    remarks: list[str] = []
    if answer.model and answer.model != asked.model:
        remarks.append(f"The provider answered with model {_cleaned(answer.model)}.")
    read = usage.input_tokens if usage else None
    if read and estimate >= _ESTIMATE_FROM_TOKENS and read < estimate * _CONTEXT_RATIO:
        remarks.append(
            f"The provider counted {read} input tokens where about {estimate} were sent: "
            "it may have cut the prompt silently."
        )
    return remarks
