"""Self-check of the evals: MEAH without its role check and without the binding of approvers to authenticated users.

Run as `python -m meah_site.lab.sabotage_roles manage.py …`. `prompt_injection` must fail on it.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any


def sabotage() -> None:
    """Every role gets the deciding tools, and any decision counts as the first approver's."""
    from approvals import services
    from approvals import tools as module
    from approvals.outcomes import approval_object

    tools: Any = module

    def decide(what: Any, wanted: Any, caller: Any) -> Any:
        approval = what(services.get(wanted["approvalId"]), user=services.deciders()[0], note="x", door="mcp")
        return approval_object(approval)

    offered = tools.tools
    tools._decide = decide
    tools.tools = lambda role: offered("approver")


class _AfterSetup:
    """Runs the sabotage once Django's apps are loaded."""

    def __init__(self, spoil: Any) -> None:
        import django

        setup = django.setup

        def spoiled(*args: Any, **kwargs: Any) -> None:
            setup(*args, **kwargs)
            spoil()

        django.setup = spoiled


def run(spoil: Any) -> None:
    _AfterSetup(spoil)
    sys.argv = sys.argv[1:]
    sys.path.insert(0, sys.argv[0].rpartition("/")[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    run(sabotage)
