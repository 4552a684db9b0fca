"""How the admin shows states, times and durations. A state is a word, a symbol and a colour, never a colour alone."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

# The tone picks the colours in static/meah/meah.css.
TONES: Final = {
    "queued": ("○", "quiet"),
    "held": ("○", "quiet"),
    "running": ("◐", "busy"),
    "sending": ("◐", "busy"),
    "succeeded": ("✓", "good"),
    "done": ("✓", "good"),
    "set": ("✓", "good"),
    "whole": ("✓", "good"),
    "failed": ("✕", "bad"),
    "tampered": ("✕", "bad"),
    "timed_out": ("◷", "bad"),
    "not_set": ("!", "warn"),
    "unknown": ("?", "warn"),
    "unverified": ("?", "warn"),
    "cancelled": ("⊘", "quiet"),
    # requests
    "pending": ("◔", "warn"),
    "pending_approval": ("◔", "warn"),
    "approved": ("✓", "busy"),
    "executing": ("◐", "busy"),
    "rejected": ("✕", "bad"),
    "expired": ("◷", "quiet"),
    "void": ("⊘", "quiet"),
    "verified": ("✓", "good"),
    "verification_failed": ("✕", "bad"),
    "halted": ("■", "bad"),
    # policy
    "allow": ("✓", "good"),
    "require_approval": ("◔", "warn"),
    "deny": ("✕", "bad"),
    "destructive": ("!", "bad"),
    # servers and their tools
    "active": ("✓", "good"),
    "connecting": ("◐", "busy"),
    "idle": ("○", "quiet"),
    "closed": ("⊘", "quiet"),
    "accepted": ("✓", "good"),
    "quarantined": ("!", "warn"),
    "gone": ("⊘", "quiet"),
    # runs of Methods
    "completed": ("✓", "good"),
    "completed_with_gaps": ("◑", "warn"),
    "gap": ("◑", "warn"),
    # messages and tokens
    "waiting": ("○", "quiet"),
    "sent": ("✓", "good"),
    "given_up": ("✕", "bad"),
    "valid": ("✓", "good"),
    "revoked": ("⊘", "quiet"),
}


def badge(state: str, label: str = "") -> SafeString:
    """The state as a badge; `label` takes the place of its word."""
    symbol, tone = TONES.get(state, ("·", "quiet"))
    return format_html(
        '<span class="meah-badge meah-{}"><span class="meah-symbol" aria-hidden="true">{}</span>{}</span>',
        tone,
        symbol,
        label or state.replace("_", " "),
    )


def environment_mark(variable: str) -> SafeString:
    """Says that a value comes from that variable, and so can not be changed here."""
    return format_html('<span class="meah-env">from the environment: <code>{}</code></span>', variable)


def moment(value: datetime | None) -> SafeString | str:
    """A time in UTC; the day only where it is not today."""
    if value is None:
        return "–"
    shown = f"{value:%H:%M:%S}" if value.date() == timezone.now().date() else f"{value:%Y-%m-%d %H:%M}"
    full = f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return format_html('<time datetime="{}" title="{}">{}</time>', value.isoformat(), full, shown)


def ago(value: datetime | None) -> str:
    """How long ago, in one unit: enough to see whether something is fresh."""
    if value is None:
        return "never"
    span = _span(int((timezone.now() - value).total_seconds()))
    return f"{span} ago" if span else "just now"


def until(value: datetime | None) -> str:
    """How long from now, in one unit, rounded down: enough to see whether something is pressing."""
    if value is None:
        return "–"
    seconds = int((value - timezone.now()).total_seconds())
    if seconds <= 0:
        return "passed"
    return f"in {_span(seconds) or f'{seconds} s'}"


def _span(seconds: int) -> str:
    """In the largest unit that fits; empty under a minute."""
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return ""


def duration(milliseconds: int | None) -> str:
    """850 ms, 12.4 s, 3 min 05 s."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    seconds = milliseconds / 1_000
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
