#!/usr/bin/env python
"""MEAH's command line: `manage.py help` lists the commands."""

from __future__ import annotations

import os
import sys


def main() -> None:
    trimmed = sys.argv[1:2] == ["runmcp"]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "meah_site.settings_mcp" if trimmed else "meah_site.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError:
        sys.exit("Django is not installed in this Python. Run `make setup`, then use .venv/bin/python manage.py.")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
