"""Public ids: a short prefix that says what the thing is, and 20 hexadecimal digits."""

from __future__ import annotations

import re
import secrets

WORKER = "w_"
APPROVAL = "apr_"
CALL = "c_"
METHOD_RUN = "mr_"
TOKEN = "tok_"  # noqa: S105  # a prefix
PROCESS = "p_"


def new_id(prefix: str) -> str:
    """A new random id such as `w_` and 20 hex digits (80 bits)."""
    return prefix + secrets.token_hex(10)


def is_id(prefix: str, text: str) -> bool:
    return re.fullmatch(re.escape(prefix) + r"[0-9a-f]{20}", text) is not None
