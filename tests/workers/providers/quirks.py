"""A row of the quirk tables: what a server answers, and what must come of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.errors import CODES
from tests.fake_provider import DONE, MODEL, FakeProvider, Room, Scripted, json_reply, stream_reply
from workers.providers.base import (
    Adaptation,
    Completion,
    CompletionRequest,
    Endpoint,
    Message,
    ProviderFailure,
    RetryPolicy,
)
from workers.providers.openai import OpenAICompatible

AT_ONCE = 24
RETRIED = ("E_RATE_LIMIT", "E_NETWORK", "E_PROVIDER")
QUESTION: list[Message] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]


@dataclass(frozen=True)
class Want:
    """`code` empty: success with `text`. `asks` is how often the server is asked with one retry allowed."""

    code: str = ""
    retryable: bool | None = None
    reason: str = ""
    says: str = ""
    hint: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    partial: str | None = None
    text: str | None = None
    finish: str = "stop"
    raw: str | None = None
    truncated: bool = False
    usage: tuple[int | None, int | None, int | None] | str | None = "any"
    model: str | None = MODEL
    note: str = ""
    asks: int | None = None

    @property
    def expected_asks(self) -> int:
        if self.asks is not None:
            return self.asks
        retryable = CODES[self.code].retryable if self.code and self.retryable is None else self.retryable
        return 2 if self.code in RETRIED and retryable else 1


@dataclass(frozen=True)
class Row:
    """`name` begins with the id that the reference gives the row."""

    name: str
    replies: Sequence[Scripted]
    want: Want
    model: str = MODEL
    max_output_tokens: int = 100
    temperature: float | None = None
    messages: Sequence[Message] = field(default_factory=lambda: QUESTION)
    endpoint: Mapping[str, Any] = field(default_factory=dict)
    budget_s: float = 10.0

    @property
    def row_id(self) -> str:
        return self.name.partition(":")[0]


def failing(
    row_id: str, body: Any, status: int, want: Want, *, stream: Want | None = None, **options: Any
) -> list[Row]:
    """The row as an error answer, and as an error event in a stream that began with 200."""
    return [
        Row(f"{row_id}:json", [json_reply(body, status=status)], want, **options),
        Row(f"{row_id}:stream", [stream_reply(body, DONE)], stream or want, **options),
    ]


@dataclass
class Met:
    """What came of a row."""

    completion: Completion | None
    failure: ProviderFailure | None
    pieces: list[str]
    asks: int


def meet(fake: Room, row: Row, *, retries: int = 1, adaptations: Sequence[Adaptation] = ()) -> Met:
    """Ask the fake provider as the pool does."""
    return asyncio.run(_ask(fake, row, retries, adaptations))


def meet_all(fake: FakeProvider, rows: Sequence[Row]) -> dict[str, Met]:
    """All rows at once, each in a room of its own, by name."""
    return asyncio.run(_ask_all(fake, rows))


async def _ask_all(fake: FakeProvider, rows: Sequence[Row]) -> dict[str, Met]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, row: Row) -> Met:
        async with turn:
            return await _ask(fake.room(str(number)), row, 1, ())

    met = await asyncio.gather(*(one(number, row) for number, row in enumerate(rows)))
    return {row.name: result for row, result in zip(rows, met, strict=True)}


async def _ask(fake: Room, row: Row, retries: int, adaptations: Sequence[Adaptation]) -> Met:
    fake.reply(*row.replies)
    provider = OpenAICompatible(Endpoint("fake", fake.base_url, private=True, **row.endpoint))
    pieces: list[str] = []
    try:
        completion = await provider.complete(
            CompletionRequest(row.model, row.messages, row.max_output_tokens, row.temperature),
            deadline=time.monotonic() + row.budget_s,
            retry=RetryPolicy(retries, base_ms=1),
            adaptations=adaptations,
            on_text=pieces.append,
        )
    except ProviderFailure as failure:
        return Met(None, failure, pieces, len(fake.requests))
    finally:
        await provider.aclose()
    return Met(completion, None, pieces, len(fake.requests))
