"""Telling the operator's webhooks of requests and decisions, through an outbox."""

from __future__ import annotations

from core.canonical import utc_text

from .models import Approval, Delivery, Webhook


def tell(approval: Approval, event: str) -> None:
    """Write one delivery for each webhook, inside the transaction of what it tells of."""
    call = approval.call
    body = {
        "event": event,
        "approvalId": approval.public_id,
        "server": call.server,
        "tool": call.tool,
        "principal": approval.principal,
        "rule": approval.rule,
        "expiresAt": utc_text(approval.expires_at),
    }
    Delivery.objects.bulk_create(
        [
            Delivery(webhook=webhook, approval=approval, event=event, body=body)
            for webhook in Webhook.objects.filter(enabled=True)
        ]
    )
