"""Tasks that nobody holds: they stay until they are done, and fail with a word in the log."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from core.tasks import in_task


def test_a_task_that_nobody_holds_is_not_collected(run: Any) -> None:
    async def main() -> None:
        done = asyncio.Event()

        async def work() -> None:
            await asyncio.sleep(0.05)
            gc.collect()
            await asyncio.sleep(0.05)
            done.set()

        in_task(work(), name="alone")
        gc.collect()
        await asyncio.wait_for(done.wait(), 5)

    run(main())


def test_what_it_raises_is_logged_and_warns_of_nothing(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise RuntimeError("no")

    async def main() -> None:
        in_task(fail(), name="failing")
        await asyncio.sleep(0.05)
        gc.collect()

    with caplog.at_level(logging.DEBUG, logger="meah.tasks"):
        run(main())
    (record,) = caplog.records
    assert record.getMessage() == "task_failed" and "RuntimeError" in str(record.exc_info)


def test_its_result_can_be_waited_for(run: Any) -> None:
    async def answer() -> int:
        return 42

    async def main() -> int:
        return await in_task(answer(), name="answering")

    assert run(main()) == 42
