"""An interpreter that runs as a plain user, also where the tests run as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig

from tests.conftest import ROOT

NOBODY = 65_534


def plain_python(needs: str) -> list[str]:
    """A command line up to the interpreter; empty where no plain user can do `needs`, a piece of Python, with one."""
    drop: list[str] = []
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv", path="/usr/bin:/bin")
        if setpriv is None:
            return []
        drop = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    for python in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        words = [*drop, str(python), "-c", needs]
        if python and subprocess.run(words, env=environ(), cwd="/", capture_output=True, check=False).returncode == 0:
            return [*drop, python]
    return []


def environ() -> dict[str, str]:
    """From nothing; with the repository, what is installed, and a text to look for."""
    libraries = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
    return {"PYTHONPATH": libraries, "PYTHONDONTWRITEBYTECODE": "1", "A_KEY_OF_THE_PARENT": "k" * 500}
