"""The chain itself, pure: what an entry's bytes are, their hash, and the verifier. No Django, no database."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import sha256
from json.encoder import encode_basestring as _quote
from typing import Any, Final, NoReturn

from audit.verdict import Fault, FaultKind, Verdict
from core.canonical import payload_bytes
from core.errors import MeahError

JsonObject = dict[str, Any]
# seq, kind, principal, subject, time: what the columns of an entry repeat of its payload.
Projection = tuple[int, str, str, str, str]

VERSION: Final = 1
GENESIS: Final = "0" * 64
# The leaf prefix of RFC 6962, so that a Merkle tree over the same hashes can come on top later.
LEAF_PREFIX: Final = b"\x00"
MAX_INTEGER: Final = 2**53 - 1
MAX_PAYLOAD_BYTES: Final = 2**20
_ORDER: Final = ("v", "log", "seq", "prev", "ts", "kind", "principal", "subject", "data")
_TYPES: Final = (int, str, int, str, str, str, str, str, dict)
_FIELDS: Final = frozenset(_ORDER)
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_BEGINNING: Final = b'{"data":'


def entry_hash(payload: bytes) -> str:
    """The hash of an entry with these stored bytes, 64 lowercase hexadecimal digits."""
    return sha256(LEAF_PREFIX + payload).hexdigest()


def entry_payload(
    *, log: str, seq: int, prev: str, ts: str, kind: str, principal: str, subject: str, data: JsonObject
) -> bytes:
    """The bytes to store for an entry. Raises ValueError when `data` does not fit the restricted profile."""
    payload = payload_bytes(
        {
            "v": VERSION,
            "log": log,
            "seq": seq,
            "prev": prev,
            "ts": ts,
            "kind": kind,
            "principal": principal,
            "subject": subject,
            "data": data,
        }
    )
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"An entry of {len(payload)} bytes is too large.")
    return payload


def check_anchor(anchor: str | None) -> str | None:
    """The anchor, trimmed and in lower case. Raises MeahError E_INVALID_REQUEST when it is not a hash."""
    if anchor is None:
        return None
    anchor = anchor.strip().lower()
    if not _HASH.fullmatch(anchor):
        raise MeahError(
            "E_INVALID_REQUEST",
            "The anchor is not a hash.",
            hint="An anchor is the head that `manage.py audit head` printed earlier: 64 hexadecimal digits.",
        )
    return anchor


def _refuse(_text: str) -> NoReturn:
    raise ValueError("Not in the profile of entries.")


def _small_integer(digits: str) -> int:
    # Length first: int() of thousands of digits is slow.
    if len(digits) > 17 or not -MAX_INTEGER <= (number := int(digits)) <= MAX_INTEGER:
        _refuse(digits)
    return number


_decode: Final = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse, parse_int=_small_integer).raw_decode
# Equal to RFC 8785 for this profile (a test of core.canonical holds it); asked once per entry, so made once.
_encode: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


def read_payload(payload: bytes) -> JsonObject | None:
    """The envelope in an entry's stored bytes, or None when they are not the one canonical form of an entry."""
    fields = _read_canonical(payload)
    return fields if _is_envelope(fields) else None


def _read_canonical(data: bytes) -> Any:
    """The value of these bytes, or None when they are not its canonical form in the profile of entries."""
    try:
        text = data.decode()
        value, _end = _decode(text)
        # Equal again after the round trip: so the keys are sorted and unique, and nothing follows.
        if _encode(value) != text:
            return None
    except (ValueError, RecursionError):
        return None
    return value if text.isascii() or _has_ascii_keys(value) else None


def _is_envelope(fields: Any) -> bool:
    if type(fields) is not dict or fields.keys() != _FIELDS:
        return False
    # By exact type, because True equals 1. A canonical entry of another version is not one of ours.
    types = tuple(map(type, map(fields.__getitem__, _ORDER)))
    return types == _TYPES and fields["v"] == VERSION


def _has_ascii_keys(value: Any) -> bool:
    if type(value) is dict:
        return all(key.isascii() and _has_ascii_keys(item) for key, item in value.items())
    return type(value) is not list or all(map(_has_ascii_keys, value))


@dataclass(frozen=True)
class _Suspect:
    """A fault whose place is known and whose kind or owner depends on what follows."""

    seq: int
    hash: str
    gap: bool


