"""The state of a key as the admin shows it."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.display import badge
from core.text import visible
from workers.key_state import KeyState


def shown_key(key: KeyState) -> SafeString:
    """The variable's name, and where it is set."""
    if key.state == "none":
        return format_html('<span class="quiet">{}</span>', "no key needed")
    mark = badge("set") if key.state == "set" else badge("not_set", "not set")
    if key.state == "partly":
        mark = badge("unknown", "not everywhere")
    lacking = [f"{process.get_kind_display()} {process.pid}" for process in key.lacking]
    if not key.here:
        lacking.insert(0, "this process")
    where = f"not in {', '.join(lacking)}" if key.state == "partly" else ""
    return format_html('<code>{}</code> {} <span class="quiet">{}</span>', visible(key.variable), mark, where)
