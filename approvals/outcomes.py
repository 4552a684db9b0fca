"""How a call ended, as its row, its entry and the agent's answer say it."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from typing import Any

from django.db.models.functions import Now

from core.canonical import digest, utc_text
from core.errors import JsonObject, MeahError
from core.redaction import redact_value
from core.text import visible

from . import verification
from .models import Approval, ApprovalState, Call, CallState, EffectClass, VerificationState
from .targets import Target

MAX_STORED_BYTES = 2**20
MAX_INLINE_BYTES = 100_000
MAX_PAGE_CHARS = 40_000
MAX_ERROR_CHARS = 100_000
MAX_VALUE_CHARS = 2_000
_RESULT_TAG = "meah/result/v1"
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


# -- states ---------------------------------------------------------------------------------------------------------


def state_after(effect_class: str, error: MeahError | None) -> CallState:
    """After sending, what can not be known of a write is unknown; a read simply failed."""
    if error is None:
        return CallState.DONE
    ambiguous = error.code in {"E_TIMEOUT", "E_CANCELLED", "E_NETWORK", "E_UNAVAILABLE"}
    if ambiguous and error.details.get("sent") is not False and effect_class != EffectClass.READ:
        return CallState.UNKNOWN
    return CallState.FAILED


def status_of(approval: Approval) -> str:
    """The one word an agent sees, derived from the decision and the execution."""
    if approval.state == ApprovalState.PENDING:
        return "pending_approval"
    if approval.state != ApprovalState.APPROVED:
        return str(approval.state)
    running = {CallState.HELD: "approved", CallState.SENDING: "executing", CallState.CANCELLED: "void"}
    return running.get(CallState(approval.call.state), str(approval.call.state))


# -- rows -----------------------------------------------------------------------------------------------------------


def values_after(
    effect_class: str,
    state: CallState,
    result: Any,
    error: MeahError | None,
    check: verification.Check,
    target: Target,
    *,
    was_held: bool = False,
) -> dict[str, Any]:
    """The columns of a call that has ended. A read's result is kept only where its caller has to come back for it."""
    values: dict[str, Any] = {
        "state": state,
        "finished_at": Now(),
        "error": storable_error(error) if error else None,
        "verification": check.state,
        "verification_details": storable(check.details),
    }
    if result is not None and (was_held or effect_class != EffectClass.READ):
        values |= stored_result(target.store(result))
    return values


def storable_error(error: MeahError) -> JsonObject:
    """As a row keeps it: redacted, and without its details where a server made those too large."""
    kept: JsonObject = storable(redact_value(error.as_dict()))
    if len(json.dumps(kept)) <= MAX_ERROR_CHARS:
        return kept
    plain = MeahError(error.code, error.message, hint=error.hint, reason=error.reason, retryable=error.retryable)
    whole: JsonObject = storable(redact_value(plain.as_dict()), limit=MAX_VALUE_CHARS)
    return whole


def storable(value: Any, *, limit: int | None = None) -> Any:
    """A copy that every database takes as JSON: no lone surrogates, no NUL, no NaN; texts up to `limit` characters."""
    if isinstance(value, str):
        cut = value if limit is None or len(value) <= limit else f"{value[:limit]}… ({len(value):,} characters)"
        return _UNSTORABLE.sub(lambda match: visible(match[0]), cut)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {storable(key, limit=limit): storable(item, limit=limit) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item, limit=limit) for item in value]
    return value


def stored_result(result: Any) -> dict[str, Any]:
    """Up to 1 MiB whole; above that its size and digest only."""
    text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    if _SURROGATE.search(text):
        text = json.dumps(result, separators=(",", ":"))
    data = text.encode()
    return {
        "result": text if len(data) <= MAX_STORED_BYTES else "",
        "result_bytes": len(data),
        "result_digest": digest(_RESULT_TAG, data),
    }


