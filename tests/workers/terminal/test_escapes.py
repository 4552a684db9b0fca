"""All ways out of the sandbox fail, as root and as a plain user; without the sandbox they do not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plain_user import environ, plain_python
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


def test_no_way_out_for_a_plain_user_either() -> None:
    python = plain_python("from tests.workers.terminal.escapes import PYTHON; open(PYTHON, 'rb')")
    if not python:
        pytest.skip("no plain user can run an interpreter here")
    words = [*python, "-m", "tests.workers.terminal.escapes"]
    child = subprocess.run(words, env=environ(), cwd="/", capture_output=True, text=True, check=False, timeout=120)
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout)
    assert found["uid"] != 0 and found["self-test"] == ""
    assert set(found["inside"]) == set(ESCAPES)
    assert [name for name, said in found["inside"].items() if OUT in said] == []
    assert [name for name, said in found["outside"].items() if OUT not in said and name != "mount"] == []
