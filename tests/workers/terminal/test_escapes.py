"""All ways out of the sandbox fail, as root and as a plain user; without the sandbox they do not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.workers.terminal import escapes
from tests.workers.terminal.escapes import ESCAPES, OPEN_OUTSIDE, OUT
from workers.terminal import sandbox

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason=f"no sandbox here: {sandbox.missing()}")


@pytest.fixture
def around(tmp_path: Path) -> Iterator[dict[str, Any]]:
    with escapes.surroundings(tmp_path) as found:
        yield found


@pytest.mark.parametrize("escape", ESCAPES)
def test_no_way_out(around: dict[str, Any], escape: str) -> None:
    said = escapes.inside(escape, around)
    assert OUT not in said, said


@pytest.mark.parametrize("escape", OPEN_OUTSIDE)
def test_without_the_sandbox_the_same_gets_out(around: dict[str, Any], escape: str) -> None:
    """Else the test above would prove nothing."""
    said = escapes.outside(escape, around)
    assert OUT in said, said


def _plain_python() -> list[str]:
    """An interpreter that nobody may run and that finds what MEAH needs; empty where there is none."""
    setpriv = sandbox.setpriv()
    if os.geteuid() or setpriv is None:
        return []
    drop = [setpriv, f"--reuid={sandbox.NOBODY}", f"--regid={sandbox.NOBODY}", "--clear-groups"]
    for python in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        words = [*drop, str(python), "-c", "from tests.workers.terminal.escapes import PYTHON; open(PYTHON, 'rb')"]
        if python and subprocess.run(words, env=_environ(), cwd="/", capture_output=True, check=False).returncode == 0:
            return [*drop, python]
    return []


def _environ() -> dict[str, str]:
    # `-m` and a wholly new environment, long enough to be looked for.
    libraries = os.pathsep.join([str(ROOT), sysconfig.get_path("purelib")])
    return {"PYTHONPATH": libraries, "PYTHONDONTWRITEBYTECODE": "1", "A_KEY_OF_THE_PARENT": "k" * 500}


def test_no_way_out_for_a_plain_user_either() -> None:
    python = _plain_python()
    if not python:
        pytest.skip("these tests run as a plain user already, or none can run an interpreter here")
    words = [*python, "-m", "tests.workers.terminal.escapes"]
    child = subprocess.run(words, env=_environ(), cwd="/", capture_output=True, text=True, check=False, timeout=120)
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout)
    assert found["uid"] == sandbox.NOBODY and found["self-test"] == ""
    assert set(found["inside"]) == set(ESCAPES)
    assert [name for name, said in found["inside"].items() if OUT in said] == []
    assert [name for name, said in found["outside"].items() if OUT not in said and name != "mount"] == []