class Verifier:
    """Checks entries handed over in order, and names the first fault.

    `feed` and `feed_unreadable` return False once nothing more has to be fed; `finish` gives the verdict. Position
    in a chain is what the payloads say (`seq`, `prev`), never what a column says.
    """

    def __init__(self, log: str, *, anchor: str | None = None) -> None:
        self._log = log
        self._anchor = check_anchor(anchor)
        self._anchor_seq = -1 if self._anchor == GENESIS else None
        self._size = 0
        self._prev = GENESIS
        self._suspect: _Suspect | None = None
        self._fault: Fault | None = None

    def feed(self, payload: bytes, stored_hash: str, columns: Projection | None = None) -> bool:
        """Check the next entry. `columns` are its projections, where there are any to compare."""
        if self._suspect:
            self._look_on(payload, self._suspect)
        elif (found := entry_hash(payload)) != stored_hash:
            self._fail("modified", self._size, "its bytes do not have its hash.")
        elif self._is_as_expected(payload, columns) or self._passes(payload, found, columns):
            self._accept(found)
        return self._fault is None

    def feed_unreadable(self, detail: str) -> bool:
        """What stands in the next entry's place can not be read as one."""
        if not self._suspect:
            self._fail("modified", self._size, detail)
        return self._fault is None

    def finish(self, size: int, head: str, *, beyond: int | None = None) -> Verdict:
        """The verdict, after the last entry, against the head; `beyond` is an entry found after the head."""
        if self._suspect:
            self._end_suspicion(self._suspect, head)
        if not self._fault:
            self._check_end(size, head, beyond)
        return Verdict(
            log=self._log,
            size=size,
            head=head,
            fault=self._fault,
            anchor=self._anchor,
            anchor_seq=None if self._fault else self._anchor_seq,
        )

    def _is_as_expected(self, payload: bytes, columns: Projection | None) -> bool:
        """The fast way to all of what `_passes` checks; False says nothing yet.

        Keys are sorted, so everything but `data` is one known ending, given the columns and what went before.
        """
        if columns is None or columns[0] != self._size:
            return False
        try:
            ending = self._ending(columns)
        except (TypeError, ValueError):
            # SQLite keeps a value of any type in any column, if someone puts it there.
            return False
        if not (payload.startswith(_BEGINNING) and payload.endswith(ending)):
            return False
        return type(_read_canonical(payload[len(_BEGINNING) : -len(ending)])) is dict

    def _ending(self, columns: Projection) -> bytes:
        seq, kind, principal, subject, ts = columns
        return (
            f',"kind":{_quote(kind)},"log":"{self._log}","prev":"{self._prev}","principal":{_quote(principal)}'
            f',"seq":{seq},"subject":{_quote(subject)},"ts":{_quote(ts)},"v":{VERSION}}}'
        ).encode()

    def _passes(self, payload: bytes, found: str, columns: Projection | None) -> bool:
        fields = read_payload(payload)
        if fields is None:
            self._fail("noncanonical", self._size, "its bytes are not the canonical form of an entry.")
        elif fields["log"] != self._log:
            self._fail("inserted", self._size, f"it belongs to another log, {fields['log']!r:.60}.")
        elif fields["seq"] < self._size:
            self._fail("inserted", fields["seq"], "two entries have this number.")
        elif fields["seq"] > self._size or fields["prev"] != self._prev:
            self._suspect = _Suspect(self._size, found, gap=fields["seq"] > self._size)
        elif columns is not None and columns != _projection(fields):
            self._fail("projection_mismatch", self._size, _difference(columns, _projection(fields)))
        else:
            return True
        return False

    def _accept(self, found: str) -> None:
        if found == self._anchor:
            self._anchor_seq = self._size
        self._size += 1
        self._prev = found

    def _fail(self, kind: FaultKind, seq: int, detail: str) -> None:
        self._suspect = None
        self._fault = Fault(kind, seq, detail)

    def _look_on(self, payload: bytes, suspect: _Suspect) -> None:
        """Read an entry after a suspect, to find out what the fault is."""
        fields = read_payload(payload)
        same_number = fields is not None and fields["seq"] == suspect.seq
        if suspect.gap:
            if same_number:
                self._fail("reordered", suspect.seq, "it stands further back.")
        elif fields and same_number and fields["prev"] == self._prev:
            self._fail("inserted", suspect.seq, "two entries have this number.")
        else:
            self._blame(suspect, follower_prev=fields["prev"] if fields else "")

    def _blame(self, suspect: _Suspect, *, follower_prev: str) -> None:
        """An entry does not name the one before it: which of the two was changed? What follows bears witness."""
        if follower_prev == suspect.hash and suspect.seq > 0:
            self._fail("modified", suspect.seq - 1, "the next entry names another hash for it.")
        else:
            self._fail("modified", suspect.seq, "it does not name the entry before it.")

    def _end_suspicion(self, suspect: _Suspect, head: str) -> None:
        if suspect.gap:
            self._fail("missing", suspect.seq, "a later entry stands in its place.")
        else:
            self._blame(suspect, follower_prev=head)

    def _check_end(self, size: int, head: str, beyond: int | None) -> None:
        if self._size < size:
            self._fail("truncated", self._size, f"the head counts {size} entries.")
        elif self._size > size or beyond is not None:
            seq = size if beyond is None else beyond
            self._fail("inserted", seq, f"it stands after the head, which counts {size} entries.")
        elif self._prev != head:
            self._fail("modified", max(size - 1, 0), "the head names another hash for the last entry.")
        elif self._anchor and self._anchor_seq is None:
            self._fail("truncated", size, "no entry has the anchor's hash: the chain was cut at its end, or rebuilt.")


def _projection(fields: JsonObject) -> Projection:
    return fields["seq"], fields["kind"], fields["principal"], fields["subject"], fields["ts"]


def _difference(columns: Projection, truth: Projection) -> str:
    names = ("seq", "kind", "principal", "subject", "time")
    differing = [name for name, one, other in zip(names, columns, truth, strict=True) if one != other]
    return f"the column {differing[0]} does not say what the entry says."
