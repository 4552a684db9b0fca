"""The console that `MEAH_WEB=true` puts beside a `runmcp`."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from django.conf import settings

from core.logs import event

log = logging.getLogger("meah.web")


class Companion:
    """A child with full settings, which ends with its `runmcp`, however that ends."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """stdout belongs to the protocol: whatever the child has to say goes to stderr."""
        if os.environ.get("MEAH_WEB", "").strip().lower() not in ("1", "true", "yes"):
            return
        port = os.environ.get("MEAH_WEB_PORT", "").strip()
        command = [sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), "up", "--companion-of", str(os.getpid())]
        environ = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        try:
            self._child = subprocess.Popen(
                [*command, *(["--port", port] if port else [])],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                env=environ,
                start_new_session=True,
            )
        except OSError as error:
            event(log, "console_unavailable", level="warn", exc_info=error)

    def stop(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()
