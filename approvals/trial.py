"""A call that is only thought of: as the gate would judge it, with nothing executed, held or recorded."""

from __future__ import annotations

import difflib

from core.errors import JsonObject, MeahError
from core.text import one_line

from .explanation import Explanation, explain
from .policy import Subject
from .policy_store import current
from .targets import CallRequest, known


def subject_of(server: str, tool: str, arguments: JsonObject, principal: str, *, door: str) -> Subject:
    """The call as the policy sees it. Raises MeahError as the gate would before it asks the policy."""
    target = next((target for target in known() if target.server == server), None)
    if target is None or tool not in target.tools():
        raise _unknown(server, tool)
    facts = target.facts(tool, arguments)
    checked = target.check(CallRequest(principal, server, tool, arguments, door))
    return Subject(principal, server, tool, facts.effect_class, checked.arguments, facts.schema)


def explained(subject: Subject) -> Explanation:
    """The verdict of the policy in force, and how it came about. Raises MeahError E_CONFIG where it can not be used."""
    return explain(current(), subject)


def _unknown(server: str, tool: str) -> MeahError:
    names = [f"{target.server}/{name}" for target in known() for name in target.tools()]
    near = difflib.get_close_matches(f"{server}/{tool}", names, n=1, cutoff=0.6)
    return MeahError(
        "E_NOT_FOUND",
        f"There is no tool {one_line(tool, 100)} on {one_line(server, 100)}.",
        hint=f"Did you mean {near[0].replace('/', ' ', 1)}?"
        if near
        else "`manage.py servers tools` lists what there is.",
    )
