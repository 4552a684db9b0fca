"""What a verification found, and how it is told: faults, verdicts, their text. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

FaultKind = Literal["modified", "missing", "inserted", "reordered", "truncated", "projection_mismatch", "noncanonical"]

_PROVES = (
    "This proves that these entries agree with each other and with the head: none was changed, removed, "
    "inserted or moved without the hashes showing it."
)
_ANCHORED = "anchored: up to entry {seq} this is the chain whose head was noted as the anchor."
_NOT_ANCHORED = (
    "not anchored: a chain that was cut at its end, or rebuilt with a new head, looks whole too. "
    "Only a head noted earlier, elsewhere, shows that: `manage.py audit verify --anchor HASH`."
)
_CANNOT_PROVE = "No check can prove that a compromised host recorded everything it did."


@dataclass(frozen=True)
class Fault:
    """The first fault of a chain: its kind, the entry (`seq`) it was found at, and a sentence."""

    kind: FaultKind
    seq: int
    detail: str


@dataclass(frozen=True)
class Verdict:
    """What was checked, and the first fault, if any. `anchor_seq` is the entry that bears the anchor's hash."""

    log: str
    size: int
    head: str
    fault: Fault | None = None
    anchor: str | None = None
    anchor_seq: int | None = None

    @property
    def whole(self) -> bool:
        return self.fault is None

    @property
    def word(self) -> str:
        return "whole" if self.whole else "tampered"

    def as_dict(self) -> dict[str, Any]:
        """The verdict's wire form; fits the profile of entries too."""
        out: dict[str, Any] = {
            "verdict": self.word,
            "log": self.log,
            "size": self.size,
            "head": self.head,
            "anchor": self.anchor,
            "anchored": self.anchor_seq is not None,
            "fault": None,
        }
        if self.fault:
            out["fault"] = {"kind": self.fault.kind, "seq": self.fault.seq, "detail": self.fault.detail}
        return out

    def lines(self) -> list[str]:
        """The verdict for people: the finding first, then what it proves and what it can not."""
        if self.fault:
            return [
                f"tampered: {self.fault.kind} at entry {self.fault.seq}: {self.fault.detail}",
                f"log {self.log}, {self.size} entries, head {self.head}.",
                "Entries before the first fault passed; nothing is said about those after it.",
            ]
        anchored = _NOT_ANCHORED if self.anchor_seq is None else _ANCHORED.format(seq=self.anchor_seq)
        return [
            f"whole: {self.size} entries of {self.log}, head {self.head}.",
            anchored,
            _PROVES,
            _CANNOT_PROVE,
        ]
