"""RE2 over bytes: patterns that take linear time on any text."""

from __future__ import annotations

from typing import Any, Final

import re2

_MAX_MEMORY_BYTES: Final = 64 * 1024 * 1024


def linear(pattern: str | bytes) -> Any:
    """The compiled pattern. It reads single bytes, as UTF-8 text that may hold lone surrogates asks for."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = _MAX_MEMORY_BYTES
    return re2.compile(pattern.encode() if isinstance(pattern, str) else pattern, options)
