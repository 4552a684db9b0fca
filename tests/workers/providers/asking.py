"""How these tests ask a provider once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from core.errors import MeahError
from tests.fake_provider import FakeProvider
from workers.providers.base import Completion, CompletionRequest, Endpoint, RetryPolicy
from workers.providers.openai import OpenAICompatible

KEY_NAME = "MEAH_TEST_PROVIDER_KEY"
KEY = "sk-fake-4f9b2c7d1e8a6053zyxw"
REQUEST = CompletionRequest("fake-model", [{"role": "user", "content": "Say hello."}], 100)
NO_RETRY = RetryPolicy(0, 1)
LATE_S = 4.0


def endpoint(fake: FakeProvider | None, **options: Any) -> Endpoint:
    place = {"base_url": fake.base_url} if fake else {}
    return Endpoint("fake", **({"private": True} | place | options))


async def ask(place: Endpoint, *, within_s: float = 10.0, retry: RetryPolicy = NO_RETRY, **options: Any) -> Completion:
    provider = OpenAICompatible(place, **options)
    try:
        return await provider.complete(REQUEST, deadline=time.monotonic() + within_s, retry=retry)
    finally:
        await provider.aclose()


def failure(place: Endpoint, **options: Any) -> MeahError:
    with pytest.raises(MeahError) as caught:
        asyncio.run(ask(place, **options))
    return caught.value
