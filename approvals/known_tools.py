"""What `policy check` and `policy explain` know of the world: tools behind the gate, and who can decide."""

from __future__ import annotations

from django.contrib.auth.models import Group

from core.errors import MeahError

from .policy_check import KnownTool
from .services import deciders
from .targets import known


def known_tools() -> list[KnownTool]:
    """Every tool that could be called now, by server and name; what is off or quarantined is left out."""
    found = []
    for target in known():
        for tool in sorted(target.tools()):
            try:
                facts = target.facts(tool, {})
            except MeahError:
                continue
            found.append(KnownTool(target.server, tool, str(facts.effect_class), facts.schema))
    return found


def approvers_in(group: str) -> int | None:
    """How many users of that group can decide, an empty name meaning all; None when there is no such group."""
    if group and not Group.objects.filter(name=group).exists():
        return None
    return len([user for user in deciders() if not group or user.groups.filter(name=group).exists()])
