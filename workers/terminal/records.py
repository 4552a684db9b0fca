"""What the chain says of commands and of the sandbox that held them."""

from __future__ import annotations

from django.db import transaction

from approvals.processes import ring_after_commit
from audit.services import record
from core.errors import JsonObject
from core.redaction import redact_value
from workers.models import Worker
from workers.services import SYSTEM

from . import sandbox


def record_start(worker: Worker, *, sandboxed: bool) -> None:
    """Before the first command: whatever becomes of MEAH meanwhile, the chain says what was let loose, and in what."""
    data = {"commands": [argv[0] for argv in worker.commands], "sandboxed": sandboxed}
    with transaction.atomic():
        record("worker.commands_started", principal=SYSTEM, subject=worker.public_id, data=data)


def record_commands(worker: Worker, results: list[JsonObject]) -> None:
    """How a running worker's commands went; the chain says which, how they ended, and whether a sandbox held them."""
    told = [{**result, "argv": redact_value(result["argv"])} for result in results]
    with transaction.atomic():
        Worker.objects.filter(pk=worker.pk).update(command_results=told)
        ring_after_commit()
        entries = [{**result, "argv": result["argv"][:1]} for result in told]
        record("worker.commands_ran", principal=SYSTEM, subject=worker.public_id, data={"commands": entries})


def record_sandbox(why: str) -> None:
    """What the self-test of the sandbox has found in this process; `why` is empty where it holds."""
    data = {"holds": not why, "why": why, "unsandboxedAllowed": sandbox.is_unsandboxed_allowed()}
    with transaction.atomic():
        record("sandbox.tested", principal=SYSTEM, data=data)
