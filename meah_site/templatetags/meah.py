"""Filters of our templates: foreign text made safe to look at, states as badges, times and durations for people."""

from __future__ import annotations

from typing import Any

from django import template

from approvals import display
from approvals.models import Approval, ApprovalState, Halt
from core import text
from workers.key_display import shown_key
from workers.listing import title_of
from workers.terminal import sandbox

register = template.Library()

register.filter("shown_key", shown_key)
register.filter("title_of", title_of)
register.filter("badge", display.badge)
register.filter("moment", display.moment)
register.filter("ago", display.ago)
register.filter("until", display.until)
register.filter("duration", display.duration)
register.filter("environment_mark", display.environment_mark)


@register.filter
def visible(value: Any) -> str:
    return text.visible(str(value))


@register.filter
def one_line(value: Any, limit: int) -> str:
    return text.one_line(str(value), limit)


@register.simple_tag(takes_context=True)
def halt_in_force(context: dict[str, Any]) -> Halt | None:
    """The halt, for whoever is logged in; None while calls go through."""
    request = context.get("request")
    if request is None or not request.user.is_authenticated:
        return None
    return Halt.objects.filter(pk=1, engaged=True).first()


@register.simple_tag
def unsandboxed_commands() -> str:
    """The variable by which the operator allows commands without a sandbox, where it is set."""
    return sandbox.UNSANDBOXED if sandbox.is_unsandboxed_allowed() else ""


@register.simple_tag(takes_context=True)
def open_requests(context: dict[str, Any]) -> int | None:
    """How many requests wait for a person; None for whoever may not see them."""
    request = context.get("request")
    if request is None or not request.user.has_perm("approvals.view_approval"):
        return None
    return Approval.objects.filter(state=ApprovalState.PENDING).count()
