"""A start that fails: one clear line for whoever reads it, a person or a client's log, and never a traceback."""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

from core.errors import MeahError


def fail(error: MeahError) -> NoReturn:
    """Say it as one JSON line on stderr, and exit with status 1."""
    from core.redaction import redact_value

    line = json.dumps({"event": "start_failed", "level": "error", "error": redact_value(error.as_dict())})
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
    sys.exit(1)


def fail_in_words(error: MeahError) -> NoReturn:
    """The same for a person at a terminal."""
    from core.redaction import redact

    sys.exit(redact(f"{error.message}\n{error.hint}"))


def database_error(error: Exception) -> MeahError:
    return MeahError(
        "E_CONFIG",
        f"The database can not be used: {error}".strip(),
        hint="Check DATABASE_URL and that its server runs, or that MEAH_HOME can be written; see `manage.py doctor`.",
    )


def home_error(error: OSError) -> MeahError:
    where = f"{error.filename}: " if error.filename else ""
    return MeahError(
        "E_CONFIG",
        f"MEAH can not use its files: {where}{error.strerror or os.strerror(error.errno or 0)}.",
        hint="Make MEAH_HOME a directory that this user may write.",
    )
