"""One worker from its start to its end: workspace, prompt, provider, result, row."""

from __future__ import annotations

import asyncio
import logging
import time

from audit.dbthread import in_db
from core.errors import JsonObject, MeahError
from core.logs import event
from core.redaction import StreamRedactor, redact, redact_value
from workers import services
from workers.config import effective
from workers.context_files import context_paths
from workers.endpoints import provider_for
from workers.housekeeping import workspace_root
from workers.models import PermissionProfile, Worker, WorkerState
from workers.prompt import ContextItem, Prompt, build
from workers.providers.base import Completion, CompletionRequest, ProviderFailure, RetryPolicy
from workers.roles import system_prompt
from workers.routing import Config, ProviderConfig
from workers.services import Outcome
from workers.workspace import Workspace

log = logging.getLogger("meah.workers")

PARTIAL_EVERY_S = 0.5


async def run_worker(worker: Worker, deadline: float) -> None:
    """Run a started worker and write how it ended. Cancelling the task cancels the request, then writes `cancelled`."""
    config = await in_db(effective)
    try:
        outcome = await _outcome(worker, config, deadline)
    except asyncio.CancelledError:
        await asyncio.shield(_finish(worker, await _cancelled(worker), config))
        return
    await _finish(worker, outcome, config)


async def _outcome(worker: Worker, config: Config, deadline: float) -> Outcome:
    try:
        return await _answer(worker, config, deadline)
    except MeahError as error:
        return _failed(worker, error, config)
    except Exception as error:
        event(log, "worker_failed_inside", level="error", worker=worker.public_id, exc_info=error)
        return Outcome(
            WorkerState.FAILED,
            error=MeahError("E_UNAVAILABLE", "MEAH itself failed here; its log says more."),
        )


async def _answer(worker: Worker, config: Config, deadline: float) -> Outcome:
    workspace = _open_workspace(worker, config)
    prompt = _prompt(worker, config)
    completion = await _complete(worker, config, prompt, deadline)
    text, cut = _stored(completion.text, config)
    if worker.permission_profile in (PermissionProfile.WORKSPACE_WRITE, PermissionProfile.WORKSPACE_EXEC):
        assert workspace is not None
        workspace.write("result.md", redact(completion.text).encode())
    return Outcome(
        WorkerState.SUCCEEDED,
        text=text,
        text_truncated=cut or completion.truncated,
        completion=completion,
        transcript=_transcript(prompt, completion.text, config),
        workspace="" if workspace is None else worker.public_id,
        notes=completion.notes,
    )


def _open_workspace(worker: Worker, config: Config) -> Workspace | None:
    if worker.permission_profile == PermissionProfile.NONE:
        return None
    workspace = Workspace(workspace_root(config), worker.public_id)
    workspace.create()
    for path, item in context_paths(_items(worker)):
        workspace.write(path, item.content.encode())
    return workspace


def _items(worker: Worker) -> list[ContextItem]:
    return [ContextItem(item["name"], item["content"]) for item in worker.context]


def _prompt(worker: Worker, config: Config) -> Prompt:
    return build(
        task=worker.task,
        system_prompt=system_prompt(worker.role, config.route(worker.role).system_prompt),
        context=_items(worker),
        constraints=worker.constraints,
        expected_output=worker.expected_output,
        max_context_chars=config.limits.max_context_chars,
    )


async def _complete(worker: Worker, config: Config, prompt: Prompt, deadline: float) -> Completion:
    provider = provider_for(_provider_config(worker, config))
    partial = Partial(worker.public_id)
    try:
        completion = await provider.complete(
            CompletionRequest(worker.model, prompt.messages, worker.max_output_tokens, worker.temperature),
            deadline=deadline,
            retry=RetryPolicy(config.limits.max_retries, config.limits.retry_base_ms),
            adaptations=await in_db(services.learned_adaptations, worker.provider, worker.model),
            on_text=partial.add,
        )
    finally:
        partial.close()
        await provider.aclose()
    if completion.adaptations_learned:
        await in_db(services.learn, worker.provider, worker.model, completion.adaptations_learned)
    return completion


def _provider_config(worker: Worker, config: Config) -> ProviderConfig:
    provider = config.provider(worker.provider)
    if provider is None:
        raise MeahError("E_CONFIG", f"The provider {worker.provider!r} is no longer configured.")
    return provider


class Partial:
    """Shows the text of a running worker in its row, at most twice a second."""

    def __init__(self, public_id: str) -> None:
        self._public_id = public_id
        self._redactor = StreamRedactor()
        self._text = ""
        self._shown_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    def add(self, piece: str) -> None:
        self._text = (self._text + self._redactor.feed(piece))[-services.MAX_PARTIAL_CHARS :]
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._show())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _show(self) -> None:
        await asyncio.sleep(max(0.0, self._shown_at + PARTIAL_EVERY_S - time.monotonic()))
        self._shown_at = time.monotonic()
        await in_db(services.update_partial, self._public_id, self._text)


def _stored(text: str, config: Config) -> tuple[str, bool]:
    """Redacted first, cut second: half a key would pass the redaction."""
    clean = redact(text)
    limit = config.limits.max_result_chars
    return clean[:limit], len(clean) > limit


def _transcript(prompt: Prompt, answer: str, config: Config) -> JsonObject | None:
    if not config.limits.retain_transcripts:
        return None
    transcript: JsonObject = redact_value({"messages": prompt.messages, "answer": answer})
    return transcript


def _failed(worker: Worker, error: MeahError, config: Config) -> Outcome:
    """A cut answer keeps the part that came, so that a person can see how far it got."""
    state = WorkerState.TIMED_OUT if error.code == "E_TIMEOUT" else WorkerState.FAILED
    text, cut = "", False
    if isinstance(error, ProviderFailure) and error.partial_text:
        text, _ = _stored(error.partial_text, config)
        cut = True
    return Outcome(state, text=text, text_truncated=cut, error=error, workspace=_workspace_name(worker, config))


async def _cancelled(worker: Worker) -> Outcome:
    reason = (await in_db(services.get, worker.public_id)).cancel_reason
    config = await in_db(effective)
    return Outcome(
        WorkerState.CANCELLED,
        error=services.cancelled_error(reason),
        workspace=_workspace_name(worker, config),
    )


def _workspace_name(worker: Worker, config: Config) -> str:
    return worker.public_id if (workspace_root(config) / worker.public_id).exists() else ""


async def _finish(worker: Worker, outcome: Outcome, config: Config) -> None:
    if config.limits.cleanup_workspace_on_finish and outcome.workspace:
        Workspace(workspace_root(config), worker.public_id).remove()
        outcome.workspace = ""
    await in_db(services.finish, worker, outcome)
