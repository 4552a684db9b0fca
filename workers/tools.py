"""The worker tools over MCP. A start goes through the gate; waiting for the worker is the tool's own business."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from approvals.governor import submit
from approvals.targets import CallRequest
from approvals.tool import Caller, Handler, Tool
from audit.dbthread import in_db
from core.errors import JsonObject, MeahError
from workers import housekeeping, services
from workers.models import Worker, WorkerState
from workers.objects import worker_object, worker_summary
from workers.pool import Pool
from workers.schemas import (
    DEFAULT_WAIT_MS,
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
from workers.target import SERVER, DryRun, Started

PROGRESS_EVERY_S = 10.0
GRACE_MS = 5_000
POLL_HINT = "Still at work: poll meah_get_agent with this workerId."


class WorkerTools:
    """Handlers over one process's pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def list_models(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        return await _data("meah_list_models", arguments, caller)

    async def run(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        started = await _started("meah_run_agent", arguments, caller)
        if isinstance(started, DryRun):
            return started.data
        await self.pool.look()
        return (await self._objects(started))[0]

    async def delegate(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        started = await _started("meah_delegate_task", arguments, caller)
        if isinstance(started, DryRun):
            return started.data
        worker = started.items[0]
        assert isinstance(worker, Worker)
        wait_ms = arguments.get("waitMs")
        if wait_ms is None:
            wait_ms = min(worker.timeout_ms + GRACE_MS, DEFAULT_WAIT_MS)
        await self._wait(started, wait_ms / 1000, caller)
        result = (await self._objects(started))[0]
        if result["state"] in (WorkerState.FAILED, WorkerState.CANCELLED, WorkerState.TIMED_OUT):
            raise _worker_failed(result)
        return result

    async def parallel(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        started = await _started("meah_parallel_agents", arguments, caller)
        assert isinstance(started, Started)
        wait_s = arguments.get("waitMs", DEFAULT_WAIT_MS) / 1000
        aggregate_ms = arguments.get("aggregateTimeoutMs")
        if aggregate_ms is None:
            await self._wait(started, wait_s, caller)
        else:
            await self._wait_or_cancel(started, wait_s, aggregate_ms / 1000, caller)
        results = await self._objects(started)
        states = [result.get("state") for result in results]
        ended_badly = (WorkerState.FAILED, WorkerState.CANCELLED, WorkerState.TIMED_OUT)
        return {
            "results": results,
            "succeeded": states.count(WorkerState.SUCCEEDED),
            "failed": sum(state in ended_badly for state in states),
        }

    async def get(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        return await _data("meah_get_agent", arguments, caller)

    async def list_agents(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        return await _data("meah_list_agents", arguments, caller)

    async def cancel(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        """The order is a row; here we wait a moment so that the answer can show the end of it."""
        worker = await _submit("meah_cancel_agent", arguments, caller)
        await self.pool.look()
        worker = await in_db(services.get, worker.public_id)
        for _ in range(20):
            if not worker.is_active:
                break
            await asyncio.sleep(0.1)
            worker = await in_db(services.get, worker.public_id)
        if arguments.get("cleanupWorkspace") and not worker.is_active:
            await in_db(housekeeping.remove_workspace, worker)
        return await in_db(worker_object, worker)

    async def clean_up(self, arguments: JsonObject, caller: Caller) -> JsonObject:
        return await _data("meah_cleanup_workspace", arguments, caller)

    async def _objects(self, started: Started) -> list[JsonObject]:
        return await in_db(_read_back, started)

    async def _wait(self, started: Started, wait_s: float, caller: Caller) -> None:
        """Wait for the workers, telling the client every ten seconds; a cancelled call cancels them."""
        beat = asyncio.create_task(_heartbeat(started, caller))
        try:
            await self.pool.wait(started.public_ids, wait_s)
        except asyncio.CancelledError:
            if not caller.gave_up():
                await asyncio.shield(self._cancel(started, caller, "the client cancelled the call"))
            raise
        finally:
            beat.cancel()

    async def _wait_or_cancel(self, started: Started, wait_s: float, aggregate_s: float, caller: Caller) -> None:
        """The aggregate's clock goes on when the answer has gone out before it ran down."""
        expiry = asyncio.create_task(self._expire(started, aggregate_s, caller))
        _background.add(expiry)
        expiry.add_done_callback(_background.discard)
        await self._wait(started, min(wait_s, aggregate_s + 2.0), caller)

    async def _expire(self, started: Started, aggregate_s: float, caller: Caller) -> None:
        await asyncio.sleep(aggregate_s)
        await self._cancel(started, caller, f"aggregateTimeoutMs of {round(aggregate_s * 1000)} ms ran out")

    async def _cancel(self, started: Started, caller: Caller, reason: str) -> None:
        await in_db(services.cancel_many, started.public_ids, principal=caller.principal, reason=reason)
        await self.pool.look()


_background: set[asyncio.Task[None]] = set()


async def _submit(tool: str, arguments: JsonObject, caller: Caller) -> Any:
    return await submit(
        CallRequest(
            principal=caller.principal,
            server=SERVER,
            tool=tool,
            arguments=arguments,
            door="mcp",
            owner=caller.owner,
        )
    )


async def _data(tool: str, arguments: JsonObject, caller: Caller) -> JsonObject:
    data: JsonObject = await _submit(tool, arguments, caller)
    return data


async def _started(tool: str, arguments: JsonObject, caller: Caller) -> Started | DryRun:
    started: Started | DryRun = await _submit(tool, arguments, caller)
    return started


def _read_back(started: Started) -> list[JsonObject]:
    """Finished workers whole, unfinished ones as summaries that say how to go on."""
    rows = {worker.public_id: worker for worker in Worker.objects.filter(public_id__in=started.public_ids)}
    results = []
    for item in started.items:
        if isinstance(item, Worker):
            worker = rows[item.public_id]
            results.append(worker_summary(worker) | {"next": POLL_HINT} if worker.is_active else worker_object(worker))
        else:
            results.append(item)
    return results


def _worker_failed(worker: JsonObject) -> MeahError:
    error = MeahError.from_dict(worker["error"] or {"code": "E_PROVIDER"})
    error.details["worker"] = worker
    return error


async def _heartbeat(started: Started, caller: Caller) -> None:
    begun = time.monotonic()
    names = ", ".join(started.public_ids)
    while True:
        await asyncio.sleep(PROGRESS_EVERY_S)
        states = await in_db(_states, started.public_ids)
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


_STARTS = {"open_world": True}
_READS = {"read_only": True}
_ENDS = {"destructive": True, "idempotent": True}

_SPECS: tuple[_Spec, ...] = (
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
        "Start one external LLM worker (GLM and others) and return its workerId at once; read it later with "
        "meah_get_agent. Use for work that may run long; meah_delegate_task waits for the answer, "
        "meah_parallel_agents takes several. The worker has no tools and sees only this call: its answer is data "
        "to review. Costs provider tokens. E_INVALID_REQUEST names unknown providers, models or fields; "
        "E_CONTEXT_LIMIT a task that is too long.",
    ),
    (
        "meah_delegate_task",
        "Delegate a task and wait",
        DelegateIn,
        lambda tools: tools.delegate,
        _STARTS,
        "Delegate one bounded task to an external LLM and wait for its result: a second opinion, a draft, a review, "
        "a summary. Past waitMs it returns a summary; poll meah_get_agent then. Failure: the worker's error, "
        "with the worker in details.worker. Costs provider tokens; arguments as meah_run_agent.",
    ),
    (
        "meah_parallel_agents",
        "Run several workers",
        ParallelIn,
        lambda tools: tools.parallel,
        _STARTS,
        "Run 1 to 16 tasks at once on external LLMs and wait: {results, succeeded, failed} in request order; "
        "one failing does not stop the others. What is unfinished after waitMs comes back as a summary to poll.",
    ),
    (
        "meah_get_agent",
        "Read a worker",
        GetIn,
        lambda tools: tools.get,
        _READS,
        "Read one worker: state, result, usage, cost, error; as often as wanted. Long results in pages: pass "
        "result.nextOffset as offset. Texts are kept 30 days by default. Unknown id: E_NOT_FOUND.",
    ),
    (
        "meah_list_agents",
        "List workers",
        ListIn,
        lambda tools: tools.list_agents,
        _READS,
        "List workers newest first, without their texts: to find a workerId or see what runs. "
        "More pages by nextCursor.",
    ),
    (
        "meah_cancel_agent",
        "Cancel a worker",
        CancelIn,
        lambda tools: tools.cancel,
        _ENDS,
        "Cancel a queued or running worker for good; tokens spent stay spent. A finished one stays as it is. "
        "To only delete files use meah_cleanup_workspace.",
    ),
    (
        "meah_cleanup_workspace",
        "Delete a worker's files",
        CleanupIn,
        lambda tools: tools.clean_up,
        _ENDS,
        "Delete a finished worker's directory for good; its record and result stay. Queued or running: "
        "E_INVALID_REQUEST, cancel it first.",
    ),
)
