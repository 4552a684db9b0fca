"""One table of error codes for MCP, REST and the command line, and the one exception that carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Code:
    """What a code means when nothing more is known: its message, the way out, and how doors translate it."""

    message: str
    hint: str
    retryable: bool
    http_status: int


CODES: Final[dict[str, Code]] = {
    "E_CONFIG": Code(
        "The configuration is missing something or is invalid.",
        "Run `manage.py doctor`: it names what is wrong and how to fix it.",
        False,
        500,
    ),
    "E_AUTH": Code(
        "The provider refused the key.",
        "Check the variable that the provider's apiKeyEnv names; `manage.py doctor --probe` tries it.",
        False,
        502,
    ),
    "E_INVALID_REQUEST": Code("The request is not valid.", "Correct the arguments and call again.", False, 422),
    "E_RATE_LIMIT": Code(
        "The provider is limiting requests.", "Wait, or route to another model or provider.", True, 429
    ),
    "E_TIMEOUT": Code("No answer came within the time budget.", "Raise timeoutMs, or give a smaller task.", False, 504),
    "E_CANCELLED": Code("It was cancelled.", "Start it again if it is still wanted.", False, 409),
    "E_NETWORK": Code("The connection failed.", "Check the base URL and the network, then try again.", True, 502),
    "E_MALFORMED_RESPONSE": Code(
        "The provider's answer could not be understood.",
        "Check that the base URL is an OpenAI-compatible API.",
        False,
        502,
    ),
    "E_PROVIDER": Code("The provider failed.", "Try again, or route to another model or provider.", True, 502),
    "E_NOT_FOUND": Code("There is nothing with that id.", "List what there is, and use an id from there.", False, 404),
    "E_PERMISSION": Code("That is not permitted.", "Remove what is not permitted and call again.", False, 403),
    "E_PATH_ESCAPE": Code(
        "The path leaves the workspace.",
        "Use a relative path without '..', links or device names.",
        False,
        422,
    ),
    "E_CONTEXT_LIMIT": Code(
        "The task alone is longer than the context budget.",
        "Shorten the task or raise maxContextChars.",
        False,
        422,
    ),
    "E_DENIED": Code("The policy refuses this call.", "Do not work around it: ask the operator.", False, 403),
    "E_AUDIT": Code("The audit chain could not be written, so nothing was done.", "Run `manage.py doctor`.", True, 503),
    "E_IN_PROGRESS": Code("The same step is still running.", "Wait, then call again.", True, 409),
    "E_IDEMPOTENCY_MISMATCH": Code(
        "This step was already used with other arguments.",
        "Use a new step name for a new request.",
        False,
        409,
    ),
    "E_UNAVAILABLE": Code("It is not available at the moment.", "Try again.", True, 503),
    "E_SANDBOX_UNAVAILABLE": Code(
        "No sandbox is available for commands.", "Use another permissionProfile.", False, 503
    ),
}


class MeahError(Exception):
    """A failure with a code of `CODES`; what it leaves out comes from that table.

    Raises KeyError when the code is not in the table.
    """

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        hint: str = "",
        retryable: bool | None = None,
        reason: str = "",
        details: JsonObject | None = None,
    ) -> None:
        known = CODES[code]
        self.code = code
        self.message = message or known.message
        self.hint = hint or known.hint
        self.retryable = known.retryable if retryable is None else retryable
        self.details: JsonObject = dict(details or {})
        if reason:
            self.details["reason"] = reason
        super().__init__(f"{code}: {self.message}")

    @property
    def reason(self) -> str:
        """The finer word under `details.reason`, or an empty string."""
        return str(self.details.get("reason", ""))

    @property
    def http_status(self) -> int:
        return CODES[self.code].http_status

    def as_dict(self) -> JsonObject:
        """The error's wire form: code, message, retryable, hint, and details where there are any."""
        out: JsonObject = {
            "code": self.code,
            "message": self.message,
            "retryable": self.retryable,
            "hint": self.hint,
        }
        if self.details:
            out["details"] = self.details
        return out

    @classmethod
    def from_dict(cls, data: JsonObject) -> MeahError:
        """The inverse of `as_dict`."""
        return cls(
            data["code"],
            data.get("message", ""),
            hint=data.get("hint", ""),
            retryable=data.get("retryable"),
            details=data.get("details"),
        )
