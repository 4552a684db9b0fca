"""The portable form of the chain: a file of JSON lines that anyone can check without a database. Pure.

The first line is a header (format, version, log, size, head); then comes one line per entry with its hash and its
payload, byte for byte, as text. A history has exactly one bundle: nothing in it depends on when or where it was made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, Final

from audit.chain import MAX_PAYLOAD_BYTES, Verifier, check_anchor
from audit.verdict import Verdict
from core.canonical import StrictDecodeError, strict_loads
from core.errors import MeahError

FORMAT: Final = "meah.audit"
VERSION: Final = 1
# An escaped control character takes six bytes in a line and at least one in the payload.
_MAX_LINE_BYTES: Final = 6 * MAX_PAYLOAD_BYTES + 200
_PROGRESS_EVERY: Final = 2000

Progress = Callable[[int, int], None]

_encode: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":")
).encode


def write(out: IO[bytes], *, log: str, size: int, head: str, entries: Iterable[tuple[bytes, str]]) -> None:
    """Write a bundle of (payload, hash) pairs. Raises MeahError E_AUDIT when a payload is not text."""
    out.write(_line({"format": FORMAT, "version": VERSION, "log": log, "size": size, "head": head}))
    for payload, stored_hash in entries:
        try:
            out.write(_line({"hash": stored_hash, "payload": payload.decode()}))
        except (UnicodeDecodeError, TypeError) as error:
            raise MeahError(
                "E_AUDIT",
                "An entry is not text any more, so the chain can not be exported.",
                hint="Run `manage.py audit verify`: it names the first entry that was tampered with.",
            ) from error


def verify_file(path: Path, *, anchor: str | None = None, progress: Progress | None = None) -> Verdict:
    """Check a bundle against its own head, and against `anchor` where one is given.

    Raises MeahError when nothing can be said: E_NOT_FOUND for a file that is not there or not readable,
    E_INVALID_REQUEST for one that is no bundle, and for an anchor that is no hash.
    """
    check_anchor(anchor)
    try:
        with path.open("rb") as file:
            return _verify(file, anchor=anchor, progress=progress)
    except OSError as error:
        raise MeahError(
            "E_NOT_FOUND",
            f"{path} can not be read: {error.strerror}.",
            hint="Check the path and its permissions.",
        ) from error


def _verify(file: IO[bytes], *, anchor: str | None, progress: Progress | None) -> Verdict:
    header = _read_header(file.readline(_MAX_LINE_BYTES))
    size: int = header["size"]
    verifier = Verifier(header["log"], anchor=anchor)
    count = 0
    while line := file.readline(_MAX_LINE_BYTES):
        if not _feed(verifier, line):
            break
        count += 1
        if progress and count % _PROGRESS_EVERY == 0:
            progress(count, size)
    return verifier.finish(size, header["head"])


def _feed(verifier: Verifier, line: bytes) -> bool:
    try:
        entry = json.loads(line)
        if _line(entry) != line:
            return verifier.feed_unreadable("its line is not in the form of a bundle.")
        return verifier.feed(entry["payload"].encode(), entry["hash"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return verifier.feed_unreadable("its line can not be read.")


def _read_header(line: bytes) -> dict[str, Any]:
    try:
        header = strict_loads(line)
    except StrictDecodeError as error:
        raise _not_a_bundle() from error
    types = {"format": str, "version": int, "log": str, "size": int, "head": str}
    if not isinstance(header, dict) or {name: type(value) for name, value in header.items()} != types:
        raise _not_a_bundle()
    if header["format"] != FORMAT or header["version"] != VERSION or _line(header) != line:
        raise _not_a_bundle()
    return header


def _not_a_bundle() -> MeahError:
    return MeahError(
        "E_INVALID_REQUEST",
        "The file does not begin like an audit bundle of a known version.",
        hint="Give a file that `manage.py audit export` wrote.",
    )


def _line(value: Any) -> bytes:
    return _encode(value).encode() + b"\n"
