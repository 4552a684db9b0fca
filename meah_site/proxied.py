"""Downstream tools that are listed beside MEAH's own: their posture in the description, their results as they were."""

from __future__ import annotations

import json
from dataclasses import dataclass

from approvals.decision import Outcome
from approvals.governor import submit
from approvals.policy import ALLOW, Policy, posture
from approvals.policy_store import current
from approvals.targets import CallContext, CallRequest
from approvals.tool import Caller
from core.errors import JsonObject, MeahError
from core.redaction import redact_value
from gateway import catalog
from gateway.catalog import DirectTool, direct_tools


@dataclass(frozen=True)
class Proxied:
    """One downstream tool as one principal is shown it."""

    tool: DirectTool
    posture: str

    @property
    def keeps_output_schema(self) -> bool:
        """Both official clients refuse an answer of ours where the listing promises another shape."""
        return self.posture == ALLOW

    def as_listed(self) -> JsonObject:
        """The pinned definition under its listed name, tagged with what policy will say."""
        listed = dict(self.tool.definition) | {"name": self.tool.listed_name}
        listed["description"] = f"[policy: {self.posture}] {listed.get('description') or ''}".strip()
        if not self.keeps_output_schema:
            listed.pop("outputSchema", None)
        return listed


def proxied_tools(principal: str) -> dict[str, Proxied]:
    """By listed name; sync, for the database thread."""
    policy = current()
    return {tool.listed_name: _as_shown(tool, policy, principal) for tool in direct_tools()}


def find(listed_name: str, principal: str) -> Proxied | None:
    """The tool of that name as this principal is shown it; sync, for the database thread."""
    try:
        tool = catalog.find(listed_name)
    except MeahError:
        return None
    return _as_shown(tool, current(), principal)


def _as_shown(tool: DirectTool, policy: Policy, principal: str) -> Proxied:
    shown = posture(
        policy, principal=principal, server=tool.server, tool=tool.tool, effect_class=str(tool.effect_class)
    )
    return Proxied(tool, shown)


async def call(proxied: Proxied, arguments: JsonObject, caller: Caller, context: CallContext) -> JsonObject:
    """Through the gate: the child's result as it was, or our envelope in its place."""
    promised = proxied.keeps_output_schema and "outputSchema" in proxied.tool.definition
    request = CallRequest(
        principal=caller.principal,
        server=proxied.tool.server,
        tool=proxied.tool.tool,
        arguments=arguments,
        door="mcp",
        owner=caller.owner,
        run=caller.run,
        step=caller.step,
        user_id=caller.user_id,
    )
    try:
        outcome = await submit(request, context)
    except MeahError as error:
        return own_answer({"ok": False, "error": redact_value(error.as_dict())}, promised, is_error=True)
    return _passed(outcome) if outcome.approval is None else _waits(outcome, promised)


def _passed(outcome: Outcome) -> JsonObject:
    result: JsonObject = outcome.result
    return result


def _waits(outcome: Outcome, promised: bool) -> JsonObject:
    return own_answer({"ok": True, "data": outcome.approval}, promised, is_error=promised)


def own_answer(envelope: JsonObject, promised: bool, *, is_error: bool) -> JsonObject:
    """An answer that MEAH makes itself, as a tool result.

    Where the listing promised another shape the envelope comes as text alone: the TypeScript client holds whatever is
    structured against that promise, in errors too.
    """
    text = {"type": "text", "text": json.dumps(envelope, ensure_ascii=False)}
    answer: JsonObject = {"content": [text], "isError": is_error}
    return answer if promised else answer | {"structuredContent": envelope}
