"""MEAH's own tools as the gate sees them: server `meah`. Whatever starts, changes or shows a worker passes here."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from approvals.models import Call, EffectClass
from approvals.policy import Verdict
from approvals.processes import living
from approvals.targets import Applied, CallContext, CallRequest, Checked, ToolFacts
from audit.dbthread import in_db
from audit.services import NewEntry
from core.errors import JsonObject, MeahError
from core.redaction import redact_value
from core.secrets import read_secret
from core.tasks import in_task
from workers import housekeeping, services
from workers.config import effective
from workers.models import Worker, WorkerState
from workers.objects import not_started, worker_object, worker_summary
from workers.preparation import Prepared, prepare, refuse_key_shaped, refuse_secrets
from workers.repeats import RerunIn, task_of
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

SERVER: Final = "meah"

READ: Final = ToolFacts(EffectClass.READ, recorded=False, local=True)
WRITE: Final = ToolFacts(EffectClass.WRITE, local=True)
DESTRUCTIVE: Final = ToolFacts(EffectClass.DESTRUCTIVE, local=True)
DELETING: Final = ToolFacts(EffectClass.DESTRUCTIVE)


@dataclass(frozen=True)
class Started:
    """The workers of a start, in request order; an item that could not start is its error object instead."""

    items: list[Worker | JsonObject]
    arguments: Arguments

    @property
    def public_ids(self) -> list[str]:
        return [item.public_id for item in self.items if isinstance(item, Worker)]


@dataclass(frozen=True)
class DryRun:
    """What would have been sent; nothing was started."""

    data: JsonObject


@dataclass(frozen=True)
class Cancelling:
    """A worker that was told to end, if it had not ended before."""

    public_id: str
    arguments: CancelIn


@dataclass(frozen=True)
class Ready:
    """Arguments that were looked at; of a start also what is to be queued. What takes time is done by then."""

    arguments: Any
    items: list[Prepared | JsonObject] = field(default_factory=list)
    rerun_of: Worker | None = None


Apply = Callable[[CallRequest, Ready, Call | None, Verdict], Any]


@dataclass(frozen=True)
class _Entry:
    """One tool: its arguments, what policy may know of it, how it gets ready, what it does."""

    schema: type[Arguments]
    facts: ToolFacts
    apply: Apply
    prepare: Callable[[Any], Ready] = Ready


class WorkersTarget:
    """Starts, cancels and reads are rows only; cleaning up deletes files, so it runs outside the transaction."""

    server = SERVER

    def __init__(self) -> None:
        self._entries = {
            "meah_list_models": _Entry(ListModelsIn, READ, _list_models),
            "meah_run_agent": _Entry(TaskIn, WRITE, _start, _ready_one),
            "meah_rerun_agent": _Entry(RerunIn, WRITE, _start, _ready_again),
            "meah_delegate_task": _Entry(DelegateIn, WRITE, _start, _ready_one),
            "meah_parallel_agents": _Entry(ParallelIn, WRITE, _start, _ready_many),
            "meah_get_agent": _Entry(GetIn, READ, _get),
            "meah_list_agents": _Entry(ListIn, READ, _list),
            "meah_cancel_agent": _Entry(CancelIn, DESTRUCTIVE, _cancel, _ready_to_cancel),
            "meah_cleanup_workspace": _Entry(CleanupIn, DELETING, _clean_up, _ready_to_clean_up),
        }

    def tools(self) -> Sequence[str]:
        return list(self._entries)

    def schema(self, tool: str) -> type[Arguments]:
        return self._find(tool).schema

    def facts(self, tool: str, arguments: JsonObject) -> ToolFacts:
        """A start of nothing but dry runs makes nothing and calls no one: it is a read."""
        entry = self._find(tool)
        facts = READ if entry.facts == WRITE and _is_dry(arguments) else entry.facts
        return replace(facts, schema=_schema_of(entry.schema))

    def check(self, request: CallRequest) -> Checked:
        """Defaults are made explicit, so that a rule can speak of them and a person sees them."""
        entry = self._find(request.tool)
        # Reading the configuration makes its key variables known; where it is wrong, starting a worker says so.
        with contextlib.suppress(MeahError):
            effective()
        refuse_secrets(request.arguments)
        arguments = parse(entry.schema, request.arguments)
        return Checked(arguments.model_dump(by_alias=True, exclude_none=True), entry.prepare(arguments))

    def needs(self, tool: str) -> Sequence[str]:
        return ()

    def apply(self, request: CallRequest, checked: Checked, call: Call | None, verdict: Verdict) -> Applied:
        applied: Applied = self._find(request.tool).apply(request, checked.value, call, verdict)
        return applied

    async def run(self, request: CallRequest, checked: Checked, context: CallContext) -> Any:
        # What is being deleted is deleted, and its row says so, whether or not the caller still waits.
        return await asyncio.shield(in_task(_clean_up_now(checked.value.arguments), name="clean-up"))

    def store(self, result: Any) -> Any:
        """Of workers only their ids are kept with the call: the workers keep everything else."""
        if isinstance(result, Started):
            return {"started": [item.public_id if isinstance(item, Worker) else item for item in result.items]}
        if isinstance(result, Cancelling):
            return {"cancelling": result.public_id}
        return result.data if isinstance(result, DryRun) else result

    def revive(self, request: CallRequest, checked: Checked, stored: Any) -> Any:
        arguments = checked.value.arguments
        if "started" in stored:
            items = [services.get(item) if isinstance(item, str) else item for item in stored["started"]]
            return Started(items, arguments)
        return Cancelling(stored["cancelling"], arguments) if "cancelling" in stored else stored

    def _find(self, tool: str) -> _Entry:
        if tool not in self._entries:
            raise MeahError("E_NOT_FOUND", f"There is no tool named {tool!r}.")
        return self._entries[tool]


_schema_of = cache(input_schema)


# -- starts ---------------------------------------------------------------------------------------------------------


def _is_dry(arguments: JsonObject) -> bool:
    items = arguments.get("workers", [arguments])
    return (
        isinstance(items, list)
        and bool(items)
        and all(isinstance(item, dict) and item.get("dryRun") is True for item in items)
    )


def _ready_one(task: TaskIn) -> Ready:
    prepared = prepare(task, effective())
    return Ready(task, [prepared.as_dry_run() if task.dry_run else prepared])


def _ready_again(arguments: RerunIn) -> Ready:
    original = services.get(arguments.worker_id)
    return Ready(arguments, [prepare(task_of(original), effective())], rerun_of=original)


def _ready_many(arguments: ParallelIn) -> Ready:
    config = effective()
    return Ready(arguments, [_ready_or_error(task, config) for task in arguments.workers])


def _ready_or_error(task: TaskIn, config: Config) -> Prepared | JsonObject:
    try:
        prepared = prepare(task, config)
    except MeahError as error:
        told = redact_value(error.as_dict())
        return not_started(told, label=task.label, role=task.role, permission_profile=task.permission_profile)
    return prepared.as_dry_run() if task.dry_run else prepared


def _start(request: CallRequest, ready: Ready, call: Call | None, verdict: Verdict) -> Applied:
    """Queue what is to be queued; what could not start, or only shows what would be, keeps its place."""
    items: list[Worker | JsonObject] = []
    entries: list[NewEntry] = []
    for item in ready.items:
        if isinstance(item, Prepared):
            assert call is not None
            worker, entry = services.enqueue(
                item, call=call, owner=request.owner, verdict=verdict.as_dict(), rerun_of=ready.rerun_of
            )
            items.append(worker)
            entries.append(entry)
        else:
            items.append(item)
    if isinstance(ready.arguments, TaskIn) and ready.arguments.dry_run:
        return Applied(DryRun(ready.items[0]))  # type: ignore[arg-type]  # of a dry run it is the object
    return Applied(Started(items, ready.arguments), entries, replaces_call_entries=True)


# -- reads ----------------------------------------------------------------------------------------------------------


def _get(request: CallRequest, ready: Ready, call: Call | None, verdict: Verdict) -> Applied:
    arguments: GetIn = ready.arguments
    worker = services.get(arguments.worker_id)
    return Applied(
        worker_object(worker, offset=arguments.offset, limit=arguments.limit, transcript=arguments.include_transcript)
    )


def _list(request: CallRequest, ready: Ready, call: Call | None, verdict: Verdict) -> Applied:
    arguments: ListIn = ready.arguments
    workers = Worker.objects.order_by("-pk").defer(*services.LONG_COLUMNS)
    if arguments.state:
        workers = workers.filter(state=arguments.state)
    if arguments.cursor:
        workers = workers.filter(pk__lt=_from_cursor(arguments.cursor))
    page = list(workers[: arguments.limit + 1])
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


def _list_models(request: CallRequest, ready: Ready, call: Call | None, verdict: Verdict) -> Applied:
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
        "keySet": read_secret(provider.api_key_env) is not None if provider.api_key_env else None,
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


def _ready_to_cancel(arguments: CancelIn) -> Ready:
    refuse_key_shaped(reason=arguments.reason)
    return Ready(arguments)


def _cancel(request: CallRequest, ready: Ready, call: Call | None, verdict: Verdict) -> Applied:
    arguments: CancelIn = ready.arguments
    worker = services.get(arguments.worker_id)
    entries = services.request_cancel(worker, principal=request.principal, reason=arguments.reason)
    return Applied(Cancelling(worker.public_id, arguments), entries)


def _ready_to_clean_up(arguments: CleanupIn) -> Ready:
    housekeeping.refuse_active(services.get(arguments.worker_id))
    return Ready(arguments)


def _clean_up(request: CallRequest, ready: Ready, call: Call | None, verdict: Verdict) -> Applied:
    raise NotImplementedError("files are deleted outside of the transaction, by `run`")


async def _clean_up_now(arguments: CleanupIn) -> JsonObject:
    """Deleting takes as long as the disk likes: not on the gate's only database thread."""
    worker = await in_db(services.get, arguments.worker_id)
    workspace = await in_db(housekeeping.finished_workspace, worker)
    removed = await asyncio.to_thread(workspace.remove)
    await in_db(housekeeping.forget_workspace, worker)
    return {"workerId": worker.public_id, "removed": removed}
