"""The sandbox is tested before it is trusted; and what is inside of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.workers.terminal.escapes import script
from workers.terminal import probes, sandbox, seccomp

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason=f"no sandbox here: {sandbox.missing()}")


def test_the_self_test_finds_it_tight() -> None:
    assert asyncio.run(probes.holes()) == ""


ALL = [f"--unshare-{name}" for name in ("user", "ipc", "pid", "net", "uts", "cgroup-try")]
# What is taken out of the sandbox, what is put into it, and what the self-test has to find open then.
LEAKS = {
    "read outside, write outside": ((), ("--bind", "/tmp", "/tmp")),
    "read outside": ((), ("--ro-bind", "/tmp", "/tmp")),
    "TCP, UDP, Unix socket": (("--unshare-net", "--seccomp"), ()),
    "Unix socket": (("--seccomp",), ("--bind", "/tmp", "/tmp")),
    "a parent's environment": (("--unshare-pid",), ()),
}


@pytest.mark.parametrize("found", LEAKS)
def test_the_self_test_says_where_it_is_not(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    without, more = LEAKS[found]
    whole = sandbox.wrapped

    def leaky(argv: Any, **options: Any) -> list[str]:
        words = [each for word in whole(argv, **options) for each in (ALL if word == "--unshare-all" else [word])]
        for name in without:
            place = words.index(name)
            del words[place : place + (2 if name == "--seccomp" else 1)]
        place = words.index("--chdir")
        return [*words[:place], *more, *words[place:]]

    monkeypatch.setattr(sandbox, "wrapped", leaky)
    assert found in asyncio.run(probes.holes())


@pytest.mark.parametrize("missing", ["bubblewrap", "prlimit"])
def test_without_its_programs_there_is_no_sandbox(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(sandbox, missing, lambda: None)
    assert "not installed" in asyncio.run(probes.holes())


def test_a_sandbox_that_does_not_start_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "bubblewrap", lambda: "/bin/false")
    assert "does not start" in asyncio.run(probes.holes())


def test_inside_the_environment_is_made_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LD_PRELOAD", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "BASH_ENV", "MEAH_GLM_API_KEY"):
        monkeypatch.setenv(name, "poison")
    found = json.loads(script("import json, os; print(json.dumps(dict(os.environ)))", tmp_path).output)
    assert set(found) - {"LC_CTYPE"} == {"PATH", "LANG", "LC_ALL", "TZ", "HOME", "TMPDIR", "PWD"}
    assert found["HOME"] == "/w"


def test_the_workspace_can_be_written_and_nothing_else(tmp_path: Path) -> None:
    assert script("open('made', 'w').write('x'); print(sorted(__import__('os').listdir('.')))", tmp_path).status == 0
    assert (tmp_path / "made").read_text() == "x"
    assert script("open('/usr/made', 'w')", tmp_path).status == 1


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_a_whole_program(machine: str) -> None:
    """Every jump stays inside, and nothing falls off the end."""
    import struct

    program = seccomp.program(machine)
    assert program is not None and len(program) % 8 == 0
    steps = list(struct.iter_unpack("<HBBI", program))
    for place, (code, yes, no, _) in enumerate(steps):
        if code in (0x15, 0x35, 0x45):
            assert place + 1 + max(yes, no) < len(steps)
    assert [step[0] for step in steps[-3:]] == [0x06] * 3
    assert seccomp.program("vax") is None
