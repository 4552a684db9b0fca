"""What went wrong with a step, in the few codes and fixed words of a Method: never the text of a child. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from core.errors import JsonObject, MeahError

CHILD_ERROR: Final = "child_error"
TIMEOUT: Final = "timeout"
POLL_EXHAUSTED: Final = "poll_exhausted"
DEPENDENCY_GAP: Final = "dependency_gap"
UNAVAILABLE: Final = "unavailable"
DENIED: Final = "denied"

_MESSAGES: Final[Mapping[str, str]] = {
    CHILD_ERROR: "The tool answered with an error.",
    TIMEOUT: "The tool gave no answer in time.",
    POLL_EXHAUSTED: "What was waited for did not come about.",
    DEPENDENCY_GAP: "A step that it needs has left a gap.",
    UNAVAILABLE: "The server could not be reached, or its answer was lost.",
    DENIED: "Policy or a person refused it.",
}
_CODES: Final[Mapping[str, str]] = {
    "E_TIMEOUT": TIMEOUT,
    "E_DENIED": DENIED,
    "E_PERMISSION": DENIED,
    "E_AUDIT": DENIED,
    "E_PROVIDER": CHILD_ERROR,
    "E_INVALID_REQUEST": CHILD_ERROR,
    "E_NOT_FOUND": UNAVAILABLE,
}
_ERRORS: Final[Mapping[str, str]] = {
    CHILD_ERROR: "E_PROVIDER",
    TIMEOUT: "E_TIMEOUT",
    POLL_EXHAUSTED: "E_TIMEOUT",
    DEPENDENCY_GAP: "E_UNAVAILABLE",
    UNAVAILABLE: "E_UNAVAILABLE",
    DENIED: "E_DENIED",
}


@dataclass(frozen=True)
class StepFailure(Exception):  # noqa: N818 - it may become a gap, which is no error
    """Why a step has no result. `again`: a safe step may be tried once more. `error`: the code of MEAH's own error."""

    code: str
    again: bool = False
    error: str = ""

    @classmethod
    def of(cls, error: MeahError) -> StepFailure:
        code = _CODES.get(error.code, UNAVAILABLE)
        again = code in (CHILD_ERROR, TIMEOUT, UNAVAILABLE) and error.code != "E_INVALID_REQUEST"
        return cls(code, again=again, error=error.code)

    @property
    def gap(self) -> JsonObject:
        return {"code": self.code, "message": _MESSAGES[self.code]}

    def as_error(self, step: str) -> MeahError:
        """What the run fails with."""
        return MeahError(
            self.error or _ERRORS[self.code],
            f"The step {step} failed: {_MESSAGES[self.code]}",
            hint="The trace says how far it came. A write that it made is not undone.",
            retryable=False,
            reason=self.code,
        )
