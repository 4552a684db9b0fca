"""The rows of a run: started, claimed, carried on, parked, ended. Sync, each a transaction with its entry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from approvals import outcomes
from approvals.holds import refuse_while_halted
from approvals.models import Approval, ApprovalState, Call
from approvals.processes import dead_among, ring_after_commit
from audit.services import NewEntry, commitment, record_many
from core.canonical import canonical_text, digest
from core.errors import JsonObject, MeahError
from core.redaction import redact_value

from . import methods
from .jsonschemas import violations
from .manifest import Manifest, Step, stored, with_defaults
from .models import MethodRun, MethodStep, MethodVersion, RunState, StepState

CLAIMS_AT_ONCE: Final = 16
_RESULT_TAG: Final = "meah/result/v1"

_DENIED: Final[Mapping[str, str]] = {
    ApprovalState.REJECTED: "A person rejected it.",
    ApprovalState.EXPIRED: "Nobody decided in time.",
    ApprovalState.VOID: "Its approval became void.",
}


class LostClaimError(Exception):
    """Somebody else drives the run now, or it has ended."""


@dataclass
class Progress:
    """How far a run has come, as its driver knows it; written through `save_step` and the functions that end it."""

    pk: int
    public_id: str
    claim: int
    owner: str
    principal: str
    user_id: int | None
    manifest: Manifest
    input: JsonObject
    spent_ms: int
    steps: dict[str, MethodStep] = field(default_factory=dict)

    def step_of(self, step: Step) -> MethodStep:
        """Its row, made (unsaved) where it has not begun."""
        position = self.manifest.spec.steps.index(step)
        return self.steps.setdefault(step.id, MethodStep(run_id=self.pk, step=step.id, position=position))

    def in_state(self, *states: str) -> list[str]:
        return [name for name, row in self.steps.items() if row.state in states]

    def results(self) -> dict[str, Any]:
        """The results of the steps that are done, for references."""
        return {name: json.loads(row.result) for name, row in self.steps.items() if row.state == StepState.DONE}


# -- starting ---------------------------------------------------------------------------------------------------------


def start(
    version: MethodVersion,
    given: JsonObject,
    *,
    principal: str,
    door: str,
    owner: str,
    user_id: int | None,
    allow_writes: bool,
) -> MethodRun:
    """A run that `owner` drives, or (empty) whoever takes it first. Raises MeahError before anything was made."""
    refuse_while_halted(True)
    manifest = stored(version.manifest)
    if manifest.writes and not methods.writes_allowed(allow_writes):
        raise MeahError(
            "E_DENIED",
            f"{version.method.name} has the effects {version.effects}, and Methods may not write here.",
            hint="An operator allows it: `runmcp --allow-writes`, or the gateway settings.",
            reason="writes_not_allowed",
        )
    value = with_defaults(manifest.spec.input_schema, given)
    if wrong := violations(manifest.spec.input_schema, value, noun="input"):
        raise MeahError(
            "E_INVALID_REQUEST",
            f"The input does not fit the Method's input schema: {'; '.join(wrong)}",
            hint="mcp_discover with kind method shows the schema.",
            reason="input",
            details={"errors": wrong},
        )
    with transaction.atomic():
        run = MethodRun.objects.create(
            version=version,
            principal=principal,
            requested_by_id=user_id,
            door=door,
            owner=owner,
            claims=1 if owner else 0,
            input=canonical_text(value),
        )
        ring_after_commit()
        record_many([_entry("run.started", run, {"input": commitment(value)[0], "door": door})])
    return run


# -- claiming ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """The right to drive a run, until somebody else has a higher one."""

    pk: int
    public_id: str
    number: int


def load(claim: Claim) -> Progress:
    """What its driver needs."""
    run = MethodRun.objects.select_related("version").get(pk=claim.pk)
    progress = Progress(
        pk=run.pk,
        public_id=run.public_id,
        claim=claim.number,
        owner=run.owner,
        principal=run.principal,
        user_id=run.requested_by_id,
        manifest=stored(run.version.manifest),
        input=json.loads(run.input),
        spent_ms=run.spent_ms,
    )
    progress.steps = {row.step: row for row in run.steps.all()}
    return progress


def claim(owner: str, *, allow_writes: bool) -> list[Claim]:
    """Take the runs that this process may go on with: parked ones that were decided, and what nobody drives.

    The process that began a run goes on with it while it lives; else the first one that looks.
    """
    runs = list(MethodRun.objects.filter(state__in=MethodRun.OPEN).select_related("version"))
    if not runs:
        return []
    free = {"", *dead_among({run.owner for run in runs} - {owner, ""})}
    decided = _decided({run.pk for run in runs if run.state == RunState.PENDING_APPROVAL})
    may_write = methods.writes_allowed(allow_writes)
    ready = [
        run
        for run in runs
        if (run.pk in decided and run.owner in free | {owner}) or (run.state == RunState.RUNNING and run.owner in free)
        if may_write or run.version.effects == "read"
    ]
    taken = [run for run in ready[:CLAIMS_AT_ONCE] if _claimed(run, owner)]
    return [Claim(run.pk, run.public_id, run.claims + 1) for run in taken]


def _decided(parked: set[int]) -> set[int]:
    """Parked runs of which at least one request has been decided, and its call is over."""
    waiting = MethodStep.objects.filter(run__in=parked, state=StepState.WAITING).values_list("run", "approval")
    names = {approval: run for run, approval in waiting}
    approvals = Approval.objects.filter(public_id__in=names).select_related("call")
    return {names[approval.public_id] for approval in approvals if not is_open(approval)}


def is_open(approval: Approval) -> bool:
    """Whether a person has to decide still, or what they approved has not run yet."""
    if approval.state == ApprovalState.APPROVED:
        return approval.call.state in Call.OPEN
    return approval.state == ApprovalState.PENDING


def _claimed(run: MethodRun, owner: str) -> bool:
    was = MethodRun.objects.filter(pk=run.pk, state=run.state, owner=run.owner, claims=run.claims)
    with transaction.atomic():
        taken = bool(was.update(state=RunState.RUNNING, owner=owner, claims=F("claims") + 1))
        if taken and run.state == RunState.PENDING_APPROVAL:
            record_many([_entry("run.resumed", run, {})])
    return taken


# -- carrying on ------------------------------------------------------------------------------------------------------


def save_step(progress: Progress, row: MethodStep) -> None:
    """Write how far a step has come. Raises LostClaimError where the run is not this driver's any more."""
    with transaction.atomic():
        _still_mine(progress, spent_ms=progress.spent_ms)
        row.save()


