"""Calls through the gateway's target to a real child process."""

from __future__ import annotations

from typing import Any

import pytest

from audit.dbthread import in_db
from core.errors import MeahError
from tests.gateway.support import call, gateway, learn, make_server, raw


@pytest.mark.parametrize("era", ["both", "legacy"])
def test_a_result_comes_as_the_server_sent_it(home: Any, run: Any, era: str) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw("raw", "--era", era))
        async with gateway() as running:
            await learn(running)
            result = await call("echo", {"text": "hi"})
        result.pop("resultType", None)
        assert result == {
            "content": [{"type": "text", "text": "hi"}],
            "structuredContent": {"text": "hi"},
            "_meta": {"server": "kept"},
        }

    run(scenario())


def test_a_tool_that_nobody_accepted_is_refused(home: Any, run: Any) -> None:
    async def scenario() -> None:
        await in_db(make_server, raw())
        async with gateway() as running:
            await running.pool.connection(raw()).open()
            with pytest.raises(MeahError) as refused:
                await call("echo", {"text": "hi"})
        assert (refused.value.code, refused.value.reason) == ("E_DENIED", "quarantined")

    run(scenario())
