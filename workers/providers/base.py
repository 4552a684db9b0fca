"""What every provider of completions takes and gives back. No HTTP here: the pool imports this at start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from core.errors import JsonObject, MeahError
from core.redaction import StreamRedactor, redact
from core.text import visible

Message = dict[str, str]
FinishReason = Literal["stop", "length", "content_filter", "unknown"]
AdaptationAction = Literal["rename", "drop", "clamp"]
OnText = Callable[[str], None]

MAX_ERROR_CHARS: Final = 500
_WINDOW_CHARS: Final = 32_000


@dataclass(frozen=True)
class CompletionRequest:
    """One question: what is asked of which model, and how long the answer may be."""

    model: str
    messages: Sequence[Message]
    max_output_tokens: int
    temperature: float | None = None


@dataclass(frozen=True)
class Usage:
    """Tokens as the provider counted them; None is unknown, never a guess. `cost` is the provider's own figure."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_input_tokens: int | None = None
    cost: str | None = None


@dataclass(frozen=True)
class Adaptation:
    """A change of parameters that one model of one provider turned out to need.

    `rename`: send `field` as `value`. `drop`: do not send it. `clamp`: send at most `value`.
    `evidence` is the provider's own (redacted) sentence.
    """

    field: str
    action: AdaptationAction
    value: str | int | None = None
    evidence: str = ""


@dataclass(frozen=True)
class Completion:
    """An answer. `truncated` = the model wanted to say more; `waited_ms` = time slept between attempts."""

    text: str
    finish_reason: FinishReason = "stop"
    finish_reason_raw: str | None = None
    usage: Usage | None = None
    resolved_model: str | None = None
    truncated: bool = False
    notes: list[str] = field(default_factory=list)
    adaptations_learned: list[Adaptation] = field(default_factory=list)
    attempts: int = 1
    waited_ms: int = 0


@dataclass(frozen=True)
class ModelList:
    """What a provider says it has.

    `listed` is False when it has no such page (unknown, not down). An empty list proves nothing:
    callers keep the catalogue they have. `prices` are (input, output) per token, as the provider writes them.
    """

    ids: tuple[str, ...] = ()
    context_lengths: Mapping[str, int] = field(default_factory=dict)
    skipped: int = 0
    listed: bool = True
    prices: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class RetryPolicy:
    max_retries: int = 2
    base_ms: int = 500


@dataclass(frozen=True)
class Endpoint:
    """Where a provider is and how to treat it.

    `private`: its host may have an address inside this network. `accept_reasoning`: where the answer is empty,
    take the reasoning for it. `strict_params`: never change parameters to please the server.
    """

    name: str
    base_url: str
    api_key_env: str = ""
    private: bool = False
    accept_reasoning: bool = False
    strict_params: bool = False


class ProviderFailure(MeahError):  # noqa: N818 - the word is the house's
    """A failed completion. Message, hint and details are redacted and safe to show; `partial_text` is not.

    `adaptations_learned` is what the server taught before the call failed, for the caller to keep.
    `retryable` speaks to the caller; `retry_limit` to the retry loop: None leaves it to the policy.
    `cool_down` multiplies the policy's base delay where a short wait is known not to help.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        hint: str = "",
        retryable: bool | None = None,
        reason: str = "",
        details: JsonObject | None = None,
        partial_text: str = "",
        retry_after_s: float | None = None,
        usage: Usage | None = None,
        retry_limit: int | None = None,
        cool_down: int = 1,
    ) -> None:
        super().__init__(
            code,
            clean(message),
            hint=clean(hint, limit=1_000),
            retryable=retryable,
            reason=clean(reason, limit=100),
            details=clean_details(details or {}),
        )
        self.partial_text = partial_text
        self.retry_after_s = retry_after_s
        self.usage = usage
        self.retry_limit = retry_limit
        self.cool_down = cool_down
        self.adaptations_learned: list[Adaptation] = []


def clean(text: str, *, limit: int = MAX_ERROR_CHARS) -> str:
    """Foreign text made fit to show: redacted, hidden signs shown, and only then cut (half a key is still a key).

    Nobody else cuts foreign text that is going to be shown: a key over the cut would not be known any more.
    """
    shown = visible(redacted_head(text)).strip()
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def redacted_head(text: str, *, is_cut: bool = False) -> str:
    """The text redacted; of a very large one only a head, so that the cost is bounded.

    At the end of a head, or of a text that was cut before (`is_cut`), what may be the beginning of a secret of any
    length is left out.
    """
    if not is_cut and len(text) <= _WINDOW_CHARS:
        return redact(text)
    return StreamRedactor().feed(text[:_WINDOW_CHARS])


def clean_details(details: JsonObject) -> JsonObject:
    return {key: _clean_value(value) for key, value in details.items() if value is not None}


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list | tuple):
        return [_clean_value(item) for item in value]
    if isinstance(value, dict):
        return {clean(str(key), limit=100): _clean_value(item) for key, item in value.items()}
    return value


class Provider(Protocol):
    """Something that completes. One instance belongs to one event loop.

    Raises ProviderFailure (or MeahError with E_CONFIG); cancelling the task aborts the request at once.
    """

    async def complete(
        self,
        request: CompletionRequest,
        *,
        deadline: float,
        retry: RetryPolicy,
        adaptations: Sequence[Adaptation] = (),
        on_text: OnText | None = None,
    ) -> Completion:
        """The answer, or the failure. `deadline` is in seconds of `time.monotonic`; `on_text` gets visible text."""
        ...

    async def list_models(self, *, deadline: float) -> ModelList: ...

    async def aclose(self) -> None: ...
