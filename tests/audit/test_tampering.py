"""Tampering with the database itself, guards taken away: verification names the fault and its place."""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from audit import services
from audit.chain import entry_hash
from core.errors import MeahError
from tests.audit.histories import Row, drop_triggers, edited, make_row, record_history, sql

pytestmark = pytest.mark.django_db

SIZE = 30


@pytest.fixture(autouse=True)
def history() -> None:
    record_history(SIZE)
    drop_triggers()


def fault(**options: Any) -> tuple[str, int]:
    found = services.verify(**options).fault
    assert found is not None, "the tampering was not seen"
    return found.kind, found.seq


def stored(seq: int) -> tuple[bytes, str]:
    [(payload, stored_hash)] = sql("SELECT payload, hash FROM audit_entry WHERE seq = %s", seq)
    return bytes(payload), stored_hash


def write(seq: int, payload: bytes, stored_hash: str) -> None:
    sql("UPDATE audit_entry SET payload = %s, hash = %s WHERE seq = %s", payload, stored_hash, seq)


def insert(seq: int, row: Row) -> None:
    """Put a row there with columns that fit its payload."""
    payload, stored_hash, (_seq, kind, principal, subject, ts) = row
    sql(
        "INSERT INTO audit_entry (seq, payload, hash, kind, principal, subject, at)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s)",
        *(seq, payload, stored_hash, kind, principal, subject),
        connection.ops.adapt_datetimefield_value(datetime.fromisoformat(ts)),
    )


def edit_every_row(size: int) -> None:
    for seq in range(size):
        payload, stored_hash = stored(seq)
        changed = bytearray(payload)
        changed[seq % len(changed)] ^= 1
        write(seq, bytes(changed), stored_hash)
        assert fault() == ("modified", seq)
        write(seq, *edited(payload, subject="c_forged"))
        assert fault()[1] == seq
        write(seq, payload, stored_hash)
    assert services.verify().whole


def test_an_untouched_history_is_whole() -> None:
    verdict = services.verify()
    assert (verdict.whole, verdict.size) == (True, SIZE)


def test_an_edit_of_any_row_is_modified() -> None:
    edit_every_row(SIZE)


@pytest.mark.slow
def test_an_edit_of_any_of_a_thousand_rows_is_modified() -> None:
    record_history(1000 - SIZE)
    edit_every_row(1000)


@pytest.mark.parametrize("seq", [0, 1, 17, SIZE - 2])
def test_a_deleted_row_is_missing(seq: int) -> None:
    sql("DELETE FROM audit_entry WHERE seq = %s", seq)
    assert fault() == ("missing", seq)


def test_a_row_moved_to_the_end_is_not_where_it_belongs() -> None:
    sql("UPDATE audit_entry SET seq = 1000 WHERE seq = 4")
    assert fault() == ("missing", 4)


@pytest.mark.parametrize(("one", "other"), [(3, 4), (0, SIZE - 1)])
def test_swapped_rows_are_reordered(one: int, other: int) -> None:
    sql("UPDATE audit_entry SET seq = -5 WHERE seq = %s", one)
    sql("UPDATE audit_entry SET seq = %s WHERE seq = %s", one, other)
    sql("UPDATE audit_entry SET seq = %s WHERE seq = -5", other)
    assert fault() == ("reordered", one)


def test_swapped_contents_are_reordered() -> None:
    one, other = stored(6), stored(9)
    write(6, *other)
    write(9, *one)
    assert fault() == ("reordered", 6)


def test_a_row_pushed_between_two_is_inserted() -> None:
    for seq in range(SIZE - 1, 9, -1):
        sql("UPDATE audit_entry SET seq = %s WHERE seq = %s", seq + 1, seq)
    insert(10, make_row(10, stored(9)[1], log=services.head().log))
    sql("UPDATE audit_head SET size = size + 1")
    assert fault() == ("inserted", 10)


def test_a_row_before_the_first_is_inserted() -> None:
    insert(-1, make_row(-1, "0" * 64, log=services.head().log))
    assert fault() == ("inserted", -1)


def test_a_row_after_the_head_is_inserted() -> None:
    end = services.head()
    insert(SIZE, make_row(SIZE, end.hash, log=end.log))
    assert fault() == ("inserted", SIZE)
    sql("UPDATE audit_entry SET seq = 5000 WHERE seq = %s", SIZE)
    assert fault() == ("inserted", 5000)


def test_a_cut_tail_is_truncated() -> None:
    sql("DELETE FROM audit_entry WHERE seq >= 20")
    assert fault() == ("truncated", 20)


