"""MEAH's own tools as the gate sees them: server `meah`. Whatever starts, changes or shows a worker passes here."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from approvals.models import Call, EffectClass
from approvals.processes import living
from approvals.policy import Verdict
from approvals.targets import Applied, CallContext, CallRequest, Checked, ToolFacts
from audit.dbthread import in_db
from core.errors import JsonObject, MeahError
from core.secrets import read_secret
from workers import housekeeping, services
from workers.config import effective
from workers.models import Worker, WorkerState
from workers.objects import not_started, worker_object, worker_summary
from workers.preparation import Prepared, prepare, refuse_secrets
from workers.roles import ROLES
from workers.routing import Config, ProviderConfig
from workers.schemas import (
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
    parse,
)

SERVER = "meah"

_input_schema = cache(input_schema)

READ = ToolFacts(EffectClass.READ, recorded=False, local=True)
WRITE = ToolFacts(EffectClass.WRITE, local=True)


@dataclass(frozen=True)
class Started:
    """The workers of a start, in request order; an item that could not start is its error object instead."""

    items: list[Worker | JsonObject]

    @property
    def public_ids(self) -> list[str]:
        return [item.public_id for item in self.items if isinstance(item, Worker)]


@dataclass(frozen=True)
class DryRun:
    """What would have been sent; nothing was started."""

    data: JsonObject


class WorkersTarget:
    """Starts, cancels and reads are rows only; cleaning up deletes files, so it runs outside the transaction."""

    server = SERVER

    def __init__(self) -> None:
        self._tools: dict[str, tuple[type[Arguments], ToolFacts, Callable[..., Any]]] = {
            "meah_list_models": (ListModelsIn, READ, _list_models),
            "meah_run_agent": (TaskIn, WRITE, _start_one),
            "meah_delegate_task": (DelegateIn, WRITE, _start_one),
            "meah_parallel_agents": (ParallelIn, WRITE, _start_many),
            "meah_get_agent": (GetIn, READ, _get),
            "meah_list_agents": (ListIn, READ, _list),
            "meah_cancel_agent": (CancelIn, ToolFacts(EffectClass.DESTRUCTIVE, local=True), _cancel),
            "meah_cleanup_workspace": (CleanupIn, ToolFacts(EffectClass.DESTRUCTIVE), _clean_up),
        }

    def tools(self) -> Sequence[str]:
        return list(self._tools)

    def schema(self, tool: str) -> type[Arguments]:
        return self._find(tool)[0]

    def facts(self, tool: str, arguments: JsonObject) -> ToolFacts:
        schema, facts, _ = self._find(tool)
        facts = replace(facts, schema=_input_schema(schema))
        # A dry run of one task makes nothing and calls no one: it is a read.
        if arguments.get("dryRun") is True and issubclass(schema, TaskIn):
            return replace(READ, schema=facts.schema)
        return facts

    def check(self, request: CallRequest) -> Checked:
        """Defaults are made explicit, so that a rule can speak of them and a person sees them."""
        refuse_secrets(request.arguments)
        value = parse(self.schema(request.tool), request.arguments)
        return Checked(value.model_dump(by_alias=True, exclude_none=True), value)

    def needs(self, tool: str) -> Sequence[str]:
        return ()

    def apply(self, request: CallRequest, checked: Checked, call: Call | None, verdict: Verdict) -> Applied:
        applied: Applied = self._find(request.tool)[2](request, checked.value, call, verdict)
        return applied

    async def run(self, request: CallRequest, checked: Checked, context: CallContext) -> Any:
        return await in_db(self._find(request.tool)[2], request, checked.value)

    def store(self, result: Any) -> Any:
        """Of workers only their ids are kept with the call: the workers keep everything else."""
        if isinstance(result, Started):
            return {"started": [item.public_id if isinstance(item, Worker) else item for item in result.items]}
        if isinstance(result, Worker):
            return {"worker": result.public_id}
        return result.data if isinstance(result, DryRun) else result

    def revive(self, stored: Any) -> Any:
        if "started" in stored:
            return Started([services.get(item) if isinstance(item, str) else item for item in stored["started"]])
        return services.get(stored["worker"]) if "worker" in stored else stored

    def _find(self, tool: str) -> tuple[type[Arguments], ToolFacts, Callable[..., Any]]:
        if tool not in self._tools:
            raise MeahError("E_NOT_FOUND", f"There is no tool named {tool!r}.")
        return self._tools[tool]


# -- starts ---------------------------------------------------------------------------------------------------------


def _start_one(request: CallRequest, task: TaskIn, call: Call | None, verdict: Verdict) -> Applied:
    prepared = prepare(task, effective())
    if task.dry_run or call is None:
        return Applied(DryRun(prepared.as_dry_run()))
    worker, entry = services.enqueue(prepared, call=call, owner=request.owner, verdict=verdict.as_dict())
    return Applied(Started([worker]), [entry], replaces_call_entries=True)


def _start_many(request: CallRequest, arguments: ParallelIn, call: Call | None, verdict: Verdict) -> Applied:
    assert call is not None
    config = effective()
    items: list[Worker | JsonObject] = []
    entries = []
    for task in arguments.workers:
        prepared = _prepared_or_error(task, config)
        if isinstance(prepared, Prepared) and not task.dry_run:
            worker, entry = services.enqueue(prepared, call=call, owner=request.owner, verdict=verdict.as_dict())
            items.append(worker)
            entries.append(entry)
        else:
            items.append(prepared.as_dry_run() if isinstance(prepared, Prepared) else prepared)
    return Applied(Started(items), entries, replaces_call_entries=True)


def _prepared_or_error(task: TaskIn, config: Config) -> Prepared | JsonObject:
    try:
        return prepare(task, config)
    except MeahError as error:
        return not_started(error.as_dict(), label=task.label, role=task.role)


# -- reads ----------------------------------------------------------------------------------------------------------


def _get(request: CallRequest, arguments: GetIn, call: Call | None, verdict: Verdict) -> Applied:
    worker = services.get(arguments.worker_id)
    return Applied(
        worker_object(worker, offset=arguments.offset, limit=arguments.limit, transcript=arguments.include_transcript)
    )


def _list(request: CallRequest, arguments: ListIn, call: Call | None, verdict: Verdict) -> Applied:
    workers = Worker.objects.order_by("-id")
    if arguments.state:
        workers = workers.filter(state=arguments.state)
    if arguments.cursor:
        workers = workers.filter(pk__lt=_from_cursor(arguments.cursor))
    page = list(
        workers.order_by("-pk").defer("task", "context", "result", "partial", "transcript")[: arguments.limit + 1]
    )
    more = len(page) > arguments.limit
    page = page[: arguments.limit]
    return Applied(
        {
            "workers": [worker_summary(worker) for worker in page],
            "nextCursor": _to_cursor(page[-1].pk) if more else None,
        }
    )


def _to_cursor(pk: int) -> str:
    return base64.urlsafe_b64encode(b"w1:%d" % pk).decode()


def _from_cursor(cursor: str) -> int:
    try:
        version, _, number = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        if version == "w1" and number.isascii() and number.isdigit() and len(number) < 19:
            return int(number)
    except ValueError:
        pass
    raise MeahError(
        "E_INVALID_REQUEST",
        "The cursor is not one of this list.",
        hint="Use nextCursor of the page before, or none.",
    )


def _list_models(request: CallRequest, arguments: ListModelsIn, call: Call | None, verdict: Verdict) -> Applied:
    config = effective()
    limits = config.limits
    mine = Worker.objects.filter(owner=request.owner)
    return Applied(
        {
            "providers": [_provider_object(provider) for provider in config.offered],
            "roles": [_role_object(role, config) for role in ROLES],
            "limits": {
                "maxConcurrent": limits.max_concurrent,
                "timeoutMs": limits.timeout_ms,
                "maxOutputTokens": limits.max_output_tokens,
                "maxContextChars": limits.max_context_chars,
                "maxResultChars": limits.max_result_chars,
                "maxRetries": limits.max_retries,
                "retainTranscripts": limits.retain_transcripts,
                "retentionDays": limits.retention_days,
            },
            "runtime": {
                "queued": mine.filter(state=WorkerState.QUEUED).count(),
                "running": mine.filter(state=WorkerState.RUNNING).count(),
                "capacity": limits.max_concurrent,
                "processes": len(living()),
            },
        }
    )


def _provider_object(provider: ProviderConfig) -> JsonObject:
    return {
        "name": provider.name,
        "description": provider.description,
        "model": provider.model or None,
        "models": list(provider.models),
        "private": provider.private,
        "keyVariable": provider.api_key_env or None,
        "keySet": bool(provider.api_key_env and read_secret(provider.api_key_env)) or not provider.api_key_env,
    }


def _role_object(role: str, config: Config) -> JsonObject:
    route = config.route(role)
    return {
        "name": role,
        "summary": ROLES[role].summary,
        "provider": route.provider or None,
        "model": route.model or None,
        "maxOutputTokens": route.max_output_tokens or config.limits.max_output_tokens,
        "temperature": route.temperature,
    }


# -- ends -----------------------------------------------------------------------------------------------------------


def _cancel(request: CallRequest, arguments: CancelIn, call: Call | None, verdict: Verdict) -> Applied:
    worker = services.get(arguments.worker_id)
    entries = services.request_cancel(worker, principal=request.principal, reason=arguments.reason)
    return Applied(worker, entries)


def _clean_up(request: CallRequest, arguments: CleanupIn) -> JsonObject:
    worker = services.get(arguments.worker_id)
    removed = housekeeping.remove_workspace(worker)
    return {"workerId": worker.public_id, "removed": removed}
