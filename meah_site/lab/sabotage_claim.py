"""Self-check of the evals: MEAH whose executors claim and send without asking whether somebody else did.

Run as `python -m meah_site.lab.sabotage_claim manage.py …`. `retries_and_races` must fail on it.
"""

from __future__ import annotations

from typing import Any

from meah_site.lab.sabotage_roles import run


def sabotage() -> None:
    """An approved call is claimed again and again: neither the lease nor the send marker is conditional any more."""
    from approvals import executor as module
    from approvals import governor
    from approvals.decision import request_of
    from approvals.models import Call

    executor: Any = module

    def claim(owner: str) -> list[int]:
        return [call.pk for call in Call.objects.filter(approval__state="approved")]

    def start(call_id: int, owner: str) -> Any:
        call = Call.objects.get(pk=call_id)
        if not call.arguments:
            return None
        decision = governor.judged(request_of(call))
        decision.call = call
        Call.objects.filter(pk=call_id).update(state="sending", lease_owner=owner)
        return decision

    executor.claim = claim
    executor.start = start


if __name__ == "__main__":
    run(sabotage)
