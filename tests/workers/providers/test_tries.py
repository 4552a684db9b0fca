"""Waits between tries: what bounds them is the deadline."""

from __future__ import annotations

import asyncio
import time

import pytest

from workers.providers.base import ProviderFailure, RetryPolicy
from workers.providers.tries import Tries


async def is_waited_for(failure: ProviderFailure, *, left_s: float, base_ms: int = 1) -> bool:
    """Whether the wait begins; it is not sat out. False where the failure is raised at once."""
    tries = Tries(RetryPolicy(2, base_ms), deadline=time.monotonic() + left_s)
    tries.begin()
    waiting = asyncio.create_task(tries.wait(failure))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    if done:
        with pytest.raises(ProviderFailure):
            waiting.result()
        return False
    waiting.cancel()
    return True


@pytest.mark.parametrize(
    ("asked_s", "left_s", "waited"),
    [(60, 90, True), (121, 200, True), (900, 1_800, True), (121, 121, False), (900, 600, False)],
)
def test_a_wait_that_the_server_asks_for_is_bounded_by_the_deadline_alone(
    asked_s: float, left_s: float, waited: bool
) -> None:
    failure = ProviderFailure("E_RATE_LIMIT", "Busy", retry_after_s=asked_s)
    assert asyncio.run(is_waited_for(failure, left_s=left_s)) is waited
    assert failure.retry_after_s == asked_s


def test_a_wait_that_nobody_asked_for_is_capped() -> None:
    failure = ProviderFailure("E_RATE_LIMIT", "Busy", cool_down=60)
    assert not asyncio.run(is_waited_for(failure, left_s=3_600, base_ms=5_000))
    assert failure.retry_after_s is not None