def answer_of(row: MethodStep) -> tuple[Any, MeahError | None] | None:
    """What became of the call that a step waits for: its result or its error; None while it is open."""
    approval = Approval.objects.select_related("call").get(public_id=row.approval)
    if is_open(approval):
        return None
    if approval.state != ApprovalState.APPROVED or approval.call.state not in Call.ENDED:
        why = _DENIED.get(approval.state, "It was not sent.")
        return None, MeahError("E_DENIED", why, reason=str(approval.state))
    if approval.call.error is not None:
        return None, MeahError.from_dict(approval.call.error)
    try:
        return outcomes.result_of(approval.call), None
    except MeahError as error:
        return None, error


def park(progress: Progress) -> None:
    """Nothing can go on before a person has decided."""
    waiting = [progress.steps[name].approval for name in progress.in_state(StepState.WAITING)]
    with transaction.atomic():
        _still_mine(progress, spent_ms=progress.spent_ms, state=RunState.PENDING_APPROVAL)
        ring_after_commit()
        run = MethodRun.objects.select_related("version__method").get(pk=progress.pk)
        record_many([_entry("run.parked", run, {"approvals": waiting})])


def complete(progress: Progress, output: Any) -> None:
    text = json.dumps(output, ensure_ascii=False, separators=(",", ":"))
    state = RunState.COMPLETED_WITH_GAPS if progress.in_state(StepState.GAP) else RunState.COMPLETED
    _end(progress, state, {"output": text})


