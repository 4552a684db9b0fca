"""Ways out of the sandbox, tried from inside with a real interpreter: all fail, and without the sandbox they do not."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workers.terminal import execution, probes, sandbox, seccomp
from workers.terminal.execution import Ran
from workers.terminal.sandbox import Limits

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason=f"no sandbox here: {sandbox.missing()}")
PYTHON = str(Path(sys.executable).resolve())
LIBRARY = [str(Path(sys.base_prefix).resolve())]
# Each says so where it got out; in words that a traceback, which quotes the script, does not hold.
OUT = "gotout"
SAY = "def out(found):\n    if found: print('got' 'out')\n"
ESCAPES = {
    "read outside": "out(open('{secret}').read())",
    "write outside": "open('{target}', 'w').write('x'); out(True)",
    "another workspace": "out(open('{other}/file').read())",
    "tcp": "import socket; socket.create_connection(('127.0.0.1', {port}), 1); out(True)",
    "udp": "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
    "out(s.sendto(b'x', ('127.0.0.1', {port})))",
    "unix socket": "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{unix}'); out(True)",
    "abstract socket": "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0{abstract}'); out(True)",
    "ptrace": "import ctypes; out(ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0)",
    "mount": "import ctypes; out(ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, None) == 0)",
    "a namespace": "import ctypes; out(ctypes.CDLL(None).unshare(0x10000000) == 0)",
    "parent's environment": """
import glob
for path in glob.glob('/proc/[0-9]*/environ'):
    try:
        out(b'{mark}' in open(path, 'rb').read())
    except OSError:
        pass
""",
    "through /proc": "out(open('/proc/1/root{secret}').read())",
}
# Of the others it depends on the user and on the machine whether they are open outside.
OPEN_OUTSIDE = [name for name in ESCAPES if name not in ("mount", "a namespace", "through /proc")]


@pytest.fixture
def around(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What there is to be reached outside."""
    secret, other = tmp_path / "secret", tmp_path / "other"
    secret.write_text("secret")
    other.mkdir()
    (other / "file").write_text("theirs")
    (tmp_path / "w").mkdir()
    abstract = f"meah-test-{os.getpid()}"
    # Below /tmp: the path of such a socket may not be long.
    unix_path = Path(f"/tmp/meah-test-{os.getpid()}.sock")
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as hidden,
    ):
        unix.bind(str(unix_path))
        unix.listen()
        hidden.bind("\0" + abstract)
        hidden.listen()
        yield {
            "secret": secret,
            "target": tmp_path / "target",
            "other": other,
            "port": tcp.getsockname()[1],
            "unix": unix_path,
            "abstract": abstract,
            "mark": probes._own_mark(),
            "workspace": tmp_path / "w",
        }
        unix_path.unlink()


def ran(argv: list[str], workspace: Path, **options: Any) -> Ran:
    execution.hand_over(workspace)
    options = {"timeout_s": 15, "keep_bytes": 20_000, "also": LIBRARY} | options
    return asyncio.run(execution.run(argv, workspace=workspace, **options))


def script(text: str, workspace: Path, **options: Any) -> Ran:
    return ran([PYTHON, "-I", "-S", "-c", text], workspace, **options)


@pytest.mark.parametrize("escape", ESCAPES)
def test_no_way_out(around: dict[str, Any], escape: str) -> None:
    tried = script(SAY + ESCAPES[escape].format(**around), around["workspace"])
    assert OUT not in tried.output, tried.output
    assert tried.ended == "" and not around["target"].exists()


@pytest.mark.parametrize("escape", OPEN_OUTSIDE)
def test_without_the_sandbox_the_same_gets_out(around: dict[str, Any], escape: str) -> None:
    """Else the test above would prove nothing."""
    words = [PYTHON, "-I", "-S", "-c", SAY + ESCAPES[escape].format(**around)]
    tried = subprocess.run(words, cwd=around["workspace"], capture_output=True, text=True, check=False)
    assert OUT in tried.stdout, tried.stderr


