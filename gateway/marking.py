"""What the operator says of a tool beyond its class: which of its arguments carries the idempotency key."""

from __future__ import annotations

from django.db import transaction

from audit.services import change, record_many
from core.errors import MeahError
from core.text import one_line

from .models import Tool


def map_key(tool: Tool, argument: str, *, principal: str) -> None:
    """Send the idempotency key in that argument too; an empty name sends it in `_meta` alone.

    Raises MeahError E_INVALID_REQUEST where the accepted schema declares no such argument.
    """
    declared = (tool.pinned.get("inputSchema") or {}).get("properties") or {}
    if argument and argument not in declared:
        raise MeahError(
            "E_INVALID_REQUEST",
            f"{one_line(str(tool), 200)} has no argument {one_line(argument, 100)!r}.",
            hint=f"It has {one_line(', '.join(declared), 300) or 'none'}.",
        )
    before = {"idempotencyArgument": tool.idempotency_argument}
    with transaction.atomic():
        tool.idempotency_argument = argument
        tool.save(update_fields=["idempotency_argument"])
        entry = change(
            "tool.marked",
            principal=principal,
            subject=str(tool),
            before=before,
            after={"idempotencyArgument": argument},
        )
        record_many([entry] if entry else [])
