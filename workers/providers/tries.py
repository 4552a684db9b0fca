"""The tries of one call: how many, how long between them, and when to stop."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from core.errors import CODES, JsonObject
from workers.providers.base import ProviderFailure, RetryPolicy
from workers.providers.delays import CAP_S, FLOOR_S, backoff_s

RESERVE_S: Final = 0.1


class Tries:
    """Counts attempts and sleeps between them, all within one deadline (seconds of `time.monotonic`)."""

    def __init__(self, policy: RetryPolicy, *, deadline: float) -> None:
        self._policy = policy
        self.deadline = deadline
        self._started = time.monotonic()
        self._retries = 0
        self._spare_adaptation = 1
        self._waited_s = 0.0
        self._last: ProviderFailure | None = None
        self.attempts = 0

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    @property
    def budget_ms(self) -> int:
        return round((self.deadline - self._started) * 1000)

    @property
    def waited_ms(self) -> int:
        return round(self._waited_s * 1000)

    def begin(self) -> None:
        self.attempts += 1

    def may_adapt(self) -> bool:
        """One adapted attempt is free; more of them are paid from the retries."""
        return self._spare_adaptation > 0 or self._retries < self._policy.max_retries

    def adapt(self) -> None:
        if self._spare_adaptation:
            self._spare_adaptation -= 1
        else:
            self._retries += 1

    async def wait(self, failure: ProviderFailure) -> None:
        """Sleep until the next attempt, or raise the failure where there is to be none."""
        pause_s = self._pause_s(failure) if self._is_retried(failure) else None
        if pause_s is None:
            raise self.told(failure)
        self._retries += 1
        self._last = failure
        began = time.monotonic()
        await asyncio.sleep(pause_s)
        self._waited_s += time.monotonic() - began

    def told(self, failure: ProviderFailure) -> ProviderFailure:
        """The failure, with what was tried."""
        told: JsonObject = {"attempts": self.attempts, "waitedMs": self.waited_ms}
        if failure.retry_after_s is not None:
            told["retryAfterSec"] = round(failure.retry_after_s, 3)
        if self._last is not None and failure.code == "E_TIMEOUT":
            told["lastError"] = {"code": self._last.code, "message": self._last.message}
        failure.details.update(told)
        return failure

    def _is_retried(self, failure: ProviderFailure) -> bool:
        limit = self._policy.max_retries
        if failure.retry_limit is not None:
            limit = min(limit, failure.retry_limit)
        return failure.retryable and CODES[failure.code].retryable and self._retries < limit

    def _pause_s(self, failure: ProviderFailure) -> float | None:
        """Seconds to sleep; None where that would pass the deadline, or unasked be longer than anybody should sleep."""
        room_s = self.left_s - RESERVE_S
        pause_s = backoff_s(
            attempt=self._retries + 1,
            base_ms=self._policy.base_ms,
            cool_down=failure.cool_down,
            room_s=room_s,
        )
        most_s = min(room_s, CAP_S)
        if failure.retry_after_s is not None:
            pause_s, most_s = max(failure.retry_after_s, FLOOR_S), room_s
        if pause_s <= most_s:
            return pause_s
        if failure.retry_after_s is None:
            failure.retry_after_s = pause_s
        return None
