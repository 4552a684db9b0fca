"""The worker tools over MCP. A start goes through the gate; waiting for the worker is the tool's own business."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from approvals.decision import Outcome
from approvals.governor import submit
from approvals.targets import CallRequest
from approvals.tool import Caller, Handler, Tool
from audit.dbthread import in_db
from core.errors import JsonObject, MeahError
from core.logs import event
from core.tasks import in_task
from workers import services
from workers.models import Worker, WorkerState
from workers.objects import worker_object
from workers.pool import Pool
from workers.schemas import (
    DEFAULT_WAIT_MS,
    MAX_PAGE_CHARS,
    Arguments,
    CancelIn,
    CleanupIn,
    DelegateIn,
    GetIn,
    ListIn,
    ListModelsIn,
    ParallelIn,
    TaskIn,
    input_schema,
)
from workers.target import SERVER, Cancelling, DryRun, Started

log = logging.getLogger("meah.workers")

PROGRESS_EVERY_S: Final = 10.0
GRACE_MS: Final = 5_000
# How long the end of a cancelled worker is waited for, so that the answer can show it.
CANCELLED_WITHIN_S: Final = 3.0
ENDED_BADLY: Final = frozenset({WorkerState.FAILED, WorkerState.CANCELLED, WorkerState.TIMED_OUT})
POLL_HINT: Final = "Still at work: poll meah_get_agent with this workerId."


class WorkerTools:
    """Handlers over one process's pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def list_models(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        return await _data("meah_list_models", arguments, caller)

    async def run(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        started = await self._started("meah_run_agent", arguments, caller)
        if not isinstance(started, Started):
            return started
        return (await self._results(started, 0, caller))[0]

    async def delegate(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        started = await self._started("meah_delegate_task", arguments, caller)
        if not isinstance(started, Started):
            return started
        result = (await self._results(started, _delegate_wait_ms(started) / 1000, caller))[0]
        if result["state"] in ENDED_BADLY:
            raise _worker_failed(result)
        return result

    async def parallel(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        begun = time.monotonic()
        started = await self._started("meah_parallel_agents", arguments, caller)
        if not isinstance(started, Started):
            return started
        assert isinstance(started.arguments, ParallelIn)
        wait_s = started.arguments.wait_ms / 1000
        aggregate_ms = started.arguments.aggregate_timeout_ms
        if aggregate_ms is not None:
            left_s = max(0.0, begun + aggregate_ms / 1000 - time.monotonic())
            # It goes on when the answer has gone out before it ran down.
            in_task(self._expire(started, left_s, caller), name="expire-workers")
            wait_s = wait_s if wait_s < left_s else left_s + CANCELLED_WITHIN_S
        results = await self._results(started, wait_s, caller)
        states = [result.get("state") for result in results]
        return {
            "results": results,
            "succeeded": states.count(WorkerState.SUCCEEDED),
            "failed": sum(state in ENDED_BADLY for state in states),
        }

    async def get(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        return await _data("meah_get_agent", arguments, caller)

    async def list_agents(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        return await _data("meah_list_agents", arguments, caller)

    async def cancel(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        """The order is a row; here we wait a moment so that the answer can show the end of it."""
        outcome = await _submit("meah_cancel_agent", arguments, caller)
        if outcome.approval is not None:
            return outcome.approval
        cancelling: Cancelling = outcome.result
        public_id = cancelling.public_id
        await self.pool.wait([public_id], CANCELLED_WITHIN_S)
        worker = await in_db(services.get, public_id)
        if worker.is_active:
            more = "cleanupWorkspace was not done yet. " if cancelling.arguments.cleanup_workspace else ""
            return worker_object(worker) | {"next": f"It is told to stop. {more}Poll meah_get_agent."}
        if cancelling.arguments.cleanup_workspace:
            await _submit("meah_cleanup_workspace", {"workerId": public_id}, caller)
        return worker_object(worker)

    async def clean_up(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        return await _data("meah_cleanup_workspace", arguments, caller)

    async def _started(self, tool: str, arguments: JsonObject, caller: Caller) -> Started | JsonObject:
        """Queue what was asked for; of a dry run, or where a person has to approve it first, the answer to give.

        A call that is taken back meanwhile takes its workers with it.
        """
        self.pool.check_open()
        submitting = _submitting(tool, arguments, caller)
        try:
            outcome = await asyncio.shield(submitting)
        except asyncio.CancelledError:
            if caller.cancelled_on_purpose():
                in_task(self._take_back(submitting, caller), name="take-back")
            raise
        if outcome.approval is not None:
            return outcome.approval
        started: Started | DryRun = outcome.result
        return started.data if isinstance(started, DryRun) else started

    async def _take_back(self, submitting: asyncio.Task[Outcome], caller: Caller) -> None:
        try:
            outcome = await submitting
        except MeahError:
            return
        if isinstance(outcome.result, Started):
            await self._cancel(outcome.result, caller, "the client cancelled the call")

    async def _results(self, started: Started, wait_s: float, caller: Caller) -> list[JsonObject]:
        """Wait for the workers, telling the client every ten seconds, and say where everything stands then.

        A call that is taken back cancels its workers.
        """
        beat = in_task(_heartbeat(started, caller), name="heartbeat")
        try:
            await self.pool.look()
            if wait_s > 0:
                await self.pool.wait(started.public_ids, wait_s)
            return await in_db(_read_back, started)
        except asyncio.CancelledError:
            if caller.cancelled_on_purpose():
                in_task(self._cancel(started, caller, "the client cancelled the call"), name="cancel-workers")
            raise
        finally:
            beat.cancel()

    async def _expire(self, started: Started, left_s: float, caller: Caller) -> None:
        """Cancel what is left at that time; nothing when all have ended before."""
        assert isinstance(started.arguments, ParallelIn)
        await self.pool.wait(started.public_ids, left_s)
        budget_ms = started.arguments.aggregate_timeout_ms
        await self._cancel(started, caller, f"aggregateTimeoutMs of {budget_ms} ms ran out")

    async def _cancel(self, started: Started, caller: Caller, reason: str) -> None:
        await in_db(services.cancel_many, started.public_ids, principal=caller.principal, reason=reason)
        await self.pool.look()


def _submitting(tool: str, arguments: JsonObject, caller: Caller) -> asyncio.Task[Outcome]:
    request = CallRequest(
        principal=caller.principal,
        server=SERVER,
        tool=tool,
        arguments=arguments,
        door="mcp",
        owner=caller.owner,
        run=caller.run,
        step=caller.step,
        user_id=caller.user_id,
    )
    return in_task(submit(request), name=f"submit-{tool}")


async def _submit(tool: str, arguments: JsonObject, caller: Caller) -> Outcome:
    """Through the gate. What was begun there is done, and recorded as done, whether or not the client still waits."""
    return await asyncio.shield(_submitting(tool, arguments, caller))


async def _data(tool: str, arguments: JsonObject, caller: Caller) -> JsonObject:
    outcome = await _submit(tool, arguments, caller)
    data: JsonObject = outcome.result if outcome.approval is None else outcome.approval
    return data


def _delegate_wait_ms(started: Started) -> int:
    (worker,), arguments = started.items, started.arguments
    assert isinstance(worker, Worker) and isinstance(arguments, DelegateIn)
    if arguments.wait_ms is not None:
        return arguments.wait_ms
    return min(worker.timeout_ms + GRACE_MS, DEFAULT_WAIT_MS)


def _read_back(started: Started) -> list[JsonObject]:
    """Where everything stands now, in request order. One answer carries no more result text than one page."""
    workers = Worker.objects.filter(public_id__in=started.public_ids).defer("task", "context", "partial", "transcript")
    rows = {worker.public_id: worker for worker in workers}
    limit = _fair_limit([len(worker.result) for worker in rows.values()])
    return [_shown(rows[item.public_id], limit) if isinstance(item, Worker) else item for item in started.items]


def _shown(worker: Worker, limit: int) -> JsonObject:
    return worker_object(worker, limit=limit) | ({"next": POLL_HINT} if worker.is_active else {})


def _fair_limit(lengths: list[int]) -> int:
    """How much each result may say, so that all together fit on a page: short ones leave their rest to the others."""
    room, waiting = MAX_PAGE_CHARS, sorted(lengths)
    while waiting and waiting[0] <= room // len(waiting):
        room -= waiting.pop(0)
    return room // len(waiting) if waiting else MAX_PAGE_CHARS


def _worker_failed(worker: JsonObject) -> MeahError:
    error = MeahError.from_dict(worker["error"] or {"code": "E_PROVIDER"})
    error.details["worker"] = worker
    return error


async def _heartbeat(started: Started, caller: Caller) -> None:
    begun = time.monotonic()
    names = ", ".join(started.public_ids)
    while True:
        await asyncio.sleep(PROGRESS_EVERY_S)
        try:
            states = await in_db(_states, started.public_ids)
        except Exception as error:
            # The next beat may fare better.
            event(log, "heartbeat_missed", level="warn", exc_info=error)
            continue
        await caller.progress(f"{names}: {states}, {round(time.monotonic() - begun)} s")


def _states(public_ids: list[str]) -> str:
    states = list(Worker.objects.filter(public_id__in=public_ids).values_list("state", flat=True))
    return ", ".join(f"{states.count(state)} {state}" for state in WorkerState.values if state in states)


def tools(pool: Pool) -> list[Tool]:
    """The eight worker tools."""
    handlers = WorkerTools(pool)
    return [_tool(handlers, spec) for spec in _SPECS]


def listed() -> list[JsonObject]:
    """What `tools/list` says of them, without a pool to run anything."""
    return [tool.as_listed() for tool in tools(Pool(""))]


_Spec = tuple[str, str, type[Arguments], Callable[[WorkerTools], Handler], dict[str, Any], str]


def _tool(handlers: WorkerTools, spec: _Spec) -> Tool:
    name, title, schema, handler, hints, description = spec
    return Tool(name, title, description, input_schema(schema), handler(handlers), **hints)


_STARTS: Final = {"open_world": True}
_READS: Final = {"read_only": True}
_ENDS: Final = {"destructive": True, "idempotent": True}

_SPECS: Final[tuple[_Spec, ...]] = (
    (
        "meah_list_models",
        "List models and limits",
        ListModelsIn,
        lambda tools: tools.list_models,
        _READS,
        "List the configured providers, their models, role routes, limits and how busy MEAH is. "
        "Use before naming a provider or model. Says whether each key is set, never the key.",
    ),
    (
        "meah_run_agent",
        "Start a worker",
        TaskIn,
        lambda tools: tools.run,
        _STARTS,
        "Start one external LLM worker (GLM and others) and return it at once, unfinished; read it later by its "
        "workerId with meah_get_agent. For work that may run long; meah_delegate_task waits for the answer, "
        "meah_parallel_agents takes several. The worker has no tools and sees only this call; its answer is data "
        "to review. Spends provider tokens. E_INVALID_REQUEST: a wrong field, provider or model; E_PERMISSION: a "
        "key in the arguments; E_CONTEXT_LIMIT: the task is too long.",
    ),
    (
        "meah_delegate_task",
        "Delegate a task and wait",
        DelegateIn,
        lambda tools: tools.delegate,
        _STARTS,
        "Delegate one task to an external LLM worker and wait for its result: a second opinion, a draft, a review, "
        "a summary. Past waitMs it returns the worker unfinished; poll meah_get_agent then. A worker that fails is "
        "this call's error, with the worker in details.worker. Spends provider tokens; arguments and errors as "
        "meah_run_agent.",
    ),
    (
        "meah_parallel_agents",
        "Run several workers",
        ParallelIn,
        lambda tools: tools.parallel,
        _STARTS,
        "Run 1 to 16 tasks at once on external LLMs and wait: {results, succeeded, failed} in request order. One "
        "that fails, or can not start (workerId null), does not stop the others. What is unfinished after waitMs "
        "runs on: poll meah_get_agent. Spends provider tokens.",
    ),
    (
        "meah_get_agent",
        "Read a worker",
        GetIn,
        lambda tools: tools.get,
        _READS,
        "Read one worker: state, result, usage, cost, error; as often as wanted. Long results in pages: pass "
        "result.nextOffset as offset until it is null. Records stay, texts for 30 days by default. Unknown id: "
        "E_NOT_FOUND.",
    ),
    (
        "meah_list_agents",
        "List workers",
        ListIn,
        lambda tools: tools.list_agents,
        _READS,
        "List workers newest first, without their results: to find a workerId or see what runs; meah_get_agent reads "
        "one. More pages by nextCursor.",
    ),
    (
        "meah_cancel_agent",
        "Cancel a worker",
        CancelIn,
        lambda tools: tools.cancel,
        _ENDS,
        "Cancel a queued or running worker for good; tokens spent stay spent. Returns the worker; a finished one "
        "stays as it is. To only delete files use meah_cleanup_workspace. Unknown id: E_NOT_FOUND.",
    ),
    (
        "meah_cleanup_workspace",
        "Delete a worker's files",
        CleanupIn,
        lambda tools: tools.clean_up,
        _ENDS,
        "Delete a finished worker's directory for good; its record and result stay; a repeat succeeds. Queued or "
        "running: E_INVALID_REQUEST, use meah_cancel_agent first.",
    ),
)
