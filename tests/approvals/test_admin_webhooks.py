"""Webhooks and their messages in the admin: no secret shown, what was given up tried again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from approvals.models import Delivery, Webhook
from tests.approvals.requests import held, payload, registered_box
from tests.rows import SHOWN_SPOOF, SPOOF, page, posted, staff_client

pytestmark = pytest.mark.django_db

LIST = "/admin/approvals/webhook/"
MESSAGES = "/admin/approvals/delivery/"
FORM = {"name": "ops", "format": "meah", "enabled": "on", "url": "https://hooks.example.com/meah"}
SLACK = "https://hooks.slack.com/services/T00000000/B00000000/abcdefghijklmnopqrstuvwx"


@pytest.fixture(autouse=True)
def box() -> Iterator[None]:
    with registered_box():
        yield


def delivery(**values: Any) -> Delivery:
    Webhook.objects.get_or_create(name="ops", url="https://hooks.example.com/meah")
    held()
    found = Delivery.objects.get()
    for name, value in values.items():
        setattr(found, name, value)
    found.save()
    return found


def test_a_webhook_is_added_with_its_entry(admin_client: Client) -> None:
    assert "No webhook" in page(admin_client, LIST)
    assert "hooks.example.com" in posted(admin_client, f"{LIST}add/", **FORM)
    assert payload("webhook.added")["subject"] == "ops"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"url": ""}, "Say where to"),
        ({"url": "ftp://x"}, "It starts with https://"),
        ({"url": "http://hooks.example.com/"}, "https only"),
        ({"url": "https://me:pw@hooks.example.com/"}, "No user name and no password"),
        ({"url": SLACK}, "a secret itself"),
        ({"secret_env": "not a name"}, "The name of an environment variable"),
        ({"url_env": SLACK}, "The name of an environment variable"),
    ],
)
def test_what_could_not_be_told_safely_is_not_saved(
    admin_client: Client, changes: dict[str, str], problem: str
) -> None:
    assert problem in posted(admin_client, f"{LIST}add/", **(FORM | changes))
    assert not Webhook.objects.exists()


def test_the_address_may_be_in_a_variable_alone(admin_client: Client) -> None:
    posted(admin_client, f"{LIST}add/", **(FORM | {"url": "", "url_env": "HOOK_URL"}))
    assert Webhook.objects.get().url_env == "HOOK_URL"


def test_secrets_are_named_and_never_shown(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_URL", SLACK)
    monkeypatch.setenv("HOOK_KEY", "value-of-the-hook-key")
    hook = Webhook.objects.create(name="slack", url_env="HOOK_URL", secret_env="HOOK_KEY")
    for url in (LIST, f"{LIST}{hook.pk}/change/"):
        html = page(admin_client, url)
        assert "HOOK_URL" in html
        assert "T00000000" not in html
        assert "value-of-the-hook-key" not in html


def test_a_message_that_was_given_up_is_tried_again(admin_client: Client) -> None:
    given_up = delivery(state="given_up", tries=8, last_error="the webhook answered 500")
    html = page(admin_client, MESSAGES)
    assert "the webhook answered 500" in html
    assert "1 given up" in page(admin_client, LIST)
    retry = f"{MESSAGES}{given_up.pk}/retry/"
    assert retry in html
    assert 'id="retry-form"' in html
    assert admin_client.get(retry).status_code == 405
    assert "sent again within seconds" in posted(admin_client, retry)
    given_up.refresh_from_db()
    assert (given_up.state, given_up.tries) == ("waiting", 0)
    assert payload("delivery.retried")["data"]["webhook"] == "ops"


def test_what_arrived_is_not_sent_twice(admin_client: Client) -> None:
    sent = delivery(state="sent")
    assert f"{sent.pk}/retry/" not in page(admin_client, MESSAGES)
    assert "arrived already" in posted(admin_client, f"{MESSAGES}{sent.pk}/retry/")
    sent.refresh_from_db()
    assert sent.state == "sent"


def test_messages_are_read_only_and_harmless(admin_client: Client) -> None:
    message = delivery(last_error=SPOOF, body={"text": SPOOF})
    html = page(admin_client, f"{MESSAGES}{message.pk}/change/")
    assert SHOWN_SPOOF in html
    assert "<script>alert" not in html
    assert admin_client.post(f"{MESSAGES}{message.pk}/change/", {"state": "sent"}).status_code == 403


def test_retrying_needs_the_right_to_change_webhooks() -> None:
    message = delivery(state="given_up")
    looker = staff_client("approvals.view_delivery")
    page(looker, MESSAGES)
    assert looker.post(f"{MESSAGES}{message.pk}/retry/").status_code == 403
