"""Drives runs of Methods. Each attempt of a step is a call of its own through the gate; the run's state is rows.

So any process may go on with a run whose driver has gone, and with one that was parked until a person had decided: the
gate knows each attempt by its name, and never sends it twice.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Final

from audit.dbthread import in_db
from core.errors import JsonObject, MeahError
from core.logs import event
from core.tasks import in_task

from . import method_runs, methods
from .jsonschemas import violations
from .method_runs import Claim, LostClaimError, Progress
from .models import MethodRun, StepState
from .references import UnresolvedReferenceError, resolve
from .step_driver import Parked, StepDriver
from .step_failure import CHILD_ERROR, DEPENDENCY_GAP, StepFailure

log = logging.getLogger("meah.runner")

STEPS_AT_ONCE: Final = 16
STOP_WITHIN_S: Final = 1.0


class Runner:
    """One per process; `look` is cheap, and may be called at any time from the process's event loop."""

    def __init__(self, owner: str, *, allow_writes: bool = False) -> None:
        self.owner = owner
        self.allow_writes = allow_writes
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._taken_back: set[str] = set()
        self._stopped = False

    async def start(
        self, method: str, version: str, given: JsonObject, *, principal: str, user_id: int | None = None
    ) -> str:
        """Begin a run in the background; its public id. Raises MeahError before anything has happened."""
        run = await in_db(self._started, method, version, given, principal, user_id)
        self._drive(Claim(run.pk, run.public_id, run.claims))
        return run.public_id

    def _started(self, method: str, version: str, given: JsonObject, principal: str, user_id: int | None) -> MethodRun:
        return method_runs.start(
            methods.runnable(method, version),
            given,
            principal=principal,
            door="mcp",
            owner=self.owner,
            user_id=user_id,
            allow_writes=self.allow_writes,
        )

    async def look(self) -> None:
        """Go on with what waits for somebody to go on with it."""
        if self._stopped:
            return
        for claim in await in_db(method_runs.claim, self.owner, allow_writes=self.allow_writes):
            self._drive(claim)

    async def wait(self, public_id: str, seconds: float) -> None:
        """Until the run is over or parked, or the time is."""
        task = self._tasks.get(public_id)
        if task is not None:
            await asyncio.wait([task], timeout=seconds)

    def is_running(self, public_id: str) -> bool:
        """Whether this process drives it now."""
        return public_id in self._tasks

    def take_back(self, public_id: str) -> None:
        """Its caller wants it no more: it ends as failed, and sends nothing further."""
        if (task := self._tasks.get(public_id)) is not None:
            self._taken_back.add(public_id)
            task.cancel()

    async def stop(self) -> None:
        """Let go of all runs; whoever looks next goes on with them."""
        self._stopped = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_WITHIN_S)

    def _drive(self, claim: Claim) -> None:
        task = asyncio.create_task(self._run(claim), name=f"run-{claim.public_id}")
        self._tasks[claim.public_id] = task
        task.add_done_callback(lambda _: self._forget(claim.public_id, task))

    def _forget(self, public_id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(public_id) is task:
            del self._tasks[public_id]
        self._taken_back.discard(public_id)

    async def _run(self, claim: Claim) -> None:
        public_id = claim.public_id
        progress = await in_db(method_runs.load, claim)
        try:
            await Walk(progress).go()
        except LostClaimError:
            event(log, "run_lost", level="info", run=public_id)
        except asyncio.CancelledError:
            if public_id in self._taken_back:
                error = MeahError("E_CANCELLED", "The run was taken back by its caller.")
                in_task(in_db(method_runs.fail, progress, error), name="run-taken-back")
            raise
        except Exception as error:
            event(log, "run_stumbled", level="error", run=public_id, exc_info=error)
            inside = MeahError("E_UNAVAILABLE", "MEAH itself failed here; its log says more.", retryable=False)
            await in_db(method_runs.fail, progress, inside)


class Walk:
    """One driver's way through one run, from wherever it stands to its end or to where a person has to decide."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._spec = progress.manifest.spec
        self._driver = StepDriver(progress)
        self._failure: MeahError | None = None

    async def go(self) -> None:
        """Raises LostClaimError."""
        running: dict[asyncio.Task[None], str] = {}
        try:
            while True:
                for step in self._ready(set(running.values())):
                    running[asyncio.create_task(self._step(step), name=f"step-{step}")] = step
                if not running:
                    break
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del running[task]
                    task.result()
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)
        await self._conclude()

    def _ready(self, running: set[str]) -> list[str]:
        """Steps that can begin, or go on: one, or in a parallel Method all whose dependencies are over."""
        if self._failure is not None:
            return []
        over = set(self._progress.in_state(StepState.DONE, StepState.GAP))
        failed = self._progress.in_state(StepState.FAILED)
        if failed:
            return []
        parked = self._driver.parked
        ready = []
        for step in self._spec.steps:
            if step.id in over:
                continue
            if step.id not in running and step.id not in parked and step.dependencies <= over:
                ready.append(step.id)
            if not self._spec.parallel:
                break
        room = (STEPS_AT_ONCE if self._spec.parallel else 1) - len(running)
        return ready[: max(0, room)]

    async def _step(self, step_id: str) -> None:
        step = next(step for step in self._spec.steps if step.id == step_id)
        row = self._progress.step_of(step)
        try:
            if step.dependencies & set(self._progress.in_state(StepState.GAP)):
                raise StepFailure(DEPENDENCY_GAP)
            await self._driver.drive(step, row)
        except Parked:
            return
        except StepFailure as failure:
            row.gap = failure.gap
            row.state = StepState.GAP if step.on_error == "gap" else StepState.FAILED
            await in_db(method_runs.save_step, self._progress, row)
            if row.state == StepState.FAILED:
                self._failure = self._failure or failure.as_error(step.id)
        except UnresolvedReferenceError as missing:
            row.state = StepState.FAILED
            await in_db(method_runs.save_step, self._progress, row)
            self._failure = self._failure or _unresolved(missing, f"steps.{step.id}")

    async def _conclude(self) -> None:
        self._driver.count_time()
        if self._failure is None and (failed := self._progress.in_state(StepState.FAILED)):
            # It failed just before its driver died.
            gap = self._progress.steps[failed[0]].gap or {"code": CHILD_ERROR}
            self._failure = StepFailure(gap["code"]).as_error(failed[0])
        if self._failure is None and self._progress.in_state(StepState.WAITING):
            await in_db(method_runs.park, self._progress)
            return
        try:
            output = self._output() if self._failure is None else None
        except MeahError as error:
            self._failure = error
        if self._failure is not None:
            await in_db(method_runs.fail, self._progress, self._failure)
        else:
            await in_db(method_runs.complete, self._progress, output)

    def _output(self) -> Any:
        """Raises MeahError where it refers to nothing, does not fit its schema, or is too large."""
        results = self._progress.results()
        gaps = frozenset(self._progress.in_state(StepState.GAP))
        if self._spec.output is None:
            output = _own_result(results.get(self._spec.steps[-1].id))
        else:
            try:
                scope = {"input": self._progress.input, "steps": results}
                output = resolve(self._spec.output, scope, absent_steps=gaps)
            except UnresolvedReferenceError as missing:
                raise _unresolved(missing, "output") from missing
        if self._spec.output_schema is not None and (
            wrong := violations(self._spec.output_schema, output, noun="output")
        ):
            raise MeahError(
                "E_PROVIDER",
                f"The output does not fit the Method's output schema: {'; '.join(wrong)}",
                hint="The Method, or a server that it calls, has to be corrected.",
                retryable=False,
                reason="output_schema",
            )
        self._refuse_large(output)
        return output

    def _refuse_large(self, output: Any) -> None:
        size = len(json.dumps(output, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
        if size > self._spec.max_output_bytes:
            raise MeahError(
                "E_PROVIDER",
                f"The output has {size:,} bytes; the Method allows {self._spec.max_output_bytes:,}.",
                hint="Ask for less at once.",
                retryable=False,
                reason="output_too_large",
            )


def _own_result(result: Any) -> Any:
    """What a step has to say: its structured content, else its content."""
    if not isinstance(result, dict):
        return None
    return result.get("structuredContent", result.get("content"))


def _unresolved(missing: UnresolvedReferenceError, where: str) -> MeahError:
    return MeahError(
        "E_INVALID_REQUEST",
        f"{where}: {missing}.",
        hint="The input, or an earlier step's result, does not have it.",
        reason="unresolved_reference",
        details={"reference": missing.path},
    )
