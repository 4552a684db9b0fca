"""A MEAH process that kills itself at one point of a call's life: `python -m tests.e2e.faults.crashing manage.py …`.

MEAH_CRASH_AT names the point, MEAH_CRASH_ON the tool whose call meets it, MEAH_CRASH_FILE the CRM's own file, in which
it counts what it did.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any, NoReturn

from meah_site.lab.sabotage_roles import run

POINTS = ("before_lease", "after_lease", "after_marker", "in_sending", "after_sending", "after_answer", "after_result")


def die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody gets here")


def arm() -> None:
    globals()[f"_arm_{os.environ['MEAH_CRASH_AT']}"]()


def _arm_before_lease() -> None:
    _executor()._lease = die


def _arm_after_lease() -> None:
    executor = _executor()
    lease = executor._lease

    def leased(*args: Any) -> bool:
        return bool(lease(*args)) and die()

    executor._lease = leased


def _arm_after_marker() -> None:
    """Of an approved call the executor writes it, of an allowed one the gate; both have committed when they return."""
    executor, governor = _executor(), _governor()
    start, decide = executor.start, governor.decide

    def started(*args: Any) -> Any:
        decision = start(*args)
        return die() if decision is not None else None

    def decided(*args: Any, **kwargs: Any) -> Any:
        decision = decide(*args, **kwargs)
        return die() if decision.outcome is None and decision.call is not None else decision

    executor.start, governor.decide = started, decided


def _arm_in_sending() -> None:
    """The bytes have left; whether the server has read them, nobody knows."""
    from gateway import children

    child: Any = children.Child
    write = child.write

    async def written(self: Any, data: bytes) -> None:
        await write(self, data)
        frame = json.loads(data)
        if frame.get("method") == "tools/call" and frame["params"]["name"] == _tool():
            die()

    child.write = written


def _arm_after_sending() -> None:
    """The server has done it, by its own count, and its answer has not been looked at."""
    target = _target()
    send = target.run

    async def sent(self: Any, request: Any, checked: Any, context: Any) -> Any:
        if request.tool != _tool():
            return await send(self, request, checked, context)
        before = _effects()
        answer = asyncio.ensure_future(send(self, request, checked, context))
        while _effects() == before and not answer.done():
            await asyncio.sleep(0.005)
        die()

    target.run = sent


def _arm_after_answer() -> None:
    target = _target()
    send = target.run

    async def answered(self: Any, request: Any, checked: Any, context: Any) -> Any:
        answer = await send(self, request, checked, context)
        return die() if request.tool == _tool() else answer

    target.run = answered


def _arm_after_result() -> None:
    governor = _governor()
    settle = governor.settle

    def settled(decision: Any, *args: Any) -> None:
        settle(decision, *args)
        if decision.request.tool == _tool():
            die()

    governor.settle = settled


def _tool() -> str:
    return os.environ["MEAH_CRASH_ON"]


def _executor() -> Any:
    from approvals import executor

    return executor


def _governor() -> Any:
    from approvals import governor

    return governor


def _target() -> Any:
    from gateway.target import GatewayTarget

    return GatewayTarget


def _effects() -> int:
    try:
        return len(json.loads(Path(os.environ["MEAH_CRASH_FILE"]).read_text())["effects"])
    except FileNotFoundError:
        return 0


if __name__ == "__main__":
    run(arm)
