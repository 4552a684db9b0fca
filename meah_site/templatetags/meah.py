"""Filters of our templates: foreign text made safe to look at, states as badges, times and durations for people."""

from __future__ import annotations

from typing import Any

from django import template

from approvals import display
from core import text
from workers.admin.keys import shown_key

register = template.Library()

register.filter("shown_key", shown_key)
register.filter("badge", display.badge)
register.filter("moment", display.moment)
register.filter("ago", display.ago)
register.filter("duration", display.duration)
register.filter("environment_mark", display.environment_mark)


@register.filter
def visible(value: Any) -> str:
    return text.visible(str(value))


@register.filter
def one_line(value: Any, limit: int) -> str:
    return text.one_line(str(value), limit)
