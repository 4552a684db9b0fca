"""Waiting for "something may have changed": one per process, rung by its engine whenever the bell rings."""

from __future__ import annotations

import asyncio


class Changes:
    """Many may wait; each ring wakes all of them once."""

    def __init__(self) -> None:
        self._next: asyncio.Event | None = None

    def ring(self) -> None:
        if self._next is not None:
            self._next.set()
            self._next = None

    def upcoming(self) -> asyncio.Event:
        """The event of the next ring. Take it before looking at the rows, so that no change falls between."""
        if self._next is None:
            self._next = asyncio.Event()
        return self._next


changes = Changes()
