from __future__ import annotations

import json

import pytest

from core.errors import CODES, MeahError

SPECIFIED = [
    *("E_CONFIG", "E_AUTH", "E_INVALID_REQUEST", "E_RATE_LIMIT", "E_TIMEOUT", "E_CANCELLED", "E_NETWORK"),
    *("E_MALFORMED_RESPONSE", "E_PROVIDER", "E_NOT_FOUND", "E_PERMISSION", "E_PATH_ESCAPE", "E_CONTEXT_LIMIT"),
    *("E_DENIED", "E_AUDIT", "E_IN_PROGRESS", "E_IDEMPOTENCY_MISMATCH", "E_UNAVAILABLE", "E_SANDBOX_UNAVAILABLE"),
]


@pytest.mark.parametrize("code", SPECIFIED)
def test_every_code_has_a_message_a_hint_and_a_status(code: str) -> None:
    known = CODES[code]
    assert known.message.endswith(".")
    assert known.hint.endswith(".")
    assert 400 <= known.http_status < 600
    error = MeahError(code)
    assert (error.message, error.hint, error.retryable) == (known.message, known.hint, known.retryable)
    assert error.http_status == known.http_status


def test_the_retried_codes_are_those_of_the_table() -> None:
    retried = {"E_RATE_LIMIT", "E_NETWORK", "E_PROVIDER"}
    assert {code for code in SPECIFIED[:13] if CODES[code].retryable} == retried


def test_an_unknown_code_is_a_programming_error() -> None:
    with pytest.raises(KeyError):
        MeahError("E_NONSENSE")


def test_what_is_said_wins_over_the_table() -> None:
    error = MeahError("E_RATE_LIMIT", "Quota spent.", hint="Buy.", retryable=False, reason="quota", details={"at": 1})
    assert error.as_dict() == {
        "code": "E_RATE_LIMIT",
        "message": "Quota spent.",
        "retryable": False,
        "hint": "Buy.",
        "details": {"at": 1, "reason": "quota"},
    }
    assert error.reason == "quota"
    assert str(error) == "E_RATE_LIMIT: Quota spent."


def test_the_details_are_the_errors_own() -> None:
    details = {"at": 1}
    MeahError("E_TIMEOUT", reason="x", details=details)
    assert details == {"at": 1}
    assert "details" not in MeahError("E_TIMEOUT").as_dict()


@pytest.mark.parametrize(
    "error",
    [MeahError("E_AUTH"), MeahError("E_DENIED", "No.", hint="H.", retryable=True, reason="r", details={"a": [1]})],
)
def test_the_wire_form_can_be_read_back(error: MeahError) -> None:
    again = MeahError.from_dict(json.loads(json.dumps(error.as_dict())))
    assert again.as_dict() == error.as_dict()
