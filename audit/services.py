"""What everybody does with the chain: add to it, ask where it stands, verify it, export it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from django.db import Error as DatabaseError
from django.db import connection, transaction
from django.utils import timezone

from audit import bundle, store
from audit.bundle import verify_file as verify_file
from audit.chain import Verifier, check_anchor, entry_hash, entry_payload, read_payload
from audit.files import new_file
from audit.models import Entry
from audit.store import HeadInfo as HeadInfo
from audit.verdict import Verdict
from core.canonical import canonical_text, digest, utc_text
from core.errors import MeahError
from core.redaction import redact, redact_value
from core.text import one_line

JsonObject = dict[str, Any]
Progress = Callable[[int, int], None]

VERIFIED: Final = "audit.verified"
EXPORTED: Final = "audit.exported"
ARGUMENTS_TAG: Final = "meah/args/v1"
VIEW_CHARACTERS: Final = 4_000
SETTINGS_CHARACTERS: Final = 100_000
_NAME_CHARACTERS: Final = 200
_SALT_BYTES: Final = 16
_KIND: Final = re.compile(r"[a-z][a-z_]*\.[a-z][a-z_]*")


@dataclass(frozen=True)
class NewEntry:
    """What is to be recorded.

    `data` holds strings, booleans, null, integers, lists and objects with ASCII keys.
    """

    kind: str
    principal: str
    subject: str = ""
    data: JsonObject = field(default_factory=dict)


def record(kind: str, *, principal: str, subject: str = "", data: JsonObject | None = None) -> Entry:
    """Add one entry, in the transaction of the change it describes and as its last statement.

    `kind` is `noun.verb`. Control characters of `principal` and `subject` are made visible, and both are cut to
    200 characters. Raises MeahError E_AUDIT when the entry can not be written (the transaction is then rolled
    back, even where the caller catches the error), TransactionManagementError outside of `transaction.atomic`.
    """
    return record_many([NewEntry(kind, principal, subject, data or {})])[0]


def record_many(news: Sequence[NewEntry]) -> list[Entry]:
    """Add several entries under one lock of the head; see `record`."""
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("audit.services.record belongs inside transaction.atomic().")
    if not news:
        return []
    try:
        return _append(news)
    except (DatabaseError, ValueError) as error:
        transaction.set_rollback(True)
        raise MeahError("E_AUDIT", details={"kind": news[0].kind}) from error


def _append(news: Sequence[NewEntry]) -> list[Entry]:
    start = store.locked_head()
    now = timezone.now()
    entries: list[Entry] = []
    prev = start.hash
    for seq, new in enumerate(news, start.size):
        entries.append(_entry(new, log=start.log, seq=seq, prev=prev, now=now))
        prev = entries[-1].hash
    store.append(entries, was=start)
    return entries


def _entry(new: NewEntry, *, log: str, seq: int, prev: str, now: datetime) -> Entry:
    if not _KIND.fullmatch(new.kind):
        raise ValueError(f"{new.kind!r} is not a kind of entry.")
    names = {
        "kind": new.kind,
        "principal": one_line(new.principal, _NAME_CHARACTERS),
        "subject": one_line(new.subject, _NAME_CHARACTERS),
    }
    payload = entry_payload(log=log, seq=seq, prev=prev, ts=utc_text(now), data=new.data, **names)
    entry = Entry(seq=seq, payload=payload, hash=entry_hash(payload), at=now, **names)
    entry._state.adding = False
    return entry


def commitment(value: Any) -> tuple[JsonObject, str]:
    """A view of a foreign value for the chain, and the salt to keep with the value.

    The view has `text` (RFC 8785, redacted, then cut to 4,000 characters), `bytes` (of the whole, in clear),
    `digest` (salted) and `cut`. Who has the value and the salt can show that the digest is its; without the salt
    not even a short value can be guessed. Raises core.canonical.StrictDecodeError for what is no strict JSON.
    """
    whole = canonical_text(value).encode()
    text = _redacted(value)
    salt = secrets.token_bytes(_SALT_BYTES)
    view = {
        "text": text[:VIEW_CHARACTERS],
        "cut": len(text) > VIEW_CHARACTERS,
        "bytes": len(whole),
        "digest": digest(ARGUMENTS_TAG, whole, salt=salt),
    }
    return view, salt.hex()


def opens(view: JsonObject, value: Any, salt: str) -> bool:
    """Whether this value, with the salt kept for it, is the one that the view commits to."""
    found = digest(ARGUMENTS_TAG, canonical_text(value).encode(), salt=bytes.fromhex(salt))
    return secrets.compare_digest(found, view["digest"])


def settings_text(value: Any) -> str:
    """A setting's value before or after a change, as it goes into an entry: RFC 8785 text, redacted."""
    text = _redacted(value)
    if len(text) <= SETTINGS_CHARACTERS:
        return text
    return f"{text[:SETTINGS_CHARACTERS]}… ({len(text)} characters)"


def _redacted(value: Any) -> str:
    return redact(canonical_text(redact_value(value)))


def head() -> HeadInfo:
    """Where the chain ends now. Raises MeahError E_AUDIT when it can not be read."""
    try:
        return store.head()
    except DatabaseError as error:
        raise MeahError("E_AUDIT", "The audit chain's head can not be read.") from error


