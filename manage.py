#!/usr/bin/env python
"""MEAH's command line: `manage.py help` lists the commands."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from core.errors import MeahError


def main() -> None:
    trimmed = sys.argv[1:2] == ["runmcp"]
    if trimmed:
        # Everything that is made during the start stays; looking through it for garbage is most of a tenth of it.
        gc.disable()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "meah_site.settings_mcp" if trimmed else "meah_site.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
    except ImportError:
        sys.exit("Django is not installed in this Python. Run `make setup`, then use .venv/bin/python manage.py.")
    from core.errors import MeahError

    try:
        execute_from_command_line(sys.argv)
    except MeahError as error:
        _fail(error, as_json=trimmed)
    except ImproperlyConfigured as error:
        _fail(MeahError("E_CONFIG", str(error)), as_json=trimmed)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(error: MeahError, *, as_json: bool) -> NoReturn:
    """Settings that can not be used end every command here: in words, and for `runmcp` as one JSON line."""
    from meah_site.start import fail, fail_in_words

    (fail if as_json else fail_in_words)(error)


if __name__ == "__main__":
    main()
