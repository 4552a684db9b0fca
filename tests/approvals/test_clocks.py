"""The two clocks of a request, and what becomes of one whose deadline is no moment in time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from approvals import endings, executor, services
from approvals.models import Approval, ApprovalSettings, Call, CallState, Rule
from approvals.outcomes import approval_object, status_of
from audit.services import verify
from core.errors import MeahError
from tests.approvals.requests import held, person, registered_box
from tests.approvals.targets import CountingTarget
from tests.approvals.test_every_door import _run_executor
from tests.conftest import Home

UNREADABLE = ["soon", "", "2026-99-99 00:00:00", "9999-12-31T25:00", "zzzz"]
unreadable = pytest.mark.parametrize("deadline", UNREADABLE, ids=["word", "empty", "date", "hour", "sorts last"])
pytestmark = pytest.mark.skipif(connection.vendor == "postgresql", reason="there a column of times holds only times")


@pytest.fixture
def box(home: Home) -> Iterator[CountingTarget]:
    with registered_box() as target:
        yield target


@pytest.fixture
def alice(home: Home) -> User:
    return person("alice", "approvals.decide_approval")[0]


def spoil(column: str, text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE approvals_approval SET {column} = %s", [text])


@unreadable
def test_an_undecided_request_whose_deadline_can_not_be_read_is_expired(
    box: CountingTarget, alice: User, deadline: str
) -> None:
    approval = held()
    spoil("expires_at", deadline)
    assert endings.expire_due() == 1
    found = services.get(approval.public_id)
    assert status_of(found) == "expired" and approval_object(found)["expiresAt"]
    assert Call.objects.get().state == CallState.CANCELLED
    assert endings.expire_due() == 0 and verify().whole


@unreadable
def test_it_can_not_be_approved_either(box: CountingTarget, alice: User, deadline: str) -> None:
    approval = held()
    spoil("expires_at", deadline)
    with pytest.raises(MeahError, match="expired"):
        services.approve(services.get(approval.public_id), user=alice, note="", door="admin")
    assert Call.objects.get().state == CallState.CANCELLED


@unreadable
def test_an_approved_request_whose_deadline_can_not_be_read_never_runs(
    box: CountingTarget, alice: User, run: Any, deadline: str
) -> None:
    approval = services.approve(held(), user=alice, note="", door="admin")
    spoil("execute_by", deadline)
    run(_run_executor())
    assert box.effects == []
    Call.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    endings.expire_due()
    assert status_of(services.get(approval.public_id)) == "expired"
    run(_run_executor())
    assert box.effects == []


def test_a_lease_that_was_taken_in_time_does_not_outlive_the_deadline(box: CountingTarget, alice: User) -> None:
    """A process that slept between its claim and its start."""
    approval = services.approve(held(), user=alice, note="", door="admin")
    [call_id] = executor.claim("p_mine")
    Approval.objects.update(execute_by=timezone.now() - timedelta(milliseconds=1))
    assert executor.start(call_id, "p_mine") is None
    assert status_of(services.get(approval.public_id)) == "expired"


def test_the_clocks_are_those_of_the_settings_and_a_rule_has_its_own(box: CountingTarget, alice: User) -> None:
    shipped = held(status="1")
    assert shipped.expires_at - shipped.requested_at == timedelta(hours=24)
    ApprovalSettings.objects.create(pk=1, ttl_s=600, execute_within_s=60)
    general = held(status="2")
    assert general.expires_at - general.requested_at == timedelta(minutes=10)
    Rule.objects.create(name="quick", effect="require_approval", server="box", ttl_s=30)
    own = held(status="3")
    assert own.expires_at - own.requested_at == timedelta(seconds=30)
    before = timezone.now()
    approved = services.approve(own, user=alice, note="", door="admin")
    assert before + timedelta(seconds=60) <= approved.execute_by <= timezone.now() + timedelta(seconds=60)
    ApprovalSettings.objects.all().delete()
    approved = services.approve(general, user=alice, note="", door="admin")
    assert timedelta(minutes=59) < approved.execute_by - timezone.now() <= timedelta(hours=1)
