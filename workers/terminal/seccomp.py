"""A seccomp filter against what a command in a workspace never needs: sockets, tracing, namespaces, mounts. Pure.

The program is classic BPF, as `bwrap --seccomp FD` takes it (seccomp(2), struct sock_filter). Numbers of system calls
are those of the kernel's own tables, by machine.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator
from typing import Final

# AUDIT_ARCH_* and numbers, from the kernel's headers: (x86_64, aarch64).
_ARCHES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED: Final = {
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
}
_CLONE: Final = (56, 220)
_CLONE3: Final = (435, 435)
# CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NEW_NAMESPACES: Final = 0x80 | 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
_X32_BIT: Final = 0x40000000

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

_Step = tuple[int, int, int, int]


def program(machine: str = "") -> bytes | None:
    """The filter for this machine (or the named one); None where its numbers are not known."""
    machine = machine or platform.machine()
    if machine not in _ARCHES:
        return None
    return b"".join(struct.pack("<HBBI", code, yes, no, value) for code, yes, no, value in _steps(machine))


def _steps(machine: str) -> Iterator[_Step]:
    column = list(_ARCHES).index(machine)
    denied = [numbers[column] for numbers in _DENIED.values()]
    # Behind the comparisons stand, in this order: those of clone3 and clone, allow, deny, not implemented.
    # An offset counts from the next instruction on.
    count = len(denied)
    yield _LOAD, 0, 0, _ARCH
    yield _JUMP_EQUAL, 1, 0, _ARCHES[machine]
    yield _RETURN, 0, 0, _KILL
    yield _LOAD, 0, 0, _NUMBER
    # Numbers of the x32 ABI name the same calls once more.
    yield _JUMP_AT_LEAST, count + 5, 0, _X32_BIT
    for place, number in enumerate(denied):
        yield _JUMP_EQUAL, count + 4 - place, 0, number
    yield _JUMP_EQUAL, 5, 0, _CLONE3[column]
    yield _JUMP_EQUAL, 0, 2, _CLONE[column]
    yield _LOAD, 0, 0, _FIRST_ARGUMENT
    yield _JUMP_BITS, 1, 0, _NEW_NAMESPACES
    yield _RETURN, 0, 0, _ALLOW
    yield _RETURN, 0, 0, _ERRNO | errno.EPERM
    yield _RETURN, 0, 0, _ERRNO | errno.ENOSYS
