"""Requests and people of the admin's tests, made through the gate without an engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from approvals import governor, services, targets
from approvals.models import Approval, Call, CallState
from approvals.targets import CallRequest
from audit.models import Entry
from tests.approvals.targets import CountingTarget

AGENT = "agent:claude"
DECIDE = "approvals.decide_approval"


@contextmanager
def registered_box() -> Iterator[CountingTarget]:
    target = CountingTarget()
    targets.register(target)
    try:
        yield target
    finally:
        del targets._targets[target.server]


def person(name: str, *permissions: str, groups: tuple[str, ...] = ()) -> tuple[User, Client]:
    """A member of the staff who may do these things, and a browser of theirs."""
    user = User.objects.create_user(name, password=name, is_staff=True)
    for permission in permissions:
        app, _, codename = permission.partition(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    for group in groups:
        user.groups.add(Group.objects.get_or_create(name=group)[0])
    client = Client()
    client.force_login(user)
    return user, client


def held(tool: str = "put", principal: str = AGENT, user: User | None = None, **arguments: Any) -> Approval:
    """A request that waits, as the gate made it."""
    call = CallRequest(principal, "box", tool, {"id": "a", **arguments}, "mcp", user_id=user.pk if user else None)
    outcome = governor.decide(call).outcome
    assert outcome is not None
    assert outcome.approval is not None
    return services.get(outcome.approval["approvalId"])


def ended(approval: Approval, state: CallState = CallState.DONE, **values: Any) -> Approval:
    """As if it had been approved and had run."""
    Approval.objects.filter(pk=approval.pk).update(state="approved")
    Call.objects.filter(pk=approval.call_id).update(state=state, **values)
    return services.get(approval.public_id)


def payload(kind: str) -> dict[str, Any]:
    """The last entry of that kind."""
    entry = Entry.objects.filter(kind=kind).order_by("-seq").first()
    assert entry is not None, kind
    read: dict[str, Any] = json.loads(bytes(entry.payload))
    return read
