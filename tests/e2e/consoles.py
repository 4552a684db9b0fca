"""The real console in a directory of its own, and the browser that looks at it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
READY_WITHIN_S = 60
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Console:
    """`manage.py up` as a child. `link` is the login link that it printed."""

    def __init__(self, home: Path, extra: dict[str, str] | None = None) -> None:
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.home = home
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MEAH_", "DJANGO_")) and name != "DATABASE_URL"
        }
        self.environ = kept | {"MEAH_HOME": str(home), "MEAH_ENV_FILE": "", "PYTHONUNBUFFERED": "1"} | (extra or {})
        self._said: list[str] = []
        self._child: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", str(self.port)],
            cwd=ROOT,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        deadline = time.monotonic() + READY_WITHIN_S
        while self.link is None:
            if self._child.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the console did not start:\n" + "".join(self._said))
            time.sleep(0.1)

    def stop(self) -> None:
        if self._child is None:
            return
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(20)
        finally:
            self._child.kill()
            self._child.wait()
            self._listener.join(5)

    @property
    def link(self) -> str | None:
        found = re.search(rf"{self.base_url}/login/\S+", "".join(self._said))
        return found[0] if found else None

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout

    def new_link(self) -> str:
        return self.manage("login_link", "--port", str(self.port)).strip()

    def _listen(self) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        with self._child.stdout as lines:
            self._said.extend(lines)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_console(home: Path, extra: dict[str, str] | None = None) -> Iterator[Console]:
    console = Console(home, extra)
    try:
        console.start()
        yield console
    finally:
        console.stop()


@contextmanager
def chromium() -> Iterator[Any]:
    """The installed browser, by Playwright; the test is skipped where either is missing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: `make setup-dev`")
    if not shutil.which(CHROMIUM):
        pytest.skip(f"There is no {CHROMIUM}: install Debian's chromium package")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
