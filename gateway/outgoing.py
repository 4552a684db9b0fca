"""Results on their way out of the gateway: as they were, but for the exact values of MEAH's own secrets."""

from __future__ import annotations

from typing import Any

from core.errors import JsonObject
from core.redaction import holds_secret_value, without_values


def without_secrets(result: JsonObject) -> JsonObject:
    """The very same object where no secret occurs in it, which is nearly always."""
    if holds_secret_value(result) is None:
        return result
    clean: JsonObject = _clean(result)
    return clean


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return without_values(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value
