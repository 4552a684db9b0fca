"""The life of a worker. Each step is one transaction: the change of state, its entry in the chain, the bell.

Every step is a conditional UPDATE that says from which states it may leave; whoever loses a race changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from django.db import transaction
from django.db.models.functions import Now

from approvals.models import Call
from approvals.processes import dead_among, ring_after_commit
from approvals.services import is_halted
from audit.services import NewEntry, record, record_many
from core.errors import JsonObject, MeahError
from core.redaction import redact_value
from workers.models import PermissionProfile, Provider, ProviderModel, Worker, WorkerState
from workers.objects import cost_text
from workers.preparation import Prepared
from workers.prompt import Prompt
from workers.providers.base import Adaptation, Completion, Usage
from workers.routing import Price

MAX_PARTIAL_BYTES: Final = 65_536
SYSTEM: Final = "system"
# Left out of every query that does not show them.
LONG_COLUMNS: Final = ("task", "context", "result", "partial", "transcript")


@dataclass
class Outcome:
    """How a worker ended, as its runner knows it. `text` is redacted and cut already, `sent` the prompt, if one was.

    A cancelled one needs no error: it is made from the reason in the row.
    """

    state: WorkerState
    text: str = ""
    text_truncated: bool = False
    error: MeahError | None = None
    completion: Completion | None = None
    usage: Usage | None = None
    price: Price | None = None
    transcript: JsonObject | None = None
    sent: Prompt | None = None
    workspace: str = ""
    workspace_removed: bool = False
    notes: list[str] = field(default_factory=list)


def get(public_id: str) -> Worker:
    """Raises MeahError E_NOT_FOUND."""
    worker = Worker.objects.filter(public_id=public_id).first()
    if worker is None:
        raise MeahError(
            "E_NOT_FOUND",
            f"There is no worker {public_id}.",
            hint="meah_list_agents lists the workers there are.",
        )
    return worker


# -- queued ---------------------------------------------------------------------------------------------------------


def enqueue(
    prepared: Prepared, *, call: Call, owner: str, verdict: JsonObject, rerun_of: Worker | None = None
) -> tuple[Worker, NewEntry]:
    """Make the queued worker inside the caller's transaction; the entry is the caller's to record, last."""
    worker = Worker.objects.create(
        call=call,
        principal=call.principal,
        owner=owner,
        rerun_of=rerun_of,
        label=prepared.label,
        role=prepared.role,
        provider=prepared.choice.provider.name,
        model=prepared.choice.model,
        permission_profile=prepared.permission_profile,
        timeout_ms=prepared.timeout_ms,
        max_output_tokens=prepared.choice.max_output_tokens,
        temperature=prepared.choice.temperature,
        task=prepared.task,
        context=[{"name": item.name, "content": item.content} for item in prepared.context],
        constraints=prepared.constraints,
        expected_output=prepared.expected_output,
        context_truncated=prepared.prompt.context_truncated,
        dropped_context=list(prepared.prompt.dropped_context),
        redactions=prepared.redactions,
        commands=prepared.commands,
    )
    ring_after_commit()
    return worker, _queued_entry(worker, call, verdict)


def _queued_entry(worker: Worker, call: Call, verdict: JsonObject) -> NewEntry:
    data = _route(worker) | {
        "call": call.public_id,
        "tool": call.tool,
        "door": call.door,
        "verdict": verdict,
        "taskChars": len(worker.task),
        "contextItems": len(worker.context),
        "contextTruncated": worker.context_truncated,
        "redactions": worker.redactions,
        "timeoutMs": worker.timeout_ms,
        "maxOutputTokens": worker.max_output_tokens,
    }
    if worker.commands:
        data["commands"] = [command[0] for command in worker.commands]
    if worker.rerun_of is not None:
        data["rerunOf"] = worker.rerun_of.public_id
    return NewEntry("worker.queued", principal=worker.principal, subject=worker.public_id, data=data)


def _route(worker: Worker) -> JsonObject:
    return {
        "role": worker.role,
        "provider": worker.provider,
        "model": worker.model,
        "permissionProfile": worker.permission_profile,
    }


# -- running --------------------------------------------------------------------------------------------------------


def start_next(owner: str) -> Worker | None:
    """Claim the oldest queued worker of this process; None when there is none."""
    if is_halted():
        return None
    for worker in Worker.objects.queued_for(owner).defer(*LONG_COLUMNS)[:8]:
        # Said before there is one: should this process die, whatever it made can be found and removed.
        workspace = "" if worker.permission_profile == PermissionProfile.NONE else worker.public_id
        with transaction.atomic():
            claimed = Worker.objects.filter(pk=worker.pk, state=WorkerState.QUEUED).update(
                state=WorkerState.RUNNING, started_at=Now(), workspace=workspace
            )
            if claimed:
                ring_after_commit()
                record("worker.started", principal=SYSTEM, subject=worker.public_id, data=_route(worker))
        if claimed:
            return get(worker.public_id)
    return None


def last_bytes(text: str, max_bytes: int = MAX_PARTIAL_BYTES) -> str:
    """The end of the text that fits, in whole characters."""
    return text.encode("utf-8", "surrogatepass")[-max_bytes:].decode("utf-8", "ignore")


def update_partial(public_id: str, text: str) -> None:
    """Show what a running worker has answered so far: its last 64 KiB, redacted by the caller."""
    with transaction.atomic():
        Worker.objects.filter(public_id=public_id, state=WorkerState.RUNNING).update(partial=last_bytes(text))
        ring_after_commit()


# -- finished -------------------------------------------------------------------------------------------------------


def finish(worker: Worker, outcome: Outcome) -> bool:
    """Write how a running worker ended. False when something else had ended it already."""
    if outcome.state == WorkerState.CANCELLED and outcome.error is None:
        outcome.error = cancelled_error(get(worker.public_id).cancel_reason)
    values = _outcome_values(outcome)
    with transaction.atomic():
        changed = Worker.objects.filter(pk=worker.pk, state=WorkerState.RUNNING).update(**values)
        if changed:
            ring_after_commit()
            record_many([_finished_entry(worker, outcome, values)])
    return bool(changed)


def _outcome_values(outcome: Outcome) -> dict[str, Any]:
    cost = _cost(outcome)
    return {
        "state": outcome.state,
        "finished_at": Now(),
        "partial": "",
        "result": outcome.text,
        "result_truncated": outcome.text_truncated,
        "error": redact_value(outcome.error.as_dict()) if outcome.error else None,
        "transcript": outcome.transcript,
        "workspace": outcome.workspace,
        "notes": outcome.notes,
        "cost": cost,
        "currency": outcome.price.currency if outcome.price and cost is not None else "",
        **_sent_values(outcome.sent),
        **_usage_values(outcome.usage),
        **_completion_values(outcome.completion),
    }


def _sent_values(sent: Prompt | None) -> dict[str, Any]:
    """The limits may have changed since the worker was accepted: what counts is what was sent."""
    if sent is None:
        return {}
    return {"context_truncated": sent.context_truncated, "dropped_context": list(sent.dropped_context)}


def _usage_values(usage: Usage | None) -> dict[str, Any]:
    usage = usage or Usage()
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }


def _completion_values(completion: Completion | None) -> dict[str, Any]:
    if completion is None:
        return {}
    return {
        "finish_reason": completion.finish_reason,
        "resolved_model": (completion.resolved_model or "")[:200],
        "attempts": completion.attempts,
        "waited_ms": completion.waited_ms,
    }


def _cost(outcome: Outcome) -> Decimal | None:
    """Tokens times price, where all of both are known; otherwise unknown."""
    price, usage = outcome.price, outcome.usage
    if price is None or usage is None:
        return None
    asked = _amount(price.input_per_million, usage.input_tokens)
    said = _amount(price.output_per_million, usage.output_tokens)
    return None if asked is None or said is None else asked + said


def _amount(per_million: Decimal | None, tokens: int | None) -> Decimal | None:
    if per_million is None or tokens is None:
        return None
    return (per_million * tokens / 1_000_000).quantize(Decimal("0.00000001"))


def _finished_entry(worker: Worker, outcome: Outcome, values: dict[str, Any]) -> NewEntry:
    data: JsonObject = {
        "state": str(outcome.state),
        "resultChars": len(outcome.text),
        "inputTokens": values["input_tokens"],
        "outputTokens": values["output_tokens"],
        "cost": cost_text(values["cost"]),
        "currency": values["currency"] or None,
        "workspaceRemoved": outcome.workspace_removed,
    }
    if outcome.sent is not None:
        data["contextTruncated"] = outcome.sent.context_truncated
        data["contextDropped"] = len(outcome.sent.dropped_context)
    if outcome.error is not None:
        data["error"] = outcome.error.code
        if outcome.error.reason:
            data["reason"] = outcome.error.reason
    return NewEntry("worker.finished", principal=SYSTEM, subject=worker.public_id, data=data)


# -- cancelled ------------------------------------------------------------------------------------------------------


def request_cancel(worker: Worker, *, principal: str, reason: str = "") -> list[NewEntry]:
    """Inside the caller's transaction: end a queued worker at once, order a running one to stop.

    Returns what is to be recorded: without the reason, which is the caller's text, and nothing for a finished worker,
    so that a repeat changes nothing.
    """
    ended = Worker.objects.filter(pk=worker.pk, state=WorkerState.QUEUED).update(
        state=WorkerState.CANCELLED,
        finished_at=Now(),
        cancel_requested_at=Now(),
        cancel_reason=reason[:500],
        error=redact_value(cancelled_error(reason).as_dict()),
    )
    ordered = ended or Worker.objects.filter(
        pk=worker.pk, state=WorkerState.RUNNING, cancel_requested_at__isnull=True
    ).update(cancel_requested_at=Now(), cancel_reason=reason[:500])
    if not ordered:
        return []
    ring_after_commit()
    entries = [_entry("worker.cancel_requested", worker, principal, {})]
    if ended:
        entries.append(
            _entry(
                "worker.finished",
                worker,
                SYSTEM,
                {"state": "cancelled", "error": "E_CANCELLED", "resultChars": 0},
            )
        )
    return entries


def cancel_many(public_ids: Iterable[str], *, principal: str, reason: str) -> None:
    """Cancel several in one transaction of its own, for a caller that is not the gate."""
    with transaction.atomic():
        entries: list[NewEntry] = []
        for worker in Worker.objects.active().filter(public_id__in=list(public_ids)).defer(*LONG_COLUMNS):
            entries += request_cancel(worker, principal=principal, reason=reason)
        if entries:
            record_many(entries)


def cancel_all(reason: str) -> None:
    """Cancel whatever is active, of any process, as a halt does."""
    if active := list(Worker.objects.active().values_list("public_id", flat=True)):
        cancel_many(active, principal=SYSTEM, reason=reason)


def cancelled_error(reason: str = "") -> MeahError:
    return MeahError("E_CANCELLED", f"The worker was cancelled: {reason}." if reason else "The worker was cancelled.")


def _entry(kind: str, worker: Worker, principal: str, data: JsonObject) -> NewEntry:
    return NewEntry(kind, principal=principal, subject=worker.public_id, data=data)


# -- orphaned -------------------------------------------------------------------------------------------------------


def settle_orphans() -> int:
    """Fail the active workers of processes that have died. Nothing is resent. Returns how many there were."""
    owners = set(Worker.objects.active().order_by().values_list("owner", flat=True).distinct())
    dead = dead_among(owners) if owners else set()
    orphans = Worker.objects.active().filter(owner__in=dead).defer(*LONG_COLUMNS) if dead else ()
    error = MeahError(
        "E_UNAVAILABLE",
        "The MEAH process that ran this worker has ended; its answer, if any, is lost.",
        hint="Start it again: nothing is resent by itself.",
        retryable=True,
        reason="process_died",
    )
    return sum(_settle_orphan(worker, error) for worker in orphans)


def settle_lost(owner: str, *, but: Iterable[str]) -> int:
    """Fail the workers that this process calls running and does not run: their end could not be written.

    `but` are those that it does run. Returns how many there were.
    """
    lost = Worker.objects.filter(owner=owner, state=WorkerState.RUNNING).exclude(public_id__in=list(but))
    error = MeahError(
        "E_UNAVAILABLE",
        "MEAH could not write how this worker ended; its answer, if any, is lost.",
        hint="See MEAH's log and `manage.py doctor`; then start it again.",
        retryable=True,
        reason="outcome_lost",
    )
    return sum(_settle_orphan(worker, error) for worker in lost.defer(*LONG_COLUMNS))


def _settle_orphan(worker: Worker, error: MeahError) -> bool:
    with transaction.atomic():
        changed = Worker.objects.filter(pk=worker.pk, state__in=Worker.ACTIVE, owner=worker.owner).update(
            state=WorkerState.FAILED, finished_at=Now(), partial="", error=error.as_dict()
        )
        if changed:
            ring_after_commit()
            data = {"state": "failed", "error": error.code, "reason": error.reason, "resultChars": 0}
            record_many([_entry("worker.finished", worker, SYSTEM, data)])
    return bool(changed)


# -- learned --------------------------------------------------------------------------------------------------------


def learned_adaptations(provider: str, model: str) -> list[Adaptation]:
    row = ProviderModel.objects.filter(provider__name=provider, name=model).first()
    return [Adaptation(**item) for item in row.adaptations] if row else []


def learn(provider: str, model: str, adaptations: list[Adaptation]) -> None:
    """Remember what a model made the client change, with the answer that taught it."""
    learned = [
        {"field": item.field, "action": item.action, "value": item.value, "evidence": item.evidence}
        for item in adaptations
    ]
    fields = {str(item["field"]) for item in learned}
    with transaction.atomic():
        owner, is_new = Provider.objects.get_or_create(name=provider)
        ProviderModel.objects.get_or_create(provider=owner, name=model, defaults={"listed": False})
        row = ProviderModel.objects.select_for_update().get(provider=owner, name=model)
        kept = [item for item in row.adaptations if item["field"] not in fields]
        ProviderModel.objects.filter(pk=row.pk).update(adaptations=kept + learned, learned_at=Now())
        entries = [_provider_entry("added", provider, {"because": "adapted", "model": model})] if is_new else []
        record_many([*entries, _provider_entry("adapted", provider, {"model": model, "fields": sorted(fields)})])


def _provider_entry(verb: str, provider: str, data: JsonObject) -> NewEntry:
    return NewEntry(f"provider.{verb}", principal=SYSTEM, subject=provider, data=data)
