"""The wire form of a worker: one object on every door."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Final

from core.canonical import utc_text
from core.errors import JsonObject
from workers.models import Worker, WorkerState
from workers.schemas import MAX_PAGE_CHARS

SUMMARY_FIELDS: Final = (
    "workerId",
    "label",
    "role",
    "state",
    "provider",
    "model",
    "permissionProfile",
    "timeoutMs",
    "createdAt",
    "startedAt",
    "finishedAt",
    "purgedAt",
    "durationMs",
    "contextTruncated",
    "droppedContext",
    "redactions",
    "usage",
    "cost",
    "finishReason",
    "error",
)
USAGE_FIELDS: Final = ("inputTokens", "outputTokens", "reasoningTokens")


def worker_object(
    worker: Worker, *, offset: int = 0, limit: int = MAX_PAGE_CHARS, transcript: bool = False
) -> JsonObject:
    """The whole worker, with at most `limit` characters of its result from `offset`; what is unknown is None.

    Once its texts were purged (`purgedAt`) there is no result.
    """
    data = worker_summary(worker) | {"result": _result(worker, offset, limit)}
    if transcript:
        data["transcript"] = worker.transcript
    return data


def worker_summary(worker: Worker) -> JsonObject:
    """The short form: the same object without its result. Reads no column that holds a long text."""
    return {
        "workerId": worker.public_id,
        "label": worker.label or None,
        "role": worker.role,
        "state": worker.state,
        "provider": worker.provider,
        "model": worker.model,
        "permissionProfile": worker.permission_profile,
        "timeoutMs": worker.timeout_ms,
        "createdAt": _time(worker.created_at),
        "startedAt": _time(worker.started_at),
        "finishedAt": _time(worker.finished_at),
        "purgedAt": _time(worker.purged_at),
        "durationMs": worker.duration_ms,
        "contextTruncated": worker.context_truncated,
        "droppedContext": worker.dropped_context,
        "redactions": worker.redactions,
        "usage": {
            "inputTokens": worker.input_tokens,
            "outputTokens": worker.output_tokens,
            "reasoningTokens": worker.reasoning_tokens,
        },
        "cost": cost_text(worker.cost),
        "finishReason": worker.finish_reason or None,
        "error": worker.error,
    }


def not_started(error: JsonObject, *, label: str, role: str, permission_profile: str) -> JsonObject:
    """An item of a parallel call that could not start: a worker without an id, of which little else is known."""
    known: JsonObject = {
        "label": label or None,
        "role": role,
        "state": WorkerState.FAILED.value,
        "permissionProfile": permission_profile,
        "usage": dict.fromkeys(USAGE_FIELDS),
        "error": error,
    }
    return dict.fromkeys((*SUMMARY_FIELDS, "result")) | known


def cost_text(cost: Decimal | None) -> str | None:
    """A decimal string in the price's currency, without trailing zeros."""
    return None if cost is None else f"{cost.normalize():f}"


def _result(worker: Worker, offset: int, limit: int) -> JsonObject | None:
    if worker.purged_at is not None:
        return None
    if worker.state != WorkerState.SUCCEEDED and not worker.result:
        return None
    end = offset + limit
    return {
        "text": worker.result[offset:end],
        "truncated": worker.result_truncated,
        "nextOffset": end if end < len(worker.result) else None,
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else utc_text(moment)
