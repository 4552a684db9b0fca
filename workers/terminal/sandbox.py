"""The sandbox: bubblewrap with a minimal root, nothing of the network, a PID namespace of its own, and our filter.

What is inside: /usr read-only, the links that lead there, a fresh /proc, a minimal /dev, an empty /tmp, and the
workspace as /w. bubblewrap itself is started with a clean environment, since its first process is visible inside.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from core.errors import MeahError

from . import seccomp

INSIDE: Final = "/w"
SEARCHED: Final = ("/usr/bin", "/bin", "/usr/local/bin")
ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
}
# By number: its name and group differ between systems.
NOBODY: Final = 65_534
UNSANDBOXED: Final = "MEAH_ALLOW_UNSANDBOXED_EXEC"
# Links of the root into /usr, and the few files of /etc without which programs do not start.
_LINKS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FILES: Final = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
_OWN_USER: Final = "1000"


@dataclass(frozen=True)
class Limits:
    """Of one command. The first four are the kernel's, for each of its processes; the others count all of them."""

    cpu_s: int = 60
    memory_bytes: int = 2 * 2**30
    file_bytes: int = 256 * 2**20
    open_files: int = 256
    processes: int = 64
    memory_in_all_bytes: int = 4 * 2**30
    workspace_bytes: int = 2**30
    workspace_files: int = 20_000
    # /tmp and /dev/shm inside are memory of the machine.
    scratch_bytes: int = 64 * 2**20


def is_unsandboxed_allowed() -> bool:
    """Whether the operator has said, in so many words, that commands may run without a sandbox."""
    return os.environ.get(UNSANDBOXED, "").strip().lower() in ("1", "true", "yes")


def unavailable(why: str) -> MeahError:
    return MeahError(
        "E_SANDBOX_UNAVAILABLE",
        f"Commands can not be run: {why}.",
        hint="Install bubblewrap, or use permissionProfile workspace-write and run commands yourself. "
        f"{UNSANDBOXED}=true runs them without a sandbox, as MEAH's own user.",
        details={"why": why},
    )


def bubblewrap() -> str | None:
    """Where it is: looked for in the system's directories only, never in a workspace or by MEAH's own PATH."""
    return shutil.which("bwrap", path=os.pathsep.join(SEARCHED))


def prlimit() -> str | None:
    return shutil.which("prlimit", path=os.pathsep.join(SEARCHED))


def setpriv() -> str | None:
    return shutil.which("setpriv", path=os.pathsep.join(SEARCHED))


def missing() -> str:
    """What keeps the sandbox from working at all; empty where it can be tried."""
    if sys.platform != "linux":
        return "there is no sandbox for this system: it needs Linux"
    if bubblewrap() is None:
        return "bubblewrap (bwrap) is not installed"
    if prlimit() is None:
        return "prlimit (util-linux) is not installed"
    if is_root() and setpriv() is None:
        return "setpriv (util-linux) is not installed, and root's commands run as nobody"
    if seccomp.program() is None:
        return "there is no filter of system calls for this machine's architecture"
    return ""


def wrapped(
    argv: Sequence[str], *, workspace_fd: int, filter_fd: int, limits: Limits, bound: Mapping[str, int]
) -> list[str]:
    """The command line that runs `argv` inside. `bound` are further paths, bound read-only, by their descriptors."""
    bwrap = bubblewrap()
    assert bwrap is not None
    return [
        bwrap,
        *_own_user(),
        *("--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"),
        *(word for name, value in _environment(INSIDE).items() for word in ("--setenv", name, value)),
        *("--ro-bind", "/usr", "/usr"),
        *_root(),
        *(word for path, fd in bound.items() for word in _bound(path, fd)),
        *("--proc", "/proc", "--dev", "/dev", *_scratch("/dev/shm", limits), "--remount-ro", "/dev"),  # noqa: S108
        *_scratch("/tmp", limits),  # noqa: S108 - inside of the sandbox
        *("--bind", f"/proc/self/fd/{workspace_fd}", INSIDE, "--chdir", INSIDE),
        *("--remount-ro", "/"),
        *("--seccomp", str(filter_fd)),
        "--",
        *_as_nobody(),
        *limited(argv, limits),
    ]


def _scratch(path: str, limits: Limits) -> tuple[str, ...]:
    return ("--perms", "1777", "--size", str(limits.scratch_bytes), "--tmpfs", path)


def _own_user() -> tuple[str, ...]:
    """Root becomes nobody once it is inside: in a user namespace it would stay root to the kernel's limits."""
    if not is_root():
        return ("--unshare-all", "--cap-drop", "ALL", "--uid", _OWN_USER, "--gid", _OWN_USER)
    namespaces = (f"--unshare-{name}" for name in ("ipc", "pid", "net", "uts", "cgroup-try"))
    # Kept only until setpriv has become nobody, which takes them away: to get there, and to enter nobody's directory.
    kept = (word for name in ("SETUID", "SETGID", "DAC_READ_SEARCH") for word in ("--cap-add", f"CAP_{name}"))
    return (*namespaces, "--cap-drop", "ALL", *kept)


def _as_nobody() -> tuple[str, ...]:
    if not is_root():
        return ()
    program = setpriv()
    assert program is not None
    return (
        program,
        f"--reuid={NOBODY}",
        f"--regid={NOBODY}",
        "--clear-groups",
        "--inh-caps=-all",
        "--no-new-privs",
        "--",
    )


def is_root() -> bool:
    return os.geteuid() == 0


def limited(argv: Sequence[str], limits: Limits) -> list[str]:
    """The command under limits of its own; set by a program, since a thread is no place to fork in."""
    program = prlimit()
    if program is None:
        return list(argv)
    return [
        program,
        f"--cpu={limits.cpu_s}",
        f"--as={limits.memory_bytes}",
        f"--fsize={limits.file_bytes}",
        f"--nofile={limits.open_files}",
        f"--nproc={limits.processes}",
        "--core=0",
        "--",
        *argv,
    ]


def _environment(home: str) -> dict[str, str]:
    return ENVIRONMENT | {"HOME": home, "TMPDIR": "/tmp", "PWD": home}  # noqa: S108


def outside_environment(home: Path) -> dict[str, str]:
    """Of a command that runs without a sandbox: from nothing, with the workspace as its home."""
    return ENVIRONMENT | {"HOME": str(home), "TMPDIR": str(home), "PWD": str(home)}


def _root() -> Iterator[str]:
    for name in _LINKS:
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    yield from _directory("/etc")
    for name in _FILES:
        yield from ("--ro-bind-try", name, name)


def _bound(path: str, fd: int) -> Iterator[str]:
    for parent in reversed(Path(path).parents[:-1]):
        yield from _directory(str(parent))
    yield from ("--ro-bind", f"/proc/self/fd/{fd}", path)


def _directory(path: str) -> tuple[str, ...]:
    """What bubblewrap makes on the way by itself, its own user alone may enter."""
    return ("--perms", "0755", "--dir", path)


def outside_usr(executable: str, also: Sequence[str]) -> list[str]:
    """What has to be bound besides: an executable that does not lie where the root has it anyway."""
    there = ("/usr/", *(f"/{name}/" for name in _LINKS), *(f"{path}/" for path in also))
    return [*also] if executable.startswith(there) else [executable, *also]


@contextmanager
def filter_pipe() -> Iterator[int]:
    """A descriptor from which bubblewrap reads the filter."""
    program = seccomp.program()
    assert program is not None
    reading, writing = os.pipe()
    try:
        # Far below what a pipe holds.
        os.write(writing, program)
        os.close(writing)
        yield reading
    finally:
        os.close(reading)
