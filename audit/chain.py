"""The chain itself, pure: what an entry's bytes are, their hash, and the verifier. No Django, no database."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from core.canonical import payload_bytes

JsonObject = dict[str, Any]

VERSION: Final = 1
GENESIS: Final = "0" * 64
# The leaf prefix of RFC 6962, so that a Merkle tree over the same hashes can come on top later.
LEAF_PREFIX: Final = b"\x00"


def entry_hash(payload: bytes) -> str:
    """The hash of an entry with these stored bytes, 64 lowercase hexadecimal digits."""
    return sha256(LEAF_PREFIX + payload).hexdigest()


def entry_payload(
    *, log: str, seq: int, prev: str, ts: str, kind: str, principal: str, subject: str, data: JsonObject
) -> bytes:
    """The bytes to store for an entry. Raises ValueError when `data` does not fit the restricted profile."""
    return payload_bytes(
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
