"""The database threads: how asynchronous code reaches services and models.

One thread with one connection serves the gate (`in_db`), a second one what takes long (`in_background`: verify,
export, purge), so that the gate never waits for those. Both start at their first use, and again in a forked child.

A job that was handed over always runs to its end. Cancelling the coroutine that awaits it only stops the waiting: the
result is dropped, the effect stays. Otherwise a client that goes away could lose the entry of what was already done.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Final, ParamSpec, TypeVar

from django.db import close_old_connections, connections

P = ParamSpec("P")
T = TypeVar("T")


class _Lane:
    """One thread, made when it is first needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.forget()

    def forget(self) -> None:
        """Drop the thread without touching it: in a forked child it does not exist."""
        self._lock = Lock()
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, job: Callable[[], T]) -> Future[T]:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, thread_name_prefix=self._name)
            return self._executor.submit(job)

    def shutdown(self) -> None:
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.submit(connections.close_all)
            executor.shutdown(wait=True)


_GATE: Final = _Lane("meah-db")
_BACKGROUND: Final = _Lane("meah-db-background")


def _forget_threads() -> None:
    _GATE.forget()
    _BACKGROUND.forget()


os.register_at_fork(after_in_child=_forget_threads)


async def _run(lane: _Lane, func: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    def job() -> T:
        _refresh_connections()
        return func(*args, **kwargs)

    return await asyncio.shield(asyncio.wrap_future(lane.submit(job)))


def _refresh_connections() -> None:
    """Drop a connection that broke, and keep a whole one whatever CONN_MAX_AGE says: that is meant for requests."""
    for connection in connections.all(initialized_only=True):
        connection.close_at = None
    close_old_connections()


async def in_db(func: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run one service call on the gate's database thread; jobs run one after another, in order of arrival."""
    return await _run(_GATE, func, *args, **kwargs)


async def in_background(func: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run something long on the second database thread, with a connection of its own."""
    return await _run(_BACKGROUND, func, *args, **kwargs)


def shutdown() -> None:
    """Let running jobs end, then close both threads and their connections; blocks. A later call starts them anew."""
    _GATE.shutdown()
    _BACKGROUND.shutdown()
