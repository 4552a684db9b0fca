"""A process that hides shows its environment to no other process of its user."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.plain_user import environ, plain_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
HOLDER = "import sys; from core.hiding import hide_process; {act}; print('ready', flush=True); sys.stdin.read()"
READER = "import sys; sys.stdout.write(open(f'/proc/{sys.argv[1]}/environ').read())"


@pytest.mark.parametrize("hidden", [True, False])
def test_the_environment_is_hidden_from_other_processes_of_the_same_user(hidden: bool) -> None:
    python = plain_python("import core.hiding")
    if not python:
        pytest.skip("no plain user can run an interpreter here")
    words = [*python, "-c", HOLDER.format(act="assert hide_process()" if hidden else "pass")]
    with subprocess.Popen(words, env=environ(), cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
        reader = [*python, "-c", READER, str(holder.pid)]
        read = subprocess.run(reader, env=environ() | {"A_KEY_OF_THE_PARENT": ""}, capture_output=True, check=False)
        holder.communicate(b"")
    assert (b"k" * 500 in read.stdout) is not hidden
    assert (b"PermissionError" in read.stderr) is hidden
