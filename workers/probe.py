"""Trying a provider out: list its models, ask one of them for one word. Costs a handful of tokens."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

from asgiref.sync import async_to_sync
from django.db import transaction

from audit.services import record
from core.errors import JsonObject, MeahError
from core.redaction import redact
from workers import services
from workers.endpoints import provider_for
from workers.providers.base import (
    Adaptation,
    Completion,
    CompletionRequest,
    ModelList,
    Provider,
    ProviderFailure,
    RetryPolicy,
)
from workers.routing import ProviderConfig

WITHIN_S: Final = 20.0
QUESTION: Final = "Reply with the single word OK."
# Models that think first spend most of this before the one word.
MAX_OUTPUT_TOKENS: Final = 1_000
MAX_ANSWER_CHARS: Final = 2_000


@dataclass
class Probe:
    """What came of it. `model` is empty where none was asked, because none is known to ask."""

    provider: ProviderConfig
    model: str = ""
    models: ModelList | None = None
    models_error: MeahError | None = None
    completion: Completion | None = None
    error: MeahError | None = None
    answer: str = ""
    took_ms: int | None = None
    learned: list[Adaptation] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.completion is not None


async def probe(provider: ProviderConfig, model: str, known: list[Adaptation], *, within_s: float = WITHIN_S) -> Probe:
    """Ask the provider itself, within `within_s` for everything. Never raises: failures are part of the result."""
    found = Probe(provider)
    client = provider_for(provider)
    deadline = time.monotonic() + within_s
    try:
        async with asyncio.timeout(within_s + 2):
            await _list(client, found, deadline=time.monotonic() + within_s / 2)
            found.model = model or provider.model or next(iter(provider.models), "")
            if found.model:
                await _ask(client, found, known, deadline)
    except TimeoutError:
        found.error = found.error or MeahError("E_TIMEOUT", f"The provider did not answer within {within_s:.0f} s.")
    finally:
        await client.aclose()
    return found


def try_out(provider: ProviderConfig, *, model: str, principal: str, within_s: float = WITHIN_S) -> Probe:
    """`probe` from sync code, recorded in the chain; what was learned on the way is kept."""
    wanted = model or provider.model or next(iter(provider.models), "")
    known = services.learned_adaptations(provider.name, wanted) if wanted else []
    found: Probe = async_to_sync(probe)(provider, wanted, known, within_s=within_s)
    if found.learned:
        services.learn(provider.name, found.model, found.learned)
    with transaction.atomic():
        record("provider.tested", principal=principal, subject=provider.name, data=_entry(found))
    return found


async def _list(client: Provider, found: Probe, deadline: float) -> None:
    try:
        found.models = await client.list_models(deadline=deadline)
    except MeahError as error:
        found.models_error = error


async def _ask(client: Provider, found: Probe, known: list[Adaptation], deadline: float) -> None:
    request = CompletionRequest(found.model, [{"role": "user", "content": QUESTION}], MAX_OUTPUT_TOKENS)
    started = time.monotonic()
    try:
        found.completion = await client.complete(
            request, deadline=deadline, retry=RetryPolicy(max_retries=0), adaptations=known
        )
        found.answer = redact(found.completion.text)[:MAX_ANSWER_CHARS]
        found.learned = found.completion.adaptations_learned
    except MeahError as error:
        found.error = error
        if isinstance(error, ProviderFailure):
            found.learned = error.adaptations_learned
    found.took_ms = round((time.monotonic() - started) * 1000)


def _entry(found: Probe) -> JsonObject:
    usage = found.completion.usage if found.completion else None
    return {
        "ok": found.ok,
        "model": found.model,
        "listedModels": len(found.models.ids) if found.models else None,
        "error": found.error.code if found.error else None,
        "tookMs": found.took_ms,
        "inputTokens": usage.input_tokens if usage else None,
        "outputTokens": usage.output_tokens if usage else None,
    }
