"""Redaction: what leaves a process carries no configured secret, and nothing that looks like one.

Layer 1 takes out the exact values of the named secrets, in the encodings they travel in; layer 2 takes out what has
the form of a credential. Each becomes `[redacted:NAME]`, with the variable's or the rule's name. Redacting twice
changes nothing. A secret of fewer than 8 characters is too short to be looked for.
"""

from __future__ import annotations

from core.redaction.engine import looks_like_key, redact, redact_counted, without_values
from core.redaction.fields import holds_secret_value, is_secret_field, redact_value
from core.redaction.stream import StreamRedactor

__all__ = [
    "StreamRedactor",
    "holds_secret_value",
    "is_secret_field",
    "looks_like_key",
    "redact",
    "redact_counted",
    "redact_value",
    "without_values",
]
