"""Starting a worker from a door that has no engine of its own: a console process is asked to run it."""

from __future__ import annotations

from approvals.governor import decide_now
from approvals.models import Process
from approvals.processes import living
from approvals.targets import CallRequest
from core.errors import JsonObject, MeahError
from workers.key_state import is_this_process
from workers.models import Worker
from workers.target import SERVER, Started


def start(arguments: JsonObject, *, principal: str, door: str) -> Worker:
    """Take a task, in the arguments of `meah_run_agent`, through the gate; it is queued when this returns.

    Raises MeahError: what the gate refuses, E_UNAVAILABLE when no console is there to run it.
    """
    return _start("meah_run_agent", arguments, principal=principal, door=door)


def rerun(worker: Worker, *, principal: str, door: str) -> Worker:
    """The same task again, at the same provider and model: a new worker that points to this one. Raises as `start`."""
    return _start("meah_rerun_agent", {"workerId": worker.public_id}, principal=principal, door=door)


def console_owner() -> str:
    """The public id of the console that will run it: this process where it is one, else the one that started last.

    Raises MeahError E_UNAVAILABLE when none is alive.
    """
    consoles = [process for process in living() if process.kind == Process.Kind.CONSOLE]
    if not consoles:
        raise MeahError(
            "E_UNAVAILABLE",
            "No MEAH console is running that could run this worker.",
            hint="Start one with `make run`, or `manage.py up`; then try again.",
            reason="no_console",
        )
    here = [process for process in consoles if is_this_process(process)]
    return (here or consoles)[0].public_id


def _start(tool: str, arguments: JsonObject, *, principal: str, door: str) -> Worker:
    request = CallRequest(
        principal=principal, server=SERVER, tool=tool, arguments=arguments, door=door, owner=console_owner()
    )
    outcome = decide_now(request)
    if outcome.approval is not None:
        raise MeahError(
            "E_DENIED",
            f"Policy holds this start for approval: request {outcome.approval['approvalId']}.",
            hint="It starts by itself once a person has approved it.",
            reason="held",
            details=outcome.approval,
        )
    started = outcome.result
    assert isinstance(started, Started)
    (worker,) = started.items
    assert isinstance(worker, Worker)
    return worker
