"""Drives one step of a run: its attempts, retries and polls, until it has a result, failed, or waits for a person."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final

from approvals.conditions import equal
from approvals.governor import DEFAULT_TIMEOUT_S, submit
from approvals.models import EffectClass
from approvals.outcomes import MAX_STORED_BYTES
from approvals.targets import CallContext, CallRequest, target_of
from approvals.verification import is_error
from audit.dbthread import in_db
from core.errors import JsonObject, MeahError

from . import method_runs
from .manifest import Poll, Step
from .method_runs import Progress
from .models import MethodStep, StepState
from .references import UnresolvedReferenceError, look_up, parse_path, resolve
from .step_failure import CHILD_ERROR, DENIED, POLL_EXHAUSTED, TIMEOUT, StepFailure

DOOR: Final = "method"
# A call that another process had begun: its outcome comes once that process is known to be dead.
IN_PROGRESS_S: Final = 0.5
MAX_BACKOFF_MS: Final = 30_000
MAX_RESULT_BYTES: Final = 10 * MAX_STORED_BYTES


class Parked(Exception):  # noqa: N818 - nothing is wrong
    """The step waits for a person."""


class StepDriver:
    """For all steps of one run, while one process drives it. Its clock is the run's."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._limit_ms = progress.manifest.spec.timeout_ms
        self._counted_from = time.monotonic()
        self.parked: set[str] = set()

    def count_time(self) -> None:
        """Add what has passed to what the run has spent; nobody counts while it is parked."""
        now = time.monotonic()
        self._progress.spent_ms += round((now - self._counted_from) * 1000)
        self._counted_from = now

    async def drive(self, step: Step, row: MethodStep) -> None:
        """Until the row says done. Raises StepFailure, Parked, UnresolvedReferenceError, LostClaimError."""
        arguments = resolve(step.args, {"input": self._progress.input, "steps": self._progress.results()})
        # The last attempt of a driver that died: what became of it is not known here, but the gate knows.
        is_repeated = row.state == StepState.RUNNING
        while True:
            try:
                if row.state != StepState.WAITING and not is_repeated:
                    row.attempts += 1
                is_repeated = False
                result = await self._attempt(step, row, arguments)
                if step.poll is None or _has_come(step.poll, result):
                    await self._done(row, result)
                    return
                await self._poll_again(step.poll, row)
            except StepFailure as failure:
                await self._try_again(step, row, failure)

    async def _done(self, row: MethodStep, result: Any) -> None:
        text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
        if len(text.encode("utf-8", "surrogatepass")) > MAX_RESULT_BYTES:
            raise StepFailure(CHILD_ERROR)
        row.result, row.state, row.approval = text, StepState.DONE, ""
        await self._save(row)

    async def _poll_again(self, poll: Poll, row: MethodStep) -> None:
        row.polls += 1
        if row.polls >= poll.max_attempts:
            raise StepFailure(POLL_EXHAUSTED)
        await self._pause(poll.interval_ms)

    async def _try_again(self, step: Step, row: MethodStep, failure: StepFailure) -> None:
        """Only what the author called safe is ever sent again."""
        row.failures += 1
        retry = step.retry
        if retry is None or not failure.again or row.failures >= retry.max_attempts:
            raise failure
        await self._pause(min(MAX_BACKOFF_MS, retry.backoff_ms * 2 ** (row.failures - 1)))

    # -- one attempt

    async def _attempt(self, step: Step, row: MethodStep, arguments: JsonObject) -> Any:
        """The result of one call. Raises StepFailure, Parked."""
        began = time.monotonic()
        try:
            if row.state == StepState.WAITING:
                result = await self._decided(step, row)
            else:
                result = await self._called(step, row, arguments)
        except MeahError as error:
            raise StepFailure.of(error) from error
        finally:
            row.duration_ms += round((time.monotonic() - began) * 1000)
        if is_error(result):
            raise StepFailure(CHILD_ERROR, again=True)
        return result

    async def _decided(self, step: Step, row: MethodStep) -> Any:
        """What became of the request that it waits for: the gate has made the call, or never will."""
        answered = await in_db(method_runs.answer_of, row)
        if answered is None:
            self.parked.add(step.id)
            raise Parked
        row.state, row.approval = StepState.RUNNING, ""
        result, error = answered
        if error is not None:
            raise error
        return result

    async def _called(self, step: Step, row: MethodStep, arguments: JsonObject) -> Any:
        """Written down first, so that whoever goes on after a crash asks for the very same call."""
        row.state = StepState.RUNNING
        await self._save(row)
        server_s = await in_db(self._looked_at, step, arguments)
        request = CallRequest(
            principal=self._progress.principal,
            server=step.server,
            tool=step.tool,
            arguments=arguments,
            door=DOOR,
            owner=self._progress.owner,
            run=self._progress.public_id,
            step=f"{step.id}#{row.attempts}",
            user_id=self._progress.user_id,
        )
        while True:
            own_s = server_s if step.timeout_ms is None else step.timeout_ms / 1000
            limit_s = min(own_s, self._left_ms() / 1000)
            try:
                outcome = await submit(request, CallContext(timeout_s=limit_s))
                break
            except MeahError as error:
                if error.code != "E_IN_PROGRESS":
                    raise
                await asyncio.sleep(IN_PROGRESS_S)
        if outcome.approval is None:
            return outcome.result
        row.state, row.approval = StepState.WAITING, outcome.approval["approvalId"]
        await self._save(row)
        self.parked.add(step.id)
        raise Parked

    def _looked_at(self, step: Step, arguments: JsonObject) -> float:
        """How long its server is waited for (s). A Method that says it reads does nothing else."""
        facts = target_of(step.server).facts(step.tool, arguments)
        if not self._progress.manifest.writes and facts.effect_class != EffectClass.READ:
            raise StepFailure(DENIED)
        return facts.timeout_s or DEFAULT_TIMEOUT_S

    # -- time

    def _left_ms(self) -> int:
        """Of the run's time. Raises StepFailure where nothing is left."""
        self.count_time()
        left = self._limit_ms - self._progress.spent_ms
        if left <= 0:
            raise StepFailure(TIMEOUT)
        return left

    async def _pause(self, milliseconds: int) -> None:
        await asyncio.sleep(min(milliseconds, self._left_ms()) / 1000)
        self._left_ms()

    async def _save(self, row: MethodStep) -> None:
        self.count_time()
        await in_db(method_runs.save_step, self._progress, row)


def _has_come(poll: Poll, result: Any) -> bool:
    try:
        return equal(look_up(result, parse_path(poll.path)), poll.equals)
    except UnresolvedReferenceError:
        return False
