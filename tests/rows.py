"""Rows as the admin meets them, made without an engine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from approvals.models import Call, CallState, EffectClass, Process
from approvals.processes import lock_path
from core.locks import hold
from core.secrets import secret_values
from workers.models import PermissionProfile, Worker

SPOOF = "safe\u202etxt.exe\u200b <script>alert(1)</script>"
SHOWN_SPOOF = "safe⟨U+202E⟩txt.exe⟨U+200B⟩ &lt;script&gt;alert(1)&lt;/script&gt;"


def make_call(**values: Any) -> Call:
    given = {
        "state": CallState.DONE,
        "principal": "agent:claude",
        "server": "meah",
        "tool": "meah_run_agent",
        "effect_class": EffectClass.WRITE,
        "door": "mcp",
        "arguments_salt": "00",
    }
    return Call.objects.create(**(given | values))


def make_worker(**values: Any) -> Worker:
    given = {
        "call": values.pop("call", None) or make_call(),
        "principal": "agent:claude",
        "owner": "p_gone",
        "role": "coder",
        "provider": "mock",
        "model": "mock-1",
        "permission_profile": PermissionProfile.READ_ONLY,
        "timeout_ms": 120_000,
        "max_output_tokens": 2_048,
        "task": "Write a parser.",
    }
    return Worker.objects.create(**(given | values))


@contextmanager
def living_console() -> Iterator[Process]:
    """This process as a console that is alive; nothing runs what it accepts.

    Without a heart of its own: that would write beside the test's transaction.
    """
    process = Process.objects.create(
        kind=Process.Kind.CONSOLE,
        host=socket.gethostname(),
        pid=os.getpid(),
        version="0",
        key_variables=sorted(secret_values()),
        heartbeat_at=timezone.now() + timedelta(hours=1),
    )
    held = hold(lock_path(process.public_id))
    assert held is not None
    try:
        yield process
    finally:
        held.release()


def staff_client(*permissions: str) -> Client:
    """A person who may do these things (`app.codename`) and nothing else."""
    user = User.objects.create_user("bob", password="bob", is_staff=True)
    for permission in permissions:
        app, _, codename = permission.partition(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    client = Client()
    client.force_login(user)
    return client


def page(client: Client, url: str, /, **query: Any) -> str:
    response = client.get(url, query)
    assert response.status_code == 200, response
    return response.content.decode()


def posted(client: Client, url: str, /, **data: Any) -> str:
    """The page that a POST leads to, messages included."""
    response = client.post(url, data, follow=True)
    assert response.status_code == 200, response
    return response.content.decode()
