"""Telling the operator's webhooks of requests and decisions, through an outbox.

A delivery is written in the transaction of what it tells of, and sent by any engine, at least once: eight tries over
about an hour. Links lead to the page that decides; nothing in a message can.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from audit.services import record
from core.addresses import NotPublicError, public_addresses
from core.canonical import utc_text
from core.errors import JsonObject, MeahError
from core.logs import event
from core.redaction import redact
from core.secrets import name_secrets, read_secret
from core.text import one_line, visible

from .models import Approval, Delivery, Webhook
from .processes import ring_after_commit

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("meah.webhooks")

# Waits before each further try, in seconds: eight tries, the last about an hour after the first.
WAITS_S = (5, 30, 90, 240, 480, 900, 1800)
TIMEOUT_S = 10.0
SENDING_FOR = timedelta(seconds=30)
SIGNATURE_HEADER = "X-Meah-Signature"
TITLES = {
    "approval.requested": "Approval wanted",
    "approval.approved": "Approved",
    "approval.rejected": "Rejected",
    "approval.expired": "Expired",
    "approval.void": "Void",
}


def tell(approval: Approval, what: str) -> None:
    """Write one delivery for each webhook, inside the transaction of what it tells of."""
    webhooks = list(Webhook.objects.filter(enabled=True))
    if webhooks:
        body = _facts(approval, what)
        Delivery.objects.bulk_create(
            [Delivery(webhook=webhook, approval=approval, event=what, body=body) for webhook in webhooks]
        )


def _facts(approval: Approval, what: str) -> JsonObject:
    """No arguments: whoever may see them sees them on the page."""
    call = approval.call
    return {
        "event": what,
        "approvalId": approval.public_id,
        "server": call.server,
        "tool": call.tool,
        "principal": one_line(visible(approval.principal), 200),
        "rule": approval.rule,
        "expiresAt": utc_text(approval.expires_at),
        "url": f"{settings.MEAH_BASE_URL}/admin/approvals/approval/{approval.pk}/change/",
    }


def claim_due(limit: int = 20) -> list[Delivery]:
    """Take what is due, so that no other process sends it at the same time."""
    now = timezone.now()
    waiting = Delivery.objects.filter(state=Delivery.State.WAITING, webhook__enabled=True)
    due = waiting.filter(next_try_at__lte=now).order_by("next_try_at")
    claimed = []
    for delivery in due.select_related("webhook")[:limit]:
        with transaction.atomic():
            # By the number of tries: a time that SQLite wrote itself is never equal to the same one written by Python.
            mine = Delivery.objects.filter(
                pk=delivery.pk, state=Delivery.State.WAITING, tries=delivery.tries, next_try_at__lte=now
            ).update(next_try_at=now + SENDING_FOR, tries=F("tries") + 1)
        if mine:
            delivery.tries += 1
            claimed.append(delivery)
    return claimed


async def send(deliveries: Sequence[Delivery]) -> list[tuple[Delivery, str]]:
    """Send each once; pairs with an empty text where it arrived, else why it did not. Redirects are not followed.

    All at once, each within `TIMEOUT_S`: a receiver that is slow holds up no other, and no claim runs out meanwhile.
    """
    import httpx

    # Each on a connection of its own: two names at one address must not share one whose certificate names the other.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False, limits=limits) as client:
        errors = await asyncio.gather(*(_send_one(client, delivery) for delivery in deliveries))
    return list(zip(deliveries, errors, strict=True))


async def _send_one(client: httpx.AsyncClient, delivery: Delivery) -> str:
    import httpx

    try:
        async with asyncio.timeout(TIMEOUT_S):
            content = json.dumps(message(delivery.webhook.format, delivery.body)).encode()
            request = client.build_request(
                "POST", target_url(delivery.webhook), content=content, headers=_headers(delivery, content)
            )
            # Only the status counts: whatever else is answered is not read.
            answer = await client.send(await _addressed(request, delivery.webhook), stream=True)
            await answer.aclose()
    except TimeoutError:
        return f"the webhook gave no answer within {TIMEOUT_S:g} s"
    except (httpx.HTTPError, httpx.InvalidURL, NotPublicError, OSError, ValueError, MeahError) as error:
        return one_line(visible(redact(str(error) or type(error).__name__)), 300)
    return "" if answer.is_success else f"the webhook answered {answer.status_code}"


async def _addressed(request: httpx.Request, webhook: Webhook) -> httpx.Request:
    """To a public address that was looked up just now, unless the operator said that the webhook is private."""
    if webhook.private:
        return request
    url = request.url
    if url.scheme != "https":
        raise MeahError("E_CONFIG", f"The webhook {webhook.name} is not marked private, and its URL is not https.")
    addresses = await public_addresses(url.host, url.port or 443)
    # The Host header keeps the name, and so does the certificate's check.
    request.extensions = {**request.extensions, "sni_hostname": url.host}
    request.url = url.copy_with(host=addresses[0])
    return request


def target_url(webhook: Webhook) -> str:
    """Raises MeahError E_CONFIG when there is none, or it is no http(s) URL without a user name in it."""
    if webhook.url_env:
        name_secrets([webhook.url_env])
    url = read_secret(webhook.url_env) if webhook.url_env else webhook.url
    if not url or not url.startswith(("https://", "http://")):
        raise MeahError("E_CONFIG", f"The webhook {webhook.name} has no http or https URL in this process.")
    if "@" in urlsplit(url).netloc:
        raise MeahError("E_CONFIG", f"The URL of the webhook {webhook.name} has a user name in it.")
    return url


def message(form: str, body: JsonObject) -> JsonObject:
    """The facts as the receiver takes them: ours, or one line of text with the link for Slack and Teams."""
    if form == Webhook.Format.MEAH:
        return body
    title = TITLES.get(body["event"], body["event"])
    text = f"{title}: {body['server']}/{body['tool']} for {body['principal']} ({body['rule']})"
    if form == Webhook.Format.SLACK:
        return {"text": f"{_slack(text)}\n<{body['url']}|Open {body['approvalId']}>"}
    link = {"type": "Action.OpenUrl", "title": "Open in MEAH", "url": body["url"]}
    card = {
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "TextBlock", "text": text, "wrap": True}],
        "actions": [link],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def _slack(text: str) -> str:
    """Slack reads markup in text: a tool's name must not become a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _headers(delivery: Delivery, content: bytes) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "X-Meah-Event": delivery.event, "X-Meah-Delivery": str(delivery.pk)}
    if variable := delivery.webhook.secret_env:
        name_secrets([variable])
        secret = read_secret(variable)
        if secret is None:
            raise MeahError("E_CONFIG", f"The variable {variable} of the webhook's secret is not set here.")
        stamp = str(int(time.time()))
        signed = hmac.new(secret.encode(), stamp.encode() + b"." + content, hashlib.sha256).hexdigest()
        headers[SIGNATURE_HEADER] = f"t={stamp},v1={signed}"
    return headers


