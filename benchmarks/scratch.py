"""A MEAH_HOME for the benchmarks alone, on the disk that the real one is on, and environments for their children."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.machine import ROOT


def environment(home: Path) -> dict[str, str]:
    """Of a process that lives in that home and writes and uses bytecode, whatever the caller's shell says."""
    dropped = ("MEAH_", "DJANGO_", "PYTHONDONTWRITEBYTECODE", "DATABASE_URL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"MEAH_HOME": str(home), "MEAH_ENV_FILE": "", "MEAH_LOG_LEVEL": "error", "PYTHONPATH": str(ROOT)}


@contextmanager
def scratch_home() -> Iterator[Path]:
    """A migrated home under `var/`; removed at the end. This process's settings point there."""
    (ROOT / "var").mkdir(mode=0o700, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="bench-", dir=ROOT / "var"))
    try:
        _migrate(home)
        _enter(home)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def compile_bytecode() -> None:
    """Of all that either side imports: without it every start compiles everything."""
    installed = sysconfig.get_paths()
    ours = [str(ROOT / package) for package in ("core", "audit", "approvals", "gateway", "workers", "meah_site")]
    command = [sys.executable, "-m", "compileall", "-q", *ours, installed["purelib"], installed["platlib"]]
    # Some packages carry files for other versions of Python: those do not compile, and nobody imports them.
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)


def _migrate(home: Path) -> None:
    command = [sys.executable, str(ROOT / "manage.py"), "migrate", "--no-input", "--verbosity", "0"]
    subprocess.run(command, env=environment(home), check=True, timeout=120)


def _enter(home: Path) -> None:
    """The settings of `runmcp`, in this process."""
    wanted = environment(home)
    for name in set(os.environ) - set(wanted):
        del os.environ[name]
    os.environ.update(wanted, DJANGO_SETTINGS_MODULE="meah_site.settings_mcp")

    import django

    django.setup()
