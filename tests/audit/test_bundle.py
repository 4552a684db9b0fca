"""Bundles: any edit is found without a database."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from audit import bundle
from audit.files import new_file
from core.errors import MeahError
from tests.audit.histories import Chain, make_chain
from tests.conftest import ROOT

SIZE = 4


def bundle_of(chain: Chain) -> bytes:
    out = io.BytesIO()
    bundle.write(out, log=chain.log, size=chain.size, head=chain.head, entries=[(row[0], row[1]) for row in chain.rows])
    return out.getvalue()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "chain.jsonl"
    found.write_bytes(bundle_of(make_chain(SIZE)))
    return found


def fault(path: Path, **options: str) -> tuple[str, int]:
    found = bundle.verify_file(path, **options).fault
    assert found is not None, "the tampering was not seen"
    return found.kind, found.seq


def is_refused(path: Path, data: bytes) -> bool:
    path.write_bytes(data)
    try:
        return not bundle.verify_file(path).whole
    except MeahError:
        return True


def test_an_untouched_bundle_is_whole_and_not_anchored(path: Path) -> None:
    verdict = bundle.verify_file(path)
    assert verdict.whole
    assert verdict.size == SIZE
    assert any(line.startswith("not anchored") for line in verdict.lines())


def test_an_older_head_anchors_a_bundle(path: Path) -> None:
    anchor = make_chain(SIZE).rows[2][1]
    assert bundle.verify_file(path, anchor=anchor).anchor_seq == 2


def test_an_empty_chain_has_a_bundle_too(path: Path) -> None:
    path.write_bytes(bundle_of(make_chain(0)))
    assert bundle.verify_file(path).whole


def test_every_change_of_one_byte_is_refused(path: Path) -> None:
    whole = bundle_of(make_chain(2))
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 + at % 255
        assert is_refused(path, bytes(changed)), f"byte {at}"


def test_every_removed_and_every_added_byte_is_refused(path: Path) -> None:
    whole = bundle_of(make_chain(2))
    for at in range(len(whole)):
        assert is_refused(path, whole[:at] + whole[at + 1 :]), f"without byte {at}"
    for at in range(0, len(whole), 4):
        assert is_refused(path, whole[:at] + b" " + whole[at:]), f"a space before byte {at}"
        assert is_refused(path, whole[:at]), f"cut before byte {at}"
    assert is_refused(path, whole + b"\n")


def test_every_removed_repeated_or_swapped_line_is_refused(path: Path) -> None:
    header, *lines = path.read_bytes().splitlines(keepends=True)
    for at in range(SIZE):
        assert is_refused(path, b"".join([header, *lines[:at], *lines[at + 1 :]]))
        assert is_refused(path, b"".join([header, *lines[: at + 1], *lines[at:]]))
        for other in range(at):
            swapped = list(lines)
            swapped[at], swapped[other] = lines[other], lines[at]
            assert is_refused(path, b"".join([header, *swapped]))
    assert is_refused(path, b"".join(lines))
    assert is_refused(path, header + header + b"".join(lines))


def test_a_forgery_with_a_fitting_hash_is_modified(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    forged = make_chain(SIZE)
    forged.rebuild_from(2, with_head=False)
    lines[3] = bundle_of(forged).decode().splitlines(keepends=True)[3]
    path.write_text("".join(lines))
    assert fault(path) == ("modified", 2)


def test_a_bundle_must_begin_with_the_first_entry(path: Path) -> None:
    chain = make_chain(SIZE)
    del chain.rows[:2]
    path.write_bytes(bundle_of(chain))
    assert fault(path) == ("missing", 0)


def test_entries_of_two_logs_do_not_mix(path: Path) -> None:
    chain = make_chain(SIZE)
    chain.log = "log_ffffffffffffffffffff"
    path.write_bytes(bundle_of(chain))
    assert fault(path) == ("inserted", 0)


def test_a_cut_bundle_with_a_new_head_is_caught_by_an_anchor_only(path: Path) -> None:
    anchor = make_chain(SIZE).head
    path.write_bytes(bundle_of(make_chain(SIZE - 2)))
    assert bundle.verify_file(path).whole
    assert fault(path, anchor=anchor) == ("truncated", SIZE - 2)


def test_a_rebuilt_bundle_is_caught_by_an_anchor_only(path: Path) -> None:
    chain = make_chain(SIZE)
    anchor = chain.head
    chain.rebuild_from(1, with_head=True)
    path.write_bytes(bundle_of(chain))
    assert bundle.verify_file(path).whole
    assert fault(path, anchor=anchor) == ("truncated", SIZE)


NO_BUNDLES = {
    "empty": b"",
    "no JSON": b"\x00\xff\n",
    "a list": b"[]\n",
    "deep": b"[" * 100_000,
    "other format": b'{"format":"x","head":"","log":"","size":0,"version":1}\n',
    "newer version": bundle_of(make_chain(0)).replace(b'"version":1', b'"version":2'),
    "true for a version": bundle_of(make_chain(0)).replace(b'"version":1', b'"version":true'),
    "a negative size in text": bundle_of(make_chain(0)).replace(b'"size":0', b'"size":"-1"'),
}


@pytest.mark.parametrize("name", NO_BUNDLES)
def test_what_is_no_bundle_is_an_error_and_no_verdict(path: Path, name: str) -> None:
    path.write_bytes(NO_BUNDLES[name])
    with pytest.raises(MeahError) as caught:
        bundle.verify_file(path)
    assert caught.value.code == "E_INVALID_REQUEST"


@pytest.mark.parametrize("line", [b"[]", b"null", b"{}", b'{"hash":1,"payload":2}', b"[" * 100_000, b"\xff"])
def test_a_line_that_is_no_entry_is_modified(path: Path, line: bytes) -> None:
    lines = path.read_bytes().splitlines()
    lines[3] = line
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert fault(path) == ("modified", 2)


def test_a_missing_file_and_a_directory_can_not_be_told(path: Path, tmp_path: Path) -> None:
    for bad in (tmp_path / "none", tmp_path):
        with pytest.raises(MeahError) as caught:
            bundle.verify_file(bad)
        assert caught.value.code == "E_NOT_FOUND"


def test_a_payload_that_is_no_text_is_not_exported() -> None:
    with pytest.raises(MeahError, match="not text"):
        bundle.write(io.BytesIO(), log="log_x", size=1, head="", entries=[(b"\xff", "")])


def test_long_chains_report_their_progress(path: Path) -> None:
    path.write_bytes(bundle_of(make_chain(2500)))
    seen: list[tuple[int, int]] = []
    assert bundle.verify_file(path, progress=lambda done, total: seen.append((done, total))).whole
    assert seen == [(2000, 2500)]


def test_verification_of_a_bundle_needs_no_django(path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from audit.bundle import verify_file;"
        "assert verify_file(Path(sys.argv[1])).whole;"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'django'], 'Django was imported'"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, env={"PATH": os.environ["PATH"]}, check=True)


def test_random_damage_is_always_refused(path: Path) -> None:
    whole = path.read_bytes()
    chance = random.Random(7)
    for _ in range(200):
        start, end = sorted(chance.sample(range(len(whole) + 1), 2))
        damaged = whole[:start] + chance.randbytes(chance.randrange(3)) + whole[end:]
        assert damaged == whole or is_refused(path, damaged)


def test_a_new_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(ZeroDivisionError), new_file(path, replace=False) as out:
        out.write(b"half")
        1 / 0  # noqa: B018
    assert list(tmp_path.iterdir()) == []
    with new_file(path, replace=False) as out:
        out.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_there_is_replaced_only_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(MeahError, match="already there"), new_file(path, replace=False):
        pass
    assert path.read_text() == "old"
    with new_file(path, replace=True) as out:
        out.write(b"new")
    assert path.read_text() == "new"


def test_a_file_made_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(MeahError, match="already there"), new_file(path, replace=False) as out:
        out.write(b"ours")
        path.write_text("theirs")
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_can_not_be_written_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(MeahError, match="can not be written"), new_file(tmp_path / "none" / "out", replace=False):
        pass


def test_a_bundle_line_holds_the_exact_payload(path: Path) -> None:
    lines = path.read_bytes().splitlines()[1:]
    assert [json.loads(line)["payload"].encode() for line in lines] == [row[0] for row in make_chain(SIZE).rows]
