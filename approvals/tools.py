"""The approval tools over MCP: agents follow their requests; approvers, with a token, decide."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import QuerySet

from audit.dbthread import in_db
from core.errors import JsonObject, MeahError

from . import schemas, services
from .changes import changes
from .models import Approval, ApprovalState
from .outcomes import approval_object, status_of
from .tool import Caller, Tool

FINAL = frozenset({"done", "failed", "unknown", "rejected", "expired", "void"})


async def approval_status(arguments: JsonObject, caller: Caller) -> JsonObject:
    wanted = schemas.parse(schemas.STATUS, arguments)
    deadline = time.monotonic() + wanted["waitMs"] / 1000
    first = None
    while True:
        upcoming = changes.upcoming()
        found = await in_db(_visible_object, wanted, caller)
        first = first or found["status"]
        left = deadline - time.monotonic()
        if found["status"] in FINAL or found["status"] != first or left <= 0:
            return found
        try:
            await asyncio.wait_for(upcoming.wait(), left)
        except TimeoutError:
            continue


def _visible_object(wanted: JsonObject, caller: Caller) -> JsonObject:
    approval = services.get(wanted["approvalId"])
    if caller.role != "approver" and approval.principal != caller.principal:
        raise MeahError("E_NOT_FOUND", f"There is no request {approval.public_id} of yours.")
    return approval_object(approval, offset=wanted["offset"], limit=wanted["limit"])


async def list_pending(arguments: JsonObject, caller: Caller) -> JsonObject:
    return await in_db(_pending_page, schemas.parse(schemas.LIST, arguments), caller)


def _pending_page(wanted: JsonObject, caller: Caller) -> JsonObject:
    pending = _visible_pending(caller)
    if cursor := wanted.get("cursor"):
        pending = pending.filter(pk__gt=_from_cursor(cursor))
    page = list(pending[: wanted["limit"] + 1])
    more = len(page) > wanted["limit"]
    page = page[: wanted["limit"]]
    data: JsonObject = {
        "pending": [approval_object(approval) for approval in page],
        "nextCursor": base64.urlsafe_b64encode(b"a1:%d" % page[-1].pk).decode() if more else None,
    }
    if not page:
        data["message"] = "Nothing waits for a person."
    return data


def _visible_pending(caller: Caller) -> QuerySet[Approval]:
    pending = Approval.objects.filter(state=ApprovalState.PENDING).select_related("call").order_by("pk")
    return pending if caller.role == "approver" else pending.filter(principal=caller.principal)


def _from_cursor(cursor: str) -> int:
    try:
        version, _, number = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        if version == "a1" and number.isascii() and number.isdigit() and len(number) < 19:
            return int(number)
    except ValueError:
        pass
    raise MeahError("E_INVALID_REQUEST", "The cursor is not one of this list.", hint="Use nextCursor, or none.")


async def approve(arguments: JsonObject, caller: Caller) -> JsonObject:
    return await in_db(_decide, services.approve, schemas.parse(schemas.DECIDE, arguments), caller)


async def reject(arguments: JsonObject, caller: Caller) -> JsonObject:
    return await in_db(_decide, services.reject, schemas.parse(schemas.DECIDE, arguments), caller)


def _decide(decide: Any, wanted: JsonObject, caller: Caller) -> JsonObject:
    """The approver is the user of the token that this process was started with, never a name in an argument."""
    if caller.role != "approver" or caller.user_id is None:
        raise MeahError("E_PERMISSION", "Only the approver role decides.")
    user = get_user_model()._default_manager.filter(pk=caller.user_id, is_active=True).first()
    if user is None:
        raise MeahError("E_PERMISSION", "The approver's user is not active any more.")
    approval = decide(services.get(wanted["approvalId"]), user=user, note=wanted["note"], door="mcp")
    data = approval_object(approval)
    if status_of(approval) == "approved" and (missing := services.missing_to_run(approval.call)):
        data["next"] = f"Approved, but no running MEAH process can execute it: {', '.join(missing)} is missing."
    return data


def tools(role: str) -> list[Tool]:
    """What a role is offered: the agent role has no way to decide, on any transport."""
    return [*_FOR_ALL, *_FOR_APPROVERS] if role == "approver" else list(_FOR_ALL)


_FOR_ALL = (
    Tool(
        "approval_status",
        "Follow a request",
        "Where a held call stands: pending_approval, approved, executing, done (with its result), failed, unknown, "
        "rejected (with the person's note), expired or void. Poll every 30 s or more, or pass waitMs. After expired "
        "or void the call may be made again; never after rejected (unchanged) or unknown.",
        schemas.STATUS,
        approval_status,
        read_only=True,
    ),
    Tool(
        "list_pending",
        "List open requests",
        "Requests that wait for a person, oldest first: your own, or for an approver all of them. Read-only; "
        "more pages by nextCursor.",
        schemas.LIST,
        list_pending,
        read_only=True,
    ),
)
_FOR_APPROVERS = (
    Tool(
        "approve",
        "Approve a request",
        "Approve one held call as the user of this server's token. It then runs once, with exactly the stored "
        "arguments; there is no taking back. The note is kept and reaches the agent. Fails where you asked yourself, "
        "may not decide, or it is decided, expired or void already.",
        schemas.DECIDE,
        approve,
        destructive=True,
        idempotent=False,
    ),
    Tool(
        "reject",
        "Reject a request",
        "Reject one held call for good: it is never sent. The note reaches the agent, so say what to do instead.",
        schemas.DECIDE,
        reject,
        destructive=True,
        idempotent=False,
    ),
)
