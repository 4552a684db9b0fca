"""Logs: one JSON object per line on stderr, redacted. stdout belongs to the protocol."""

from __future__ import annotations

import json
import logging
import math
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from core.canonical import utc_text
from core.redaction import redact, redact_value

LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "silent": logging.CRITICAL + 1,
}
# They tell every request with its whole URL, or what daphne lacks that nobody asked for.
_CHATTY: Final = ("httpx", "httpcore", "httpx2", "httpcore2", "daphne.server", "daphne.ws_protocol")
_MAX_STRING_CHARS: Final = 32_768
_MAX_DEPTH: Final = 16
_FIELDS: Final = "meah_fields"
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", _FIELDS}


class JsonFormatter(logging.Formatter):
    """A record as one line: ts, level, event, logger, message, then its extra fields; never raises."""

    def format(self, record: logging.LogRecord) -> str:
        try:
            return _line(self._entry(record))
        except Exception as error:
            # A log line must not become the failure it reports; its text is left out, for it is not redacted.
            return _line(
                {
                    "ts": _time(record),
                    "level": _level(record),
                    "logger": str(record.name),
                    "message": f"a log record could not be written ({type(error).__name__})",
                }
            )

    def _entry(self, record: logging.LogRecord) -> dict[str, Any]:
        entry: dict[str, Any] = {"ts": _time(record), "level": _level(record), "logger": record.name}
        fields = dict(getattr(record, _FIELDS, None) or {})
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        entry["message"] = _clipped(redact(_message(record)))
        redacted: dict[str, Any] = redact_value(_plain(fields))
        for key, value in redacted.items():
            entry[f"{key}_" if key in entry or key == "exception" else key] = value
        if (exception := _exception(record)) is not None:
            entry["exception"] = _clipped(redact(exception))
        return entry


class StderrHandler(logging.StreamHandler[Any]):
    """Writes to whatever `sys.stderr` is at the time; a stderr that is gone is not an error of the caller."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        if self.stream is not None:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Say nothing: the usual report would print the record's unredacted text."""


def configure(level: str) -> None:
    """Send everything that is logged to stderr from this level on: debug, info, warn, error or silent.

    ValueError for another word. Handlers that were set up before are replaced; calling it again changes the level.
    """
    if level not in LEVELS:
        raise ValueError(f"the log level is one of {', '.join(LEVELS)}, not {level!r}")
    handler = StderrHandler()
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(max(LEVELS[level], logging.WARNING))
    logging.captureWarnings(True)


def event(
    logger: logging.Logger,
    name: str,
    *,
    level: str = "info",
    exc_info: BaseException | None = None,
    **fields: object,
) -> None:
    """Log a named event with fields; the name stands in `message`, as with every other line."""
    number = LEVELS[level]
    if logger.isEnabledFor(number):
        extra = {_FIELDS: {"event": name, **fields}}
        logger.log(number, "%s", name, extra=extra, exc_info=exc_info, stacklevel=2)


def _time(record: logging.LogRecord) -> str:
    return utc_text(datetime.fromtimestamp(record.created, UTC))


def _level(record: logging.LogRecord) -> str:
    if record.levelno >= logging.ERROR:
        return "error"
    if record.levelno >= logging.WARNING:
        return "warn"
    return "info" if record.levelno >= logging.INFO else "debug"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        return f"{record.msg!s} (its arguments do not fit)"


def _exception(record: logging.LogRecord) -> str | None:
    if record.exc_info and record.exc_info[0] is not None:
        return "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return record.exc_text or None


def _clipped(text: str) -> str:
    # After redaction: a cut through a key would hide it from the rules.
    return text if len(text) <= _MAX_STRING_CHARS else f"{text[:_MAX_STRING_CHARS]}… ({len(text)} characters)"


def _plain(value: object, depth: int = 0) -> Any:
    """The value as JSON can hold it; what it cannot hold becomes its text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return str(value)
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    return str(value)


def _line(entry: dict[str, Any]) -> str:
    # ASCII only: no newline of any alphabet, no lone surrogate, whatever the terminal's encoding.
    return json.dumps(entry, default=str)
