"""One worker from its start to its end: workspace, prompt, provider, result, row."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from typing import Final

from audit.dbthread import in_db
from core.errors import JsonObject, MeahError
from core.logs import event
from core.redaction import StreamRedactor
from core.tasks import in_task
from workers import services
from workers.config import effective
from workers.context_files import context_paths
from workers.endpoints import provider_for
from workers.housekeeping import workspace_root
from workers.models import PermissionProfile, Worker, WorkerState
from workers.prompt import ContextItem, Prompt, build, least_chars
from workers.providers.base import Adaptation, Completion, CompletionRequest, ProviderFailure, RetryPolicy
from workers.roles import system_prompt
from workers.routing import Config, Price, ProviderConfig
from workers.services import Outcome
from workers.terminal import probes, records
from workers.terminal.commands import as_context, checked, require_sandbox, run_all
from workers.workspace import RESULT_NAME, Workspace

log = logging.getLogger("meah.workers")

PARTIAL_EVERY_S: Final = 0.5
# A provider keeps the deadline itself, and says then what it had; this is for one that does not.
DEADLINE_GRACE_S: Final = 2.0
# While the database refuses the end of a worker it is tried again; after that the pool's sweep says that it is lost.
WRITE_AGAIN_AFTER_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
# So much is redacted at a time, in a thread: the loop goes on meanwhile, and a cancel comes in between.
SLICE_CHARS: Final = 16_384
# How long the redaction of the part that came before a failure may take.
FAILURE_WITHIN_S: Final = 10.0
NO_LIMIT: Final = 2**53
# What a growing text is looked at between two showings. Longer than what is shown by more than any secret is long.
FLOOD_MARGIN_CHARS: Final = 65_536
MAX_NEW_BYTES: Final = services.MAX_PARTIAL_BYTES + 4 * FLOOD_MARGIN_CHARS


class WorkerRun:
    """A started worker in a task of its own. The task never fails; its row says how the worker ended."""

    def __init__(self, worker: Worker, deadline: float) -> None:
        """`deadline` is in seconds of `time.monotonic`."""
        self.worker = worker
        self._deadline = deadline
        self._config = Config()
        self._prompt: Prompt | None = None
        self._asking: asyncio.Task[Outcome] | None = None
        self._cancelled = False
        self._asked = False
        self.task = in_task(self._run(), name=f"worker-{worker.public_id}")

    def cancel(self) -> None:
        """Abort the request; the row then says `cancelled`. Once the answer is there, nothing is left to cancel."""
        self._cancelled = True
        if self._asking is not None:
            self._asking.cancel()

    async def _run(self) -> None:
        """What can be cancelled is a task by itself: a cancel never hits the writing of the row."""
        self._asking = asyncio.create_task(self._outcome())
        if self._cancelled:
            self._asking.cancel()
        try:
            outcome = await self._asking
        except asyncio.CancelledError:
            outcome = Outcome(WorkerState.CANCELLED)
        self._asking = None
        await self._write(outcome)

    async def _outcome(self) -> Outcome:
        try:
            self._config = await in_db(effective)
            async with asyncio.timeout(self._deadline + DEADLINE_GRACE_S - time.monotonic()):
                return await self._answer()
        except TimeoutError:
            return Outcome(WorkerState.TIMED_OUT, error=MeahError("E_TIMEOUT"))
        except MeahError as error:
            return await self._failure(error)
        except Exception as error:
            event(log, "worker_failed_inside", level="error", worker=self.worker.public_id, exc_info=error)
            inside = MeahError("E_UNAVAILABLE", "MEAH itself failed here; its log says more.", retryable=False)
            return Outcome(WorkerState.FAILED, error=inside)

    async def _answer(self) -> Outcome:
        workspace = self._open_workspace()
        self._prompt = self._build_prompt(await self._command_output())
        completion = await self._complete(self._prompt)
        text, cut = await self._stored(completion.text)
        outcome = Outcome(
            WorkerState.SUCCEEDED,
            text=text,
            text_truncated=cut or completion.truncated,
            completion=completion,
            usage=completion.usage,
            price=self._price(),
            transcript=await self._transcript(text),
            notes=list(completion.notes),
        )
        if workspace is not None and self._writes_result:
            try:
                workspace.write(RESULT_NAME, text)
            except MeahError as error:
                # The answer is paid for: it stays, and the error says what is missing.
                outcome.state, outcome.error = WorkerState.FAILED, error
        return outcome

    async def _failure(self, error: MeahError) -> Outcome:
        """A cut answer keeps the part that came, so that a person can see how far it got."""
        state = WorkerState.TIMED_OUT if error.code == "E_TIMEOUT" else WorkerState.FAILED
        outcome = Outcome(state, error=error)
        if isinstance(error, ProviderFailure):
            outcome.usage, outcome.price = error.usage, self._price()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FAILURE_WITHIN_S):
                    outcome.text, _ = await self._stored(error.partial_text)
                    outcome.text_truncated = bool(outcome.text)
                    outcome.transcript = await self._transcript(outcome.text)
        return outcome

    # -- workspace and prompt ---------------------------------------------------------------------------------------

    @property
    def _writes_result(self) -> bool:
        return self.worker.permission_profile in (PermissionProfile.WORKSPACE_WRITE, PermissionProfile.WORKSPACE_EXEC)

    @property
    def _workspace(self) -> Workspace:
        return Workspace(workspace_root(self._config), self.worker.public_id)

    def _open_workspace(self) -> Workspace | None:
        if self.worker.permission_profile == PermissionProfile.NONE:
            return None
        workspace = self._workspace
        workspace.create()
        for path, item in context_paths(self._items):
            workspace.write(path, item.content)
        return workspace

    @property
    def _items(self) -> list[ContextItem]:
        return [ContextItem(item["name"], item["content"]) for item in self.worker.context]

    async def _command_output(self) -> list[ContextItem]:
        """Its commands are run first; what they said is material for the model. Raises as `checked`."""
        if not self.worker.commands:
            return []
        why, is_news = await probes.tested()
        if is_news:
            await in_db(records.record_sandbox, why)
        require_sandbox(why)
        workspace, config = self._workspace, self._config.terminal
        # Once more: what was allowed when it was queued may not be by now.
        commands = checked(self.worker.commands, config, profile_allows=True, workspaces=workspace.root)
        await in_db(records.record_start, self.worker, sandboxed=not why)
        results = await run_all(commands, workspace=workspace.path, config=config, sandboxed=not why)
        await in_db(records.record_commands, self.worker, [ran.as_dict() for ran in results])
        return as_context(results)

    def _build_prompt(self, command_output: list[ContextItem]) -> Prompt:
        worker = self.worker
        return build(
            task=worker.task,
            system_prompt=system_prompt(worker.role, self._config.route(worker.role).system_prompt),
            context=[*self._items, *command_output],
            constraints=worker.constraints,
            expected_output=worker.expected_output,
            max_context_chars=self._room(),
        )

    def _room(self) -> int:
        """What was accepted is sent, whatever the limit is by now; only a context that was cut already may shrink."""
        worker = self.worker
        if not worker.context_truncated and not worker.commands:
            return NO_LIMIT
        least = least_chars(task=worker.task, constraints=worker.constraints, expected_output=worker.expected_output)
        return max(self._config.limits.max_context_chars, least)

    # -- provider ---------------------------------------------------------------------------------------------------

    async def _complete(self, prompt: Prompt) -> Completion:
        worker, limits = self.worker, self._config.limits
        provider = provider_for(self._provider())
        partial = Partial(worker.public_id)
        self._asked = True
        try:
            completion = await provider.complete(
                CompletionRequest(worker.model, prompt.messages, worker.max_output_tokens, worker.temperature),
                deadline=self._deadline,
                retry=RetryPolicy(limits.max_retries, limits.retry_base_ms),
                adaptations=await in_db(services.learned_adaptations, worker.provider, worker.model),
                on_text=partial.add,
            )
        except ProviderFailure as error:
            await self._learn(error.adaptations_learned)
            raise
        finally:
            partial.close()
            await provider.aclose()
        await self._learn(completion.adaptations_learned)
        return completion

    async def _learn(self, adaptations: list[Adaptation]) -> None:
        """A lesson that can not be stored costs the next worker a retry, and this one nothing."""
        if not adaptations:
            return
        try:
            await in_db(services.learn, self.worker.provider, self.worker.model, adaptations)
        except Exception as error:
            event(log, "adaptations_not_stored", level="warn", worker=self.worker.public_id, exc_info=error)

    def _provider(self) -> ProviderConfig:
        provider = self._config.provider(self.worker.provider)
        if provider is None:
            raise MeahError("E_CONFIG", f"The provider {self.worker.provider!r} is no longer configured.")
        return provider

    def _price(self) -> Price | None:
        provider = self._config.provider(self.worker.provider)
        return provider.prices.get(self.worker.model) if provider else None

    # -- result -----------------------------------------------------------------------------------------------------

    async def _stored(self, text: str) -> tuple[str, bool]:
        """What is kept of an answer, and whether that is not all. Redacted first, cut second: half a key would pass."""
        limit = self._config.limits.max_result_chars
        clean, whole = await redacted(text, at_most_chars=limit)
        return clean, not whole

    async def _transcript(self, answer: str) -> JsonObject | None:
        """`answer` is redacted already."""
        if not self._config.limits.retain_transcripts or self._prompt is None:
            return None
        messages = [message | {"content": (await redacted(message["content"]))[0]} for message in self._prompt.messages]
        return {"messages": messages, "answer": answer}

    async def _write(self, outcome: Outcome) -> None:
        outcome.sent = self._prompt if self._asked else None
        outcome.workspace = await self._leave_workspace(outcome)
        for wait_s in (*WRITE_AGAIN_AFTER_S, None):
            try:
                await in_db(services.finish, self.worker, outcome)
                return
            except Exception as error:
                event(log, "worker_end_not_written", level="error", worker=self.worker.public_id, exc_info=error)
            if wait_s is not None:
                await asyncio.sleep(wait_s)

    async def _leave_workspace(self, outcome: Outcome) -> str:
        """Remove it where the settings say so. Its name while it is there, else an empty string."""
        if not self._workspace.exists():
            return ""
        if self._config.limits.cleanup_workspace_on_finish:
            try:
                outcome.workspace_removed = await asyncio.to_thread(self._workspace.remove)
                return ""
            except MeahError as error:
                outcome.notes.append(f"The workspace could not be removed: {error.message}")
        return self.worker.public_id


async def redacted(text: str, *, at_most_chars: int = NO_LIMIT) -> tuple[str, bool]:
    """The first characters of the redacted text, and whether that is the whole of it.

    Slice by slice in a thread, and no further than is wanted: however long the text is, the loop goes on. NUL, which
    PostgreSQL does not store, becomes a replacement character.
    """
    redactor = StreamRedactor()
    pieces: list[str] = []
    length = 0
    for start in range(0, len(text), SLICE_CHARS):
        pieces.append(await asyncio.to_thread(redactor.feed, text[start : start + SLICE_CHARS]))
        length += len(pieces[-1])
        if length > at_most_chars:
            break
    else:
        pieces.append(await asyncio.to_thread(redactor.flush))
    clean = "".join(pieces).replace("\0", "\ufffd")
    return clean[:at_most_chars], len(clean) <= at_most_chars


class Partial:
    """Shows the text of a running worker in its row, at most twice a second.

    What came since is redacted when it is shown, in a thread. Of a flood only the end is looked at.
    """

    def __init__(self, public_id: str) -> None:
        self._public_id = public_id
        self._shown_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._redactor = StreamRedactor()
        self._text = ""
        self._new: deque[str] = deque()
        self._new_bytes = 0
        self._flooded = False

    def add(self, piece: str) -> None:
        """Take the next piece of the answer; an empty one says that a new attempt begins, from nothing."""
        if not piece:
            self._begin()
        if len(piece) > MAX_NEW_BYTES:
            piece, self._flooded = piece[-MAX_NEW_BYTES:], True
        self._new.append(piece)
        self._new_bytes += size_of(piece)
        while self._new_bytes > MAX_NEW_BYTES and len(self._new) > 1:
            self._new_bytes -= size_of(self._new.popleft())
            self._flooded = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._show())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _show(self) -> None:
        await asyncio.sleep(max(0.0, self._shown_at + PARTIAL_EVERY_S - time.monotonic()))
        # Whether people see it grow is no matter of the worker's.
        with contextlib.suppress(Exception):
            await self._take()
            await in_db(services.update_partial, self._public_id, self._text)
        self._shown_at = time.monotonic()

    async def _take(self) -> None:
        """Add what is new to what is shown."""
        new, flooded = "".join(self._new), self._flooded
        self._new.clear()
        self._new_bytes, self._flooded = 0, False
        if flooded:
            self._redactor, self._text = StreamRedactor(), ""
        redactor = self._redactor
        clean = await asyncio.to_thread(_fed, redactor, new)
        if redactor is self._redactor:
            # After a gap the beginning may be the second half of a key.
            clean = clean[FLOOD_MARGIN_CHARS:] if flooded else clean
            self._text = services.last_bytes(self._text + clean)


def _fed(redactor: StreamRedactor, text: str) -> str:
    """In slices, so that no single search keeps the loop waiting."""
    slices = range(0, len(text), SLICE_CHARS)
    return "".join(redactor.feed(text[start : start + SLICE_CHARS]) for start in slices).replace("\0", "\ufffd")


def size_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
