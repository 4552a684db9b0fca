"""How a downstream call can fail: before it was sent, in a way that leaves it open, or by the server's own word."""

from __future__ import annotations

from typing import Any

from core.errors import JsonObject, MeahError


class NotSentError(MeahError):
    """Nothing had reached the server: `details.sent` is false."""

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
        told = {**(details or {}), "sent": False}
        super().__init__(code, message, hint=hint, retryable=retryable, reason=reason, details=told)

    @classmethod
    def because(cls, error: MeahError) -> NotSentError:
        """The same failure, known to have come before anything was sent."""
        return cls(error.code, error.message, hint=error.hint, retryable=error.retryable, details=dict(error.details))


class AmbiguousError(MeahError):
    """It was sent, and whether it happened can not be known from here. Never sent again by the gateway."""


class DownstreamError(MeahError):
    """The server answered with a JSON-RPC error, which stands whole in `details`."""

    def __init__(self, server: str, code: int, message: str, data: Any = None) -> None:
        details: JsonObject = {"jsonrpcCode": code, "message": message}
        if data is not None:
            details["data"] = data
        super().__init__(
            "E_PROVIDER",
            f"The server {server} answered with an error: {message} ({code}).",
            hint="It is the server's own answer; correct the call, or ask its operator.",
            retryable=False,
            reason="downstream_error",
            details=details,
        )
