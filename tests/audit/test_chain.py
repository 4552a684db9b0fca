"""The chain, pure: what its hashes are, and that the verifier names every fault and its place."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.chain import GENESIS, Verifier, entry_hash, entry_payload, read_payload
from core.errors import MeahError
from tests.audit.histories import LOG, Chain, edited, make_chain, make_row

SIZE = 12
both_ways = pytest.mark.parametrize("columns", [True, False], ids=["database", "bundle"])


def replace(chain: Chain, seq: int, payload: bytes, stored_hash: str) -> None:
    chain.rows[seq] = (payload, stored_hash, chain.rows[seq][2])


def test_the_hash_of_an_entry_is_a_tree_leaf_hash_of_its_bytes() -> None:
    assert entry_hash(b"") == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert entry_hash(b"abc") == sha256(b"\x00abc").hexdigest()


def test_the_envelope_holds_its_place_in_the_chain() -> None:
    payload = make_row(7, "a" * 64)[0]
    fields = json.loads(payload)
    assert list(fields) == ["data", "kind", "log", "prev", "principal", "seq", "subject", "ts", "v"]
    assert (fields["log"], fields["seq"], fields["prev"], fields["v"]) == (LOG, 7, "a" * 64, 1)


@both_ways
@pytest.mark.parametrize("size", [0, 1, 2, SIZE])
def test_an_honest_chain_is_whole(columns: bool, size: int) -> None:
    verdict = make_chain(size).verdict(columns=columns)
    assert verdict.whole
    assert verdict.size == size


@both_ways
def test_a_change_of_any_byte_is_modified_at_that_entry(columns: bool) -> None:
    for seq in range(SIZE):
        for at in range(0, len(make_row(seq, GENESIS)[0]), 7):
            chain = make_chain(SIZE)
            payload = bytearray(chain.rows[seq][0])
            payload[at] ^= 1
            replace(chain, seq, bytes(payload), chain.rows[seq][1])
            assert chain.fault(columns=columns) == ("modified", seq)


@both_ways
@pytest.mark.parametrize("seq", range(SIZE))
def test_a_change_with_a_fitting_hash_is_still_modified_at_that_entry(columns: bool, seq: int) -> None:
    chain = make_chain(SIZE)
    replace(chain, seq, *edited(chain.rows[seq][0], data={"forged": True}))
    assert chain.fault(columns=columns) == ("modified", seq)


@both_ways
@pytest.mark.parametrize("seq", range(SIZE))
def test_a_changed_link_is_blamed_on_the_entry_that_bears_it(columns: bool, seq: int) -> None:
    chain = make_chain(SIZE)
    replace(chain, seq, *edited(chain.rows[seq][0], prev="f" * 64))
    assert chain.fault(columns=columns) == ("modified", seq)


@both_ways
@pytest.mark.parametrize("seq", range(SIZE - 1))
def test_a_deleted_entry_is_missing(columns: bool, seq: int) -> None:
    chain = make_chain(SIZE)
    del chain.rows[seq]
    assert chain.fault(columns=columns) == ("missing", seq)


@both_ways
def test_deleted_entries_with_renumbered_columns_and_a_fitting_head_are_missing(columns: bool) -> None:
    chain = make_chain(SIZE)
    del chain.rows[3:5]
    chain.rows = [(p, h, (at, *c[1:])) for at, (p, h, c) in enumerate(chain.rows)]
    chain.size = len(chain.rows)
    assert chain.fault(columns=columns) == ("missing", 3)


@both_ways
@pytest.mark.parametrize(("one", "other"), [(0, 1), (3, 4), (2, 9), (0, SIZE - 1)])
@pytest.mark.parametrize("with_columns", [True, False])
def test_swapped_entries_are_reordered(columns: bool, one: int, other: int, with_columns: bool) -> None:
    chain = make_chain(SIZE)
    rows = chain.rows
    rows[one], rows[other] = rows[other], rows[one]
    if not with_columns:
        for at in (one, other):
            rows[at] = (*rows[at][:2], (at, *rows[at][2][1:]))
    assert chain.fault(columns=columns) == ("reordered", one)


@both_ways
@pytest.mark.parametrize("seq", range(1, SIZE))
def test_a_valid_looking_entry_between_two_is_inserted(columns: bool, seq: int) -> None:
    chain = make_chain(SIZE)
    chain.rows.insert(seq, make_row(seq, chain.rows[seq - 1][1], data={"forged": True}))
    assert chain.fault(columns=columns) == ("inserted", seq)


@both_ways
def test_an_entry_that_names_no_real_predecessor_is_inserted(columns: bool) -> None:
    chain = make_chain(SIZE)
    chain.rows.insert(5, make_row(5, "e" * 64))
    assert chain.fault(columns=columns) == ("inserted", 5)


@both_ways
def test_an_entry_after_the_head_is_inserted(columns: bool) -> None:
    chain = make_chain(SIZE)
    chain.rows.append(make_row(SIZE, chain.head))
    assert chain.fault(columns=columns) == ("inserted", SIZE)


@both_ways
def test_an_entry_of_another_log_is_inserted(columns: bool) -> None:
    chain = make_chain(SIZE)
    other = make_chain(SIZE, log="log_ffffffffffffffffffff")
    chain.rows[4] = other.rows[4]
    assert chain.fault(columns=columns) == ("inserted", 4)


@both_ways
@pytest.mark.parametrize("left", [0, 1, SIZE - 1])
def test_a_cut_tail_is_truncated_against_the_head(columns: bool, left: int) -> None:
    chain = make_chain(SIZE)
    del chain.rows[left:]
    assert chain.fault(columns=columns) == ("truncated", left)


@both_ways
def test_a_cut_tail_with_a_fitting_head_is_seen_with_an_anchor_only(columns: bool) -> None:
    chain = make_chain(SIZE)
    anchor = chain.head
    del chain.rows[8:]
    chain.size, chain.head = 8, chain.rows[-1][1]
    assert chain.verdict(columns=columns).whole
    assert chain.fault(columns=columns, anchor=anchor) == ("truncated", 8)


@both_ways
@pytest.mark.parametrize("seq", [0, 5, SIZE - 1])
def test_a_chain_rebuilt_with_its_head_is_seen_with_an_anchor_only(columns: bool, seq: int) -> None:
    chain = make_chain(SIZE)
    anchor = chain.head
    chain.rebuild_from(seq, with_head=True)
    assert chain.verdict(columns=columns).whole
    assert chain.verdict(columns=columns, anchor=anchor).fault


@both_ways
def test_a_chain_rebuilt_without_its_head_is_modified_at_the_end(columns: bool) -> None:
    chain = make_chain(SIZE)
    chain.rebuild_from(4, with_head=False)
    assert chain.fault(columns=columns) == ("modified", SIZE - 1)


@pytest.mark.parametrize("seq", [0, 6, SIZE - 1])
def test_an_older_head_anchors_the_chain(seq: int) -> None:
    chain = make_chain(SIZE)
    verdict = chain.verdict(anchor=chain.rows[seq][1].upper() + "\n")
    assert (verdict.whole, verdict.anchor_seq) == (True, seq)
    assert any(line.startswith(f"anchored: up to entry {seq}") for line in verdict.lines())


def test_the_head_of_an_empty_chain_anchors_every_chain() -> None:
    assert make_chain(SIZE).verdict(anchor=GENESIS).whole


@pytest.mark.parametrize("anchor", ["", "abc", "g" * 64, "0" * 65])
def test_an_anchor_that_is_no_hash_is_an_error(anchor: str) -> None:
    with pytest.raises(MeahError, match="not a hash"):
        Verifier(LOG, anchor=anchor)


@pytest.mark.parametrize("column", range(5))
@pytest.mark.parametrize("seq", [0, SIZE - 1])
def test_a_changed_column_is_a_projection_mismatch(column: int, seq: int) -> None:
    chain = make_chain(SIZE)
    payload, stored_hash, columns = chain.rows[seq]
    changed: list[Any] = list(columns)
    changed[column] = 99 if column == 0 else f"{changed[column]} "
    chain.rows[seq] = (payload, stored_hash, tuple(changed))
    assert chain.fault() == ("projection_mismatch", seq)


def _spaced(payload: bytes) -> bytes:
    return payload.replace(b'"v":1', b'"v": 1')


def _unsorted(payload: bytes) -> bytes:
    fields = json.loads(payload)
    return json.dumps(dict(reversed(fields.items())), separators=(",", ":"), ensure_ascii=False).encode()


NONCANONICAL = {
    "spaces": _spaced,
    "order": _unsorted,
    "escaped": lambda payload: payload.replace("é".encode(), b"\\u00e9"),
    "duplicate key": lambda payload: payload.replace(b'{"data"', b'{"data":{},"data"'),
    "trailing newline": lambda payload: payload + b"\n",
    "a float": lambda payload: payload.replace(b'"v":1', b'"v":1.0'),
    "a float in data": lambda payload: payload.replace(b'"bytes":', b'"bytes":0.5,"c":'),
    "a large integer": lambda payload: payload.replace(b'"bytes":', b'"bytes":9007199254740992,"c":'),
    "an endless integer": lambda payload: payload.replace(b'"bytes":', b'"bytes":' + b"9" * 5000 + b',"c":'),
    "minus zero": lambda payload: payload.replace(b'"bytes":', b'"bytes":-0,"c":'),
    "a constant": lambda payload: payload.replace(b'"bytes":', b'"bytes":NaN,"c":'),
    "a key beyond ASCII": lambda payload: payload.replace(b'"text"', '"téxt"'.encode()),
    "a lone surrogate": lambda payload: payload.replace("é".encode(), b"\\ud800"),
    "no UTF-8": lambda payload: payload.replace("é".encode(), b"\xff"),
    "another version": lambda payload: payload.replace(b'"v":1', b'"v":2'),
    "true for one": lambda payload: payload.replace(b'"v":1', b'"v":true'),
    "no data": lambda payload: b'{"data":null' + payload[payload.index(b',"kind"') :],
    "a field more": lambda payload: payload.replace(b'"v":1}', b'"v":1,"w":1}'),
    "no object": lambda payload: b"[]",
    "nothing": lambda payload: b"",
    "deep": lambda payload: b'{"data":{"a":' + b"[" * 100_000,
}


@both_ways
@pytest.mark.parametrize("name", NONCANONICAL)
def test_bytes_that_are_not_the_canonical_form_are_noncanonical_whatever_their_hash(columns: bool, name: str) -> None:
    chain = make_chain(SIZE)
    payload = NONCANONICAL[name](chain.rows[5][0])
    assert payload != chain.rows[5][0]
    replace(chain, 5, payload, entry_hash(payload))
    assert chain.fault(columns=columns) == ("noncanonical", 5)


def test_the_first_of_several_faults_is_told() -> None:
    chain = make_chain(SIZE)
    replace(chain, 9, b"{}", entry_hash(b"{}"))
    del chain.rows[4]
    replace(chain, 2, chain.rows[2][0] + b" ", chain.rows[2][1])
    assert chain.fault() == ("modified", 2)
    chain.rows[2] = make_chain(SIZE).rows[2]
    assert chain.fault() == ("missing", 4)


def test_a_verdict_says_what_it_proves_and_what_it_can_not() -> None:
    whole = "\n".join(make_chain(2).verdict().lines())
    assert "not anchored" in whole
    assert "proves" in whole
    assert "compromised host" in whole
    chain = make_chain(2)
    chain.head = "0" * 64
    assert chain.verdict().lines()[0].startswith("tampered: modified at entry 1")


@pytest.mark.parametrize("data", [{"a": 1.5}, {"é": 1}, {"a": 2**53}, {"a": "\ud800"}, {"a": object()}, {1: 1}])
def test_what_the_profile_does_not_hold_can_not_be_written(data: Any) -> None:
    with pytest.raises(ValueError):  # the profile's own tests say which
        make_row(0, GENESIS, data=data)


def test_an_entry_has_a_largest_size() -> None:
    with pytest.raises(ValueError, match="too large"):
        make_row(0, GENESIS, data={"text": "x" * 2**20})


def _values() -> st.SearchStrategy[Any]:
    text = st.text(st.characters(exclude_categories=["Cs"]))
    leaf = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | text
    keys = st.text(st.characters(max_codepoint=127))
    return st.recursive(leaf, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))


def _round_trip(value: Any) -> None:
    payload = entry_payload(
        log=LOG, seq=0, prev=GENESIS, ts="t", kind="a.b", principal="p", subject="s", data={"value": value}
    )
    fields = read_payload(payload)
    assert fields is not None
    assert fields["data"] == {"value": value}
    columns = (0, "a.b", "p", "s", "t")
    chain = Chain([(payload, entry_hash(payload), columns)], size=1, head=entry_hash(payload))
    assert chain.verdict().whole
    assert chain.verdict(columns=False).whole


@settings(max_examples=500, deadline=None)
@given(_values())
def test_whatever_can_be_written_verifies(value: Any) -> None:
    _round_trip(value)


@pytest.mark.slow
@settings(max_examples=100_000, deadline=None)
@given(_values())
def test_whatever_can_be_written_verifies_at_length(value: Any) -> None:
    _round_trip(value)