def verify(*, anchor: str | None = None, progress: Progress | None = None) -> Verdict:
    """Recompute the whole chain from its stored bytes; writes nothing, and holds up no append.

    Entries appended meanwhile are left to the next verification. From asynchronous code: `in_background`.
    Raises MeahError: E_AUDIT when the chain can not be read, E_INVALID_REQUEST for an anchor that is no hash.
    """
    check_anchor(anchor)
    end = head()
    verifier = Verifier(end.log, anchor=anchor)
    try:
        _feed_all(verifier, end, progress)
        beyond = store.first_beyond(end.size)
    except DatabaseError as error:
        raise MeahError("E_AUDIT", "The audit chain can not be read.") from error
    return verifier.finish(end.size, end.hash, beyond=beyond)


def _feed_all(verifier: Verifier, end: HeadInfo, progress: Progress | None) -> None:
    done = 0
    feed = verifier.feed
    for chunk in store.chunks(size=end.size):
        for payload, stored_hash, columns in chunk:
            if not feed(payload, stored_hash, columns):
                return
        done += len(chunk)
        if progress:
            progress(done, end.size)


def record_verification(verdict: Verdict, *, principal: str) -> None:
    """Put a verdict on the chain. Raises MeahError E_AUDIT when that fails."""
    _record_alone(VERIFIED, principal=principal, subject=verdict.word, data=verdict.as_dict())


def verify_and_record(*, principal: str, anchor: str | None = None) -> Verdict:
    """`verify`, and its verdict put on the chain."""
    verdict = verify(anchor=anchor)
    record_verification(verdict, principal=principal)
    return verdict


def export_to(path: Path, *, principal: str, replace: bool = False, progress: Progress | None = None) -> HeadInfo:
    """Write the chain as it stands into a bundle (mode 0600, whole or not at all), and record that.

    Returns the head that the bundle ends at. From asynchronous code: `in_background`. Raises MeahError:
    E_INVALID_REQUEST when the file is there already (and not to be replaced) or can not be written, E_AUDIT when
    the chain can not be read or the export can not be recorded; then there is no file either.
    """
    end = head()
    with new_file(path, replace=replace) as out:
        try:
            bundle.write(out, log=end.log, size=end.size, head=end.hash, entries=_hashed_payloads(end.size, progress))
        except DatabaseError as error:
            raise MeahError("E_AUDIT", "The audit chain can not be read.") from error
        data = {"file": one_line(path.name, _NAME_CHARACTERS), "size": end.size, "head": end.hash}
        _record_alone(EXPORTED, principal=principal, subject=end.log, data=data)
    return end


def _hashed_payloads(size: int, progress: Progress | None) -> Iterator[tuple[bytes, str]]:
    done = 0
    for chunk in store.chunks(size=size):
        for payload, stored_hash, _columns in chunk:
            yield payload, stored_hash
        done += len(chunk)
        if progress:
            progress(done, size)


def _record_alone(kind: str, *, principal: str, subject: str, data: JsonObject) -> None:
    try:
        with transaction.atomic():
            record(kind, principal=principal, subject=subject, data=data)
    except DatabaseError as error:
        raise MeahError("E_AUDIT", details={"kind": kind}) from error


@dataclass(frozen=True)
class ChainState:
    """Where the chain stands, and what the last verification found.

    Its time, its verdict (`whole`, `tampered`, or `unreadable`) and the number of entries then.
    """

    head: HeadInfo
    verified_at: datetime | None = None
    verdict: str = ""
    verified_size: int = 0


def chain_state() -> ChainState:
    """For the admin's index and `doctor`. Raises MeahError E_AUDIT when the chain can not be read."""
    end = head()
    last = Entry.objects.filter(kind=VERIFIED).order_by("-seq").first()
    if last is None:
        return ChainState(end)
    fields = read_payload(store.as_bytes(last.payload)) or {"data": {}}
    verdict, size = fields["data"].get("verdict"), fields["data"].get("size")
    return ChainState(end, last.at, str(verdict or "unreadable"), size if isinstance(size, int) else 0)


def change(
    kind: str,
    *,
    principal: str,
    subject: str,
    before: JsonObject | None,
    after: JsonObject | None,
    hidden: Collection[str] = (),
) -> NewEntry | None:
    """The entry of a change of settings: both states as redacted text, and the names of what differs.

    `before` is None for something new, `after` for something deleted; the result is None when nothing differs. Of
    the fields in `hidden` the entry says that they changed, never what they hold.
    """
    changed = [] if before is None or after is None else _differing(before, after)
    if before is not None and after is not None and not changed:
        return None
    data = {
        "before": None if before is None else _settings_state(before, hidden),
        "after": None if after is None else _settings_state(after, hidden),
        "changed": changed,
    }
    return NewEntry(kind, principal, subject, data)


def _differing(before: JsonObject, after: JsonObject) -> list[str]:
    """By their text: in Python 1 equals true, and a rule that compares with one is not one that does with the other."""
    return sorted(name for name in before.keys() | after.keys() if repr(before.get(name)) != repr(after.get(name)))


def _settings_state(state: JsonObject, hidden: Collection[str]) -> str:
    return settings_text({name: "[hidden]" if name in hidden else value for name, value in state.items()})


class Named(Protocol):
    """Django's users, by what they all have."""

    def get_username(self) -> str: ...


def user_principal(user: Named) -> str:
    """How a person is written in entries: `user:alice`."""
    return f"user:{user.get_username()}"