def result_of(call: Call) -> Any:
    """The stored result. Raises MeahError E_NOT_FOUND when it was too large to keep, or was purged."""
    if not call.result:
        raise MeahError(
            "E_NOT_FOUND",
            f"The call ended as {call.state}, but its result {_why_none(call)}.",
            hint="It is not sent again. Read back what it changed.",
            details={"status": call.state, "resultBytes": call.result_bytes},
        )
    return json.loads(call.result)


def _why_none(call: Call) -> str:
    if call.result_bytes is None:
        return "never came: that it happened was found out afterwards"
    return f"{'was purged' if call.purged_at else 'was too large to keep'} ({call.result_bytes:,} bytes)"


def described(result: Any, error: MeahError | None, check: verification.Check) -> JsonObject:
    """What the entry of an outcome says: sizes and digests, never a result in clear."""
    data: JsonObject = {}
    if error is not None:
        data["error"] = error.code
        if error.reason:
            data["reason"] = error.reason
    if isinstance(result, dict):
        data["isError"] = bool(result.get("isError", False))
        data["result"] = _sized(result)
    if check.state != VerificationState.NONE:
        data["verification"] = str(check.state)
    return data


def _sized(result: JsonObject) -> JsonObject:
    """Size and salted digest, without the redacted view that arguments get: results can be megabytes."""
    text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    data = text.encode("utf-8", "surrogatepass")
    return {"bytes": len(data), "digest": digest(_RESULT_TAG, data)}


# -- answers --------------------------------------------------------------------------------------------------------


def approval_object(approval: Approval, *, offset: int = 0, limit: int = MAX_PAGE_CHARS) -> JsonObject:
    """A request as agents and approvers read it, with its stored result once there is one."""
    call = approval.call
    decisions = list(approval.decisions.select_related("user"))
    status = status_of(approval)
    return {
        "approvalId": approval.public_id,
        "status": status,
        "server": call.server,
        "tool": call.tool,
        "rule": approval.rule,
        "reason": approval.reason or None,
        "requestedAt": utc_text(approval.requested_at),
        "expiresAt": _time(approval.expires_at),
        "executeBy": _time(approval.execute_by),
        "decidedBy": [f"user:{decision.user.get_username()}" for decision in decisions],
        "decidedAt": _time(approval.decided_at),
        "note": "\n".join(decision.note for decision in decisions if decision.note) or approval.outcome_note or None,
        "result": _result(call, offset, limit),
        "error": call.error,
        "verification": call.verification,
        "replay": False,
        "next": _NEXT.get(status),
    }


_NEXT = {
    "pending_approval": "Nothing was sent yet. A person decides: poll approval_status with this approvalId.",
    "approved": "It runs within moments: poll approval_status.",
    "executing": "It is running: poll approval_status.",
    "unknown": "It may have happened. Do not repeat it: read back, or ask a person.",
    "expired": "It was never sent. Ask again if it is still wanted.",
    "void": "It was never sent. Ask again if it is still wanted.",
    "rejected": "Do not repeat it unchanged: the note says why.",
}


def _result(call: Call, offset: int, limit: int) -> Any:
    """The stored result itself; above 100 kB its size, and the text in pages."""
    if call.state not in Call.ENDED or call.result_bytes is None:
        return None
    if call.result and call.result_bytes <= MAX_INLINE_BYTES and not offset:
        return json.loads(call.result)
    end = offset + limit
    return {
        "bytes": call.result_bytes,
        "text": call.result[offset:end] or None,
        "nextOffset": end if end < len(call.result) else None,
    }


def rejected_error(approval: Approval) -> MeahError:
    data = approval_object(approval) | {"replay": True}
    return MeahError(
        "E_DENIED",
        f"This request was rejected by {', '.join(data['decidedBy'])}: {data['note'] or 'no reason given'}",
        hint="Do not repeat it unchanged; the note says what to change, or that it is not wanted.",
        reason="rejected",
        details=data,
    )


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else utc_text(moment)
