"""The key that tells a retry from a new request. Pure."""

from __future__ import annotations

from typing import Final

from core.canonical import digest

_TAG: Final = "meah/idem/v1"
_SAME_TAG: Final = "meah/same/v1"
_BINDING_TAG: Final = "meah/approval/v1"


def step_key(*, principal: str, run: str, step: str, server: str, tool: str, arguments: str) -> str:
    """Hex SHA-256 over all of it; `arguments` is their canonical text. Travels downstream as the idempotency key."""
    return digest(_TAG, _joined(principal, run, step, server, tool, arguments))


def same_call(*, server: str, tool: str, arguments: str) -> str:
    """What makes two calls of one principal the same request."""
    return digest(_SAME_TAG, _joined(server, tool, arguments))


def binding(*, server: str, tool: str, pin: str, arguments: str, principal: str) -> str:
    """What an approval is bound to: a change of any of it makes it void."""
    return digest(_BINDING_TAG, _joined(server, tool, pin, arguments, principal))


def _joined(*parts: str) -> bytes:
    """Unambiguous: each part with its length before it."""
    encoded = [part.encode() for part in parts]
    return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)