def fail(progress: Progress, error: MeahError) -> None:
    _end(progress, RunState.FAILED, {"error": redact_value(error.as_dict())})


def _end(progress: Progress, state: RunState, values: dict[str, Any]) -> None:
    with transaction.atomic():
        _still_mine(progress, state=state, spent_ms=progress.spent_ms, finished_at=Now(), **values)
        MethodStep.objects.filter(run=progress.pk, state__in=[StepState.RUNNING, StepState.WAITING]).update(
            state=StepState.FAILED
        )
        ring_after_commit()
        run = MethodRun.objects.select_related("version__method").get(pk=progress.pk)
        record_many([_entry(f"run.{state}", run, _outcome(run, progress))])


def _outcome(run: MethodRun, progress: Progress) -> JsonObject:
    data: JsonObject = {"durationMs": run.spent_ms, "gaps": len(progress.in_state(StepState.GAP))}
    if run.error is not None:
        data["error"] = run.error["code"]
    if run.output:
        whole = run.output.encode("utf-8", "surrogatepass")
        data["output"] = {"bytes": len(whole), "digest": digest(_RESULT_TAG, whole)}
    return data


def _still_mine(progress: Progress, **values: Any) -> None:
    mine = MethodRun.objects.filter(pk=progress.pk, state=RunState.RUNNING, owner=progress.owner, claims=progress.claim)
    if not mine.update(**values):
        raise LostClaimError(progress.public_id)


def _entry(kind: str, run: MethodRun, data: JsonObject) -> NewEntry:
    named = {"method": run.version.method.name, "version": run.version.version, "digest": run.version.digest}
    return NewEntry(kind, run.principal, run.public_id, named | data)


# -- reading ----------------------------------------------------------------------------------------------------------


def find(public_id: str, *, principal: str = "") -> MethodRun:
    """The run, which has to be that principal's where one is given. Raises MeahError E_NOT_FOUND."""
    run = MethodRun.objects.select_related("version__method").filter(public_id=public_id).first()
    if run is None or (principal and run.principal != principal):
        raise MeahError("E_NOT_FOUND", f"There is no run {public_id} of yours.")
    return run


def as_answer(run: MethodRun) -> JsonObject:
    """A run as `mcp_run` answers it."""
    rows = list(run.steps.all())
    steps = {step.id: step for step in stored(run.version.manifest).spec.steps}
    waiting = [row.approval for row in rows if row.state == StepState.WAITING]
    found: JsonObject = {
        "runId": run.public_id,
        "approvalId": waiting[0] if waiting else None,
        "method": run.version.method.name,
        "version": run.version.version,
        "status": str(run.state),
        "output": json.loads(run.output) if run.output else None,
        "gaps": [_gap(row, steps[row.step]) for row in rows if row.gap],
        "trace": [
            {
                "step": row.step,
                "server": steps[row.step].server,
                "tool": steps[row.step].tool,
                "status": str(row.state),
                "attempts": row.attempts,
                "durationMs": row.duration_ms,
            }
            for row in rows
        ],
    }
    if waiting:
        found["next"] = "A person decides: follow approval_status with this approvalId, or read the run by its runId."
    elif run.state == RunState.RUNNING:
        found["next"] = "It is still running: read it with mcp_run and only this runId."
    elif run.purged_at:
        found["next"] = "Its texts were purged."
    return found


def _gap(row: MethodStep, step: Step) -> JsonObject:
    assert row.gap is not None
    named = {"step": row.step, "server": step.server, "tool": step.tool}
    return {"code": row.gap["code"], **named, "message": row.gap["message"]}


def purge_texts(*, older_than_days: int) -> int:
    """Empty the inputs, outputs and results of runs that ended so many days ago; how many runs."""
    before = timezone.now() - timedelta(days=older_than_days)
    ended = MethodRun.objects.filter(Q(finished_at__lt=before), purged_at=None)
    with transaction.atomic():
        MethodStep.objects.filter(run__in=ended).update(result="")
        return ended.update(input="{}", output="", purged_at=Now())
