"""Keeps other processes of the same user out of this one's memory and environment, where the keys are."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def hide_process() -> bool:
    """From now on no debugger attaches, no core is dumped, and /proc shows the environment to root alone.

    Whether it could be done: Linux only. It does not pass on to programs that this one starts, and hides nothing from
    root.
    """
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