def test_the_self_test_finds_it_tight_and_says_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(probes.holes()) == ""
    whole = sandbox.wrapped

    def leaky(argv: Any, **more: Any) -> list[str]:
        """The network of the machine, and no filter."""
        words = [word for word in whole(argv, **more) if word != "--unshare-net"]
        words = ["--unshare-user" if word == "--unshare-all" else word for word in words]
        place = words.index("--seccomp")
        return words[:place] + words[place + 2 :]

    monkeypatch.setattr(sandbox, "wrapped", leaky)
    assert "TCP, UDP, Unix socket" in asyncio.run(probes.holes())


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


# -- limits and ends ------------------------------------------------------------------------------------------------


def test_a_flood_is_cut_while_it_is_read(tmp_path: Path) -> None:
    tried = ran(["/usr/bin/yes"], tmp_path, keep_bytes=10_000)
    assert "wrote more than" in tried.ended and tried.status is None
    assert len(tried.output) < 11_000 and "left out" in tried.output


def test_a_key_is_not_cut_before_it_is_recognised(tmp_path: Path) -> None:
    """Wherever the cut falls."""
    key = "sk-ant-api03-" + "a1B2c3D4" * 8
    for keep in range(1_000, 1_100, 7):
        tried = script(f"print('x' * 480 + '{key}' + 'y' * 3000)", tmp_path, keep_bytes=keep)
        assert "a1B2c3D4" not in tried.output


def test_time_is_up_and_everything_is_gone(tmp_path: Path) -> None:
    begun = time.monotonic()
    tried = ran(["/bin/sh", "-c", "trap '' TERM; (setsid sleep 997 &); sleep 998"], tmp_path, timeout_s=0.5)
    assert "took more than" in tried.ended and time.monotonic() - begun < 5
    assert not alive("sleep", "997") and not alive("sleep", "998")


@pytest.mark.parametrize("sandboxed", [True, False])
@pytest.mark.parametrize("rounds", [pytest.param(3, id="some"), pytest.param(25, id="full", marks=pytest.mark.slow)])
def test_a_cancel_ends_the_whole_tree(tmp_path: Path, sandboxed: bool, rounds: int) -> None:
    nested = "trap '' TERM; sleep 3333 & sleep 3333"
    stubborn = f'trap "" TERM; (setsid sh -c "{nested}" &); (setsid setsid sh -c "{nested}" &); sleep 3333'

    async def main() -> None:
        for _ in range(rounds):
            argv = ["/bin/sh", "-c", stubborn]
            running = asyncio.create_task(
                execution.run(
                    argv, workspace=tmp_path, timeout_s=60, keep_bytes=1000, sandboxed=sandboxed, also=LIBRARY
                )
            )
            await asyncio.sleep(0.4)
            begun = time.monotonic()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert time.monotonic() - begun < 3
            assert not alive("3333")

    asyncio.run(main())


def test_a_fork_bomb_is_counted_and_ended(tmp_path: Path) -> None:
    """It may start as many as it likes in a loop, not in a tree: where no limit held, this machine would be gone."""
    bomb = (
        "import os, time\nfor _ in range(500):\n    try:\n        if os.fork() == 0: time.sleep(30); os._exit(0)\n"
        "    except OSError:\n        print('refused', flush=True); break\ntime.sleep(30)"
    )
    begun = time.monotonic()
    tried = script(bomb, tmp_path, timeout_s=3, limits=Limits(processes=30))
    assert "refused" in tried.output or "processes" in tried.ended, tried
    assert time.monotonic() - begun < 8
    assert not alive("os.fork()")


def test_a_spin_and_a_large_file_meet_their_limits(tmp_path: Path) -> None:
    tried = script("while True: pass", tmp_path, limits=Limits(cpu_s=1), timeout_s=20)
    assert tried.ended == "" and tried.status not in (0, None)
    tried = script("open('big', 'wb').write(b'x' * 5_000_000)", tmp_path, limits=Limits(file_bytes=1_000_000))
    assert tried.status != 0 and (tmp_path / "big").stat().st_size <= 1_000_000
    tried = script("x = bytearray(800_000_000); print(len(x))", tmp_path, limits=Limits(memory_bytes=400_000_000))
    assert "800000000" not in tried.output


def alive(*words: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = path.parent.joinpath("stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if all(word in line for word in words) and state != "Z" and "pytest" not in line:
            found.append(line)
    return found
