"""What the page of one call shows, and the page of one request: read for the template, changed by nobody."""

from __future__ import annotations

import json
from typing import Any

from approvals import services
from approvals.inspection import MAX_ROWS, differences, result_parts, rows, shown_json
from approvals.models import Approval, ApprovalState, Call, CallState
from approvals.outcomes import status_of
from approvals.queue import asker_of, entries_about, identical_calls, retry_of, similar_call
from core.redaction import without_values
from core.text import visible

MAX_RESULT_CHARS = 100_000
LIVE = frozenset({"pending_approval", "approved", "executing"})


def call_context(call: Call) -> dict[str, Any]:
    """Exactly what will be sent, or was."""
    found = rows(json.loads(call.arguments)) if call.arguments else []
    return {
        "call": call,
        "rows": found[:MAX_ROWS],
        "rows_left_out": max(len(found) - MAX_ROWS, 0),
        "raw_arguments": shown_json(call.arguments),
        "has_warnings": any(row.warnings for row in found),
    }


def request_context(approval: Approval, user: Any) -> dict[str, Any]:
    call, status = approval.call, status_of(approval)
    why_not = services.may_decide(approval, user)
    may_still_run = approval.state in {ApprovalState.PENDING, ApprovalState.APPROVED} and call.state == CallState.HELD
    return {
        "title": visible(f"{call.server}/{call.tool}"),
        "subtitle": None,
        "approval": approval,
        "status": status,
        "is_live": status in LIVE,
        "why_not": why_not,
        "is_intact": approval.state != ApprovalState.PENDING or services.is_as_asked(approval),
        "missing": services.missing_to_run(call) if may_still_run else [],
        "is_single_approver": len(services.deciders()) == 1,
        "decisions": list(approval.decisions.select_related("user")),
        "short_digest": approval.digest[:8],
        **call_context(call),
        **outcome_context(call),
        **comparison_context(call),
        "asker": asker_of(approval.principal, approval.requested_by),
        "retry": retry_of(call, approval),
        "entries": entries_about(approval.public_id, call.public_id),
    }


def outcome_context(call: Call) -> dict[str, Any]:
    """How it ended, as far as it has."""
    is_whole = len(call.result) <= MAX_RESULT_CHARS
    result = json.loads(call.result) if call.result and is_whole else None
    details = call.verification_details or {}
    return {
        "result_parts": result_parts(result) if result is not None else [],
        "result_start": "" if is_whole else visible(without_values(call.result[:MAX_RESULT_CHARS])),
        "is_error_result": isinstance(result, dict) and result.get("isError") is True,
        "error": call.error,
        "error_details": _pretty((call.error or {}).get("details")),
        "verification_why": details.get("why", ""),
        "verification_differences": [
            (visible(str(item.get("path"))), _pretty(item.get("expected")), _pretty(item.get("found")))
            for item in details.get("differences", [])
        ],
    }


def comparison_context(call: Call) -> dict[str, Any]:
    similar = similar_call(call)
    identical = identical_calls(call)
    found = differences(json.loads(similar.arguments), json.loads(call.arguments)) if similar and call.arguments else []
    return {
        "similar": similar,
        "differences": found[:MAX_ROWS],
        "identical": identical,
        "identical_total": sum(identical.values()),
    }


def _pretty(value: Any) -> str:
    if value is None:
        return ""
    return shown_json(json.dumps(value, ensure_ascii=False), indent=2)
