"""A circuit breaker: a server that failed several times in a row is left alone for a while. Pure but for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from core.errors import MeahError

from .failures import AmbiguousError, NotSentError

FAILURES: Final = 5
OPEN_S: Final = 30.0

_TRANSIENT: Final = frozenset({"E_UNAVAILABLE", "E_NETWORK", "E_TIMEOUT", "E_RATE_LIMIT"})
# Of MEAH's own making, or an answer after all: they say nothing of whether the server is well.
_NO_SIGN: Final = frozenset({"backing_off", "breaker_open", "pool_full", "queued", "stopping", "quarantined"})


class Breaker:
    """Of one server. After `open_s` one call is let through; how that ends decides for all."""

    def __init__(
        self, *, failures: int = FAILURES, open_s: float = OPEN_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = failures
        self._open_s = open_s
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._trying = False

    def enter(self, server: str) -> None:
        """Ask before anything is started. Raises NotSentError while it is open."""
        if self._opened_at is None:
            return
        left = self._opened_at + self._open_s - self._clock()
        if left > 0 or self._trying:
            raise NotSentError(
                "E_UNAVAILABLE",
                f"The server {server} failed {self._failures} times in a row and is left alone"
                + (f" for {left:.0f} s." if left > 0 else " until one call has shown that it works again."),
                hint="Use something else meanwhile, or look at its page in the admin.",
                reason="breaker_open",
            )
        self._trying = True

    def leave(self, error: BaseException | None) -> None:
        """How the call ended: None for an answer. Whatever the server itself says, an error too, is an answer."""
        self._trying = False
        if error is None or (isinstance(error, MeahError) and not isinstance(error, NotSentError | AmbiguousError)):
            self._failures, self._opened_at = 0, None
        elif is_transient(error):
            self._failures += 1
            if self._failures >= self._limit:
                self._opened_at = self._clock()


def is_transient(error: BaseException) -> bool:
    """Whether it shows that the server could not be reached or did not answer."""
    return (
        isinstance(error, NotSentError | AmbiguousError)
        and error.code in _TRANSIENT
        and error.reason not in _NO_SIGN
        and not error.reason.startswith("answer_")
    )
