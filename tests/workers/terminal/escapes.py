"""Ways out of the sandbox, to be tried from inside with a real interpreter; and the same without one.

Run as a program it tries all of them as the user that it is, and prints how each went.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workers.terminal import execution, probes
from workers.terminal.execution import Ran

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
    "a capability": "out(any(int(line.split()[1], 16) for line in open('/proc/self/status') "
    "if line.startswith(('CapPrm', 'CapEff', 'CapAmb', 'CapInh'))))",
    "a device": "import os; os.mknod('/dev/out', 0o20666, os.makedev(1, 1)); out(True)",
    "writing /dev": "open('/dev/out', 'w'); out(True)",
    "writing /proc": "open('/proc/sys/kernel/hostname', 'w').write('x'); out(True)",
}
# Of the others it depends on the user and on the machine whether they are open outside.
OPEN_OUTSIDE = [*list(ESCAPES)[:8], "parent's environment"]


@contextmanager
def surroundings(directory: Path) -> Iterator[dict[str, Any]]:
    """What there is to be reached outside."""
    secret, other = directory / "secret", directory / "other"
    secret.write_text("secret")
    other.mkdir()
    (other / "file").write_text("theirs")
    (directory / "w").mkdir()
    with (
        tempfile.TemporaryDirectory(prefix="meah-", dir="/tmp") as short,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as unnamed,
    ):
        named.bind(f"{short}/socket")
        named.listen()
        unnamed.bind("\0" + short)
        unnamed.listen()
        yield {
            "secret": secret,
            "target": directory / "target",
            "other": other,
            "port": tcp.getsockname()[1],
            "unix": f"{short}/socket",
            "abstract": short,
            "mark": max(Path("/proc/self/environ").read_bytes().split(b"\0"), key=len)[:60].decode(),
            "workspace": directory / "w",
        }


def ran(argv: list[str], workspace: Path, **options: Any) -> Ran:
    execution.hand_over(workspace)
    options = {"timeout_s": 15, "keep_bytes": 20_000, "also": LIBRARY} | options
    return asyncio.run(execution.run(argv, workspace=workspace, **options))


def script(text: str, workspace: Path, **options: Any) -> Ran:
    return ran([PYTHON, "-I", "-S", "-c", text], workspace, **options)


def inside(escape: str, around: dict[str, Any]) -> str:
    """What it said in the sandbox; ends with what it left outside."""
    tried = script(SAY + ESCAPES[escape].format(**around), around["workspace"])
    return f"{tried.output}{tried.ended}{OUT if around['target'].exists() else ''}"


def outside(escape: str, around: dict[str, Any]) -> str:
    words = [PYTHON, "-I", "-S", "-c", SAY + ESCAPES[escape].format(**around)]
    tried = subprocess.run(words, cwd=around["workspace"], capture_output=True, text=True, check=False)
    around["target"].unlink(missing_ok=True)
    return tried.stdout + tried.stderr


def main() -> None:
    found: dict[str, Any] = {"uid": os.geteuid(), "self-test": asyncio.run(probes.holes())}
    with tempfile.TemporaryDirectory() as directory, surroundings(Path(directory)) as around:
        found["inside"] = {escape: inside(escape, around) for escape in ESCAPES}
        found["outside"] = {escape: outside(escape, around) for escape in OPEN_OUTSIDE}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
