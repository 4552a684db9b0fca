"""Read after write: a server that says "ok" and drops the write is caught."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audit.dbthread import in_db
from core.errors import JsonObject, MeahError

from .argument_paths import MISSING, value_at
from .conditions import equal
from .models import EffectClass, VerificationState
from .policy import Verification, argument_of
from .targets import CallContext, CallRequest, Checked, Target

CHECK_TIMEOUT_S = 30.0
MAX_SHOWN_CHARS = 2_000


@dataclass(frozen=True)
class Check:
    """How a read-back ended; `details` hold both values where they differ, or why it could not be told."""

    state: VerificationState
    details: JsonObject | None = None


NONE = Check(VerificationState.NONE)
CUT_SHORT = Check(VerificationState.UNVERIFIED, {"why": "the check was cut short"})


def is_error(result: Any) -> bool:
    """Whether a tool's result says itself that it failed."""
    return isinstance(result, dict) and bool(result.get("isError"))


async def read_back(target: Target, request: CallRequest, wanted: Verification) -> Check:
    """Call the check's tool with arguments from the write's, and compare. Never raises."""
    try:
        arguments = {name: _required(request.arguments, path) for name, path in wanted.arguments.items()}
        reading = CallRequest(request.principal, request.server, wanted.tool, arguments, "verification")
        checked = await in_db(_checked, target, reading)
        result = await target.run(reading, checked, CallContext(timeout_s=CHECK_TIMEOUT_S))
        if is_error(result):
            return _unverified("the check's tool answered with an error")
        return _compared(result, request.arguments, wanted.expect)
    except MeahError as error:
        return _unverified(error.message)
    except Exception as error:
        return _unverified(type(error).__name__)


def _checked(target: Target, reading: CallRequest) -> Checked:
    """No rule and no person is asked about it, so it must be a read by the operator's own marking."""
    if target.facts(reading.tool, reading.arguments).effect_class != EffectClass.READ:
        raise MeahError("E_DENIED", f"the check's tool {reading.tool} is not marked as a read")
    return target.check(reading)


def failure(check: Check) -> MeahError | None:
    """The error of a write that did not do what it said."""
    if check.state != VerificationState.FAILED:
        return None
    return MeahError(
        "E_PROVIDER",
        "The server said it succeeded, but reading back shows otherwise.",
        hint="Do not repeat it blindly: a person should look at the server.",
        reason="verification_failed",
        retryable=False,
        details=dict(check.details or {}),
    )


def _compared(result: Any, arguments: JsonObject, expect: Mapping[str, Any]) -> Check:
    answer = result.get("structuredContent") if isinstance(result, dict) else None
    if not isinstance(answer, dict):
        return _unverified("the check's answer has no structured content")
    # What the write left alone is not expected to be anything.
    expected = {path: wanted for path, value in expect.items() if (wanted := _wanted(arguments, value)) is not MISSING}
    if not expected:
        return _unverified("the write says nothing of what the check expects")
    differences = []
    for path, wanted in expected.items():
        found = value_at(answer, path)
        if not equal(found, wanted):
            differences.append({"path": path, "expected": _shown(wanted), "found": _shown(found)})
    if differences:
        return Check(VerificationState.FAILED, {"differences": differences})
    return Check(VerificationState.VERIFIED)


def _shown(value: Any) -> Any:
    """A value, or of a large one its beginning: a server's whole record is not for the page of one call."""
    if value is MISSING:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= MAX_SHOWN_CHARS:
        return value
    return f"{text[:MAX_SHOWN_CHARS]}… ({len(text):,} characters)"


def _wanted(arguments: JsonObject, value: Any) -> Any:
    path = argument_of(value)
    return value if path is None else value_at(arguments, path)


def _required(arguments: JsonObject, path: str) -> Any:
    value = value_at(arguments, path)
    if value is MISSING:
        raise MeahError("E_INVALID_REQUEST", f"the write has no argument {path}")
    return value


def _unverified(why: str) -> Check:
    return Check(VerificationState.UNVERIFIED, {"why": why})