def test_a_cut_tail_with_a_fitting_head_needs_the_anchor() -> None:
    anchor = services.head().hash
    sql("DELETE FROM audit_entry WHERE seq >= 20")
    sql("UPDATE audit_head SET size = 20, last_hash = %s", stored(19)[1])
    assert services.verify().whole
    assert fault(anchor=anchor) == ("truncated", 20)


def test_an_emptied_chain_needs_the_anchor() -> None:
    anchor = services.head().hash
    sql("DELETE FROM audit_entry")
    sql("UPDATE audit_head SET size = 0, last_hash = %s", "0" * 64)
    assert services.verify().whole
    assert fault(anchor=anchor) == ("truncated", 0)


def test_a_chain_rebuilt_from_a_row_on_needs_the_anchor() -> None:
    anchor = services.head().hash
    prev = stored(9)[1]
    for seq in range(10, SIZE):
        payload, prev = edited(stored(seq)[0], prev=prev, data={"forged": True})
        write(seq, payload, prev)
    assert fault() == ("modified", SIZE - 1)
    sql("UPDATE audit_head SET last_hash = %s", prev)
    assert services.verify().whole
    assert fault(anchor=anchor) == ("truncated", SIZE)


@pytest.mark.parametrize("column", ["kind", "principal", "subject"])
def test_a_changed_column_is_a_projection_mismatch(column: str) -> None:
    sql(f"UPDATE audit_entry SET {column} = 'other' WHERE seq = 12")
    assert fault() == ("projection_mismatch", 12)


def test_a_changed_time_is_a_projection_mismatch() -> None:
    sql("UPDATE audit_entry SET at = '2020-01-01 00:00:00+00:00' WHERE seq = 12")
    assert fault() == ("projection_mismatch", 12)


def test_other_bytes_for_the_same_value_are_noncanonical() -> None:
    payload = stored(7)[0].replace(b'"v":1', b'"v": 1')
    write(7, payload, entry_hash(payload))
    assert fault() == ("noncanonical", 7)


def test_a_changed_head_is_seen() -> None:
    sql("UPDATE audit_head SET last_hash = %s", "f" * 64)
    assert fault() == ("modified", SIZE - 1)


def test_a_head_of_another_log_is_seen() -> None:
    sql("UPDATE audit_head SET log = 'log_ffffffffffffffffffff'")
    assert fault() == ("inserted", 0)


def test_a_tampered_chain_still_takes_the_record_of_its_verification() -> None:
    sql("UPDATE audit_entry SET subject = 'x' WHERE seq = 12")
    assert not services.verify_and_record(principal="user:alice").whole
    state = services.chain_state()
    assert (state.verdict, state.verified_size) == ("tampered", SIZE)


def test_progress_is_told_as_it_goes() -> None:
    record_history(2100)
    seen: list[tuple[int, int]] = []
    assert services.verify(progress=lambda done, total: seen.append((done, total))).whole
    assert seen == [(2000, 2100 + SIZE), (2100 + SIZE, 2100 + SIZE)]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="other databases keep the types of their columns")
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("payload = 'text'", "modified"),
        ("payload = 5", "modified"),
        ("payload = x''", "modified"),
        ("hash = x'00'", "modified"),
        ("kind = x'41'", "projection_mismatch"),
        ("subject = x'ff'", "projection_mismatch"),
        ("at = x'41'", "projection_mismatch"),
        ("at = 5.5", "projection_mismatch"),
        ("seq = 12.5", "projection_mismatch"),
        ("seq = 'twelve'", "missing"),
    ],
)
def test_values_of_another_type_are_tampering_and_no_crash(change: str, kind: str, tmp_path: Path) -> None:
    sql(f"UPDATE audit_entry SET {change} WHERE seq = 12")
    assert fault() == (kind, 12)
    with contextlib.suppress(MeahError):
        services.export_to(tmp_path / "chain.jsonl", principal="system")


@pytest.mark.skipif(connection.vendor != "sqlite", reason="other databases hold no text that is none")
def test_a_column_that_is_no_text_can_not_be_told() -> None:
    sql("UPDATE audit_entry SET kind = CAST(x'ff' AS TEXT) WHERE seq = 12")
    with pytest.raises(MeahError, match="can not be read"):
        services.verify()


@pytest.mark.parametrize("payload", [b"", b"[]", b"\xff", b'{"data":[]}'])
def test_an_unreadable_record_of_a_verification_is_told_as_such(payload: bytes) -> None:
    services.verify_and_record(principal="user:alice")
    sql("UPDATE audit_entry SET payload = %s WHERE kind = 'audit.verified'", payload)
    assert services.chain_state().verdict == "unreadable"
