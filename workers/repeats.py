"""From a worker's record back to the task it had."""

from __future__ import annotations

from core.errors import MeahError
from workers.models import Worker
from workers.schemas import Arguments, ContextItemIn, TaskIn, WorkerId


class RerunIn(Arguments):
    """Arguments of `meah_rerun_agent`: no tool of agents, but the admin's button."""

    worker_id: WorkerId


def task_of(worker: Worker) -> TaskIn:
    """The task that this worker had, to be given again. Raises MeahError E_INVALID_REQUEST once it is purged."""
    if worker.purged_at is not None or not worker.task:
        raise MeahError(
            "E_INVALID_REQUEST",
            f"The task of {worker.public_id} is no longer kept, so it can not be run again.",
            hint="Start a new worker with the task in full.",
            reason="purged",
        )
    return TaskIn(
        task=worker.task,
        role=worker.role,
        provider=worker.provider,
        model=worker.model,
        context=[ContextItemIn(**item) for item in worker.context],
        constraints=worker.constraints,
        expected_output=worker.expected_output,
        timeout_ms=worker.timeout_ms,
        max_output_tokens=worker.max_output_tokens,
        temperature=worker.temperature,
        permission_profile=worker.permission_profile,
        commands=worker.commands,
        label=worker.label,
    )