def settle(results: Sequence[tuple[Delivery, str]]) -> None:
    """Write how the tries went: sent, to be tried again, or given up."""
    for delivery, error in results:
        values: dict[str, object] = {"last_error": error[:500]}
        if not error:
            values["state"] = Delivery.State.SENT
        elif delivery.tries > len(WAITS_S):
            values["state"] = Delivery.State.GIVEN_UP
            event(log, "webhook_given_up", level="warn", webhook=delivery.webhook.name, error=error)
        else:
            values["next_try_at"] = timezone.now() + timedelta(seconds=WAITS_S[delivery.tries - 1])
        with transaction.atomic():
            Delivery.objects.filter(pk=delivery.pk).update(**values)


def retry(delivery: Delivery, *, principal: str) -> None:
    """Send it again, from its first try on. Raises MeahError E_INVALID_REQUEST when it has arrived."""
    with transaction.atomic():
        unsent = Delivery.objects.filter(pk=delivery.pk).exclude(state=Delivery.State.SENT)
        if not unsent.update(state=Delivery.State.WAITING, tries=0, next_try_at=timezone.now()):
            raise MeahError("E_INVALID_REQUEST", "The message has arrived already.", hint="It is not sent twice.")
        ring_after_commit()
        data = {"delivery": delivery.pk, "event": delivery.event, "webhook": delivery.webhook.name}
        record("delivery.retried", principal=principal, subject=delivery.approval.public_id, data=data)
