"""Recording and asking, inline: what an append does, and that it goes with its transaction or not at all."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils import timezone

from audit import services
from audit.chain import GENESIS
from audit.models import AppendOnlyError, Entry, Head
from audit.services import record, record_many
from core.errors import MeahError
from core.secrets import name_secrets
from tests.audit.histories import drop_triggers, record_history, sql

pytestmark = pytest.mark.django_db

FOREIGN = {"😀": 1, "\ufb33": 2, "nul": "\0", "nfc": "\u00e9", "nfd": "e\u0301", "most": 2**53 - 1, "float": 1.0}


def refuse_inserts() -> None:
    """The database fails the next append, as a full disk or a lock would."""
    drop_triggers()
    sql("DROP TABLE audit_entry")


def test_an_entry_stores_the_bytes_it_hashes() -> None:
    entry = record("worker.queued", principal="agent:claude", subject="w_1", data={"role": "coder"})
    stored = Entry.objects.get(seq=0)
    assert bytes(stored.payload) == entry.payload
    assert json.loads(stored.payload)["data"] == {"role": "coder"}
    assert (stored.kind, stored.principal, stored.subject) == ("worker.queued", "agent:claude", "w_1")
    assert stored.at == entry.at
    assert services.head().hash == stored.hash


def test_numbers_are_gapless_and_each_entry_names_the_one_before() -> None:
    record_history(3)
    record("call.done", principal="agent:claude")
    prevs = [json.loads(entry.payload)["prev"] for entry in Entry.objects.all()]
    hashes = [entry.hash for entry in Entry.objects.all()]
    assert [entry.seq for entry in Entry.objects.all()] == [0, 1, 2, 3]
    assert prevs == [GENESIS, *hashes[:-1]]
    assert (services.head().size, services.head().hash) == (4, hashes[-1])


def test_nothing_to_record_changes_nothing() -> None:
    assert record_many([]) == []
    assert services.head().size == 0


@pytest.mark.django_db(transaction=False)
def test_an_entry_takes_few_queries(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(3):
        record("call.done", principal="agent:claude")


@pytest.mark.parametrize("kind", ["", "done", "Call.done", "call.done.", "call.döne", "call.done\n"])
def test_a_kind_is_a_noun_and_a_verb(kind: str) -> None:
    with pytest.raises(MeahError) as caught, transaction.atomic():
        record(kind, principal="system")
    assert caught.value.code == "E_AUDIT"


def test_names_from_strangers_are_shown_and_cut() -> None:
    entry = record("call.done", principal="agent:\u202eevil\0\n", subject="s" * 300)
    assert entry.principal == "agent:⟨U+202E⟩evil⟨U+0000⟩"
    assert len(entry.subject) == 200
    assert services.verify().whole


@pytest.mark.parametrize("data", [{"cost": 1.5}, {"é": 1}, {"n": 2**53}, {"text": "x" * 2**20}])
def test_data_outside_the_profile_fails_and_takes_the_change_with_it(data: dict[str, Any]) -> None:
    with pytest.raises(MeahError) as caught, transaction.atomic():
        Group.objects.create(name="changed")
        record("group.added", principal="system", data=data)
    assert caught.value.code == "E_AUDIT"
    assert not Group.objects.exists()
    assert services.head().size == 0


def test_an_append_that_fails_undoes_the_change_even_if_the_error_is_caught() -> None:
    with transaction.atomic():
        Group.objects.create(name="changed")
        with pytest.raises(MeahError, match="E_AUDIT"):
            record("group.added", principal="system", data={"cost": 0.5})
    assert not Group.objects.exists()


def test_a_database_that_refuses_the_append_undoes_the_change() -> None:
    with transaction.atomic():
        sql("DELETE FROM auth_group")
        with pytest.raises(MeahError) as caught, transaction.atomic():
            Group.objects.create(name="changed")
            refuse_inserts()
            record("group.added", principal="system")
    assert caught.value.code == "E_AUDIT"
    assert caught.value.retryable
    assert not Group.objects.exists()
    assert Entry.objects.count() == 0


def test_a_chain_without_a_head_takes_no_entries() -> None:
    drop_triggers()
    sql("DELETE FROM audit_head")
    with pytest.raises(MeahError, match="E_AUDIT"), transaction.atomic():
        record("call.done", principal="system")
    with pytest.raises(MeahError, match="head"):
        services.head()


def test_a_rolled_back_entry_leaves_no_gap() -> None:
    record_history(1)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        record("call.done", principal="system")
        1 / 0  # noqa: B018
    record_history(1)
    assert list(Entry.objects.values_list("seq", flat=True)) == [0, 1]
    assert services.verify().whole


def test_the_model_the_manager_and_the_head_refuse_every_other_way_to_write() -> None:
    record_history(1)
    entry = Entry.objects.get()
    new = Entry(seq=1, payload=b"", hash="", kind="a.b", principal="x", at=timezone.now())
    attempts: list[Any] = [
        entry.save,
        entry.delete,
        new.save,
        lambda: new.save_base(raw=True),
        lambda: Entry.objects.create(seq=1),
        lambda: Entry.objects.update(kind="x"),
        lambda: Entry.objects.filter(seq=0).update(kind="x"),
        lambda: Entry.objects.all().delete(),
        lambda: Entry.objects.bulk_create([new]),
        lambda: Entry.objects.bulk_update([entry], ["kind"]),
        lambda: Entry.objects.get_or_create(seq=1),
        lambda: Entry.objects.update_or_create(seq=0, defaults={"kind": "x"}),
        lambda: Entry._base_manager.filter(seq=0).update(kind="x"),
        lambda: Entry._base_manager.filter(seq=0)._raw_delete("default"),
        lambda: Head.objects.update(size=0),
        lambda: Head.objects.get().save(),
        lambda: Head.objects.get().delete(),
        lambda: Head(id=2, log="x").save(),
    ]
    for attempt in attempts:
        with pytest.raises(AppendOnlyError):
            attempt()
    assert services.verify().whole


def test_the_asynchronous_ways_to_write_are_refused_too(run: Any) -> None:
    entry = Entry(seq=1, payload=b"", hash="", kind="a.b", principal="x", at=timezone.now())
    attempts: list[Any] = [
        lambda: entry.asave(),
        lambda: entry.adelete(),
        lambda: Entry.objects.acreate(seq=1),
        lambda: Entry.objects.aupdate(kind="x"),
        lambda: Entry.objects.all().adelete(),
        lambda: Entry.objects.abulk_create([entry]),
        lambda: Entry.objects.abulk_update([entry], ["kind"]),
        lambda: Entry.objects.aget_or_create(seq=1),
        lambda: Entry.objects.aupdate_or_create(seq=1),
    ]
    for attempt in attempts:
        with pytest.raises(AppendOnlyError):
            run(attempt())


def test_a_view_is_redacted_sized_and_committed_to() -> None:
    name_secrets(["MEAH_TEST_SECRET_FOR_VIEWS"])
    value = {"b": [1.0, "x"], "a": {"api_key": "hunter2hunter2"}, "header": "Bearer sk-" + "Ab3" * 16}
    view, salt = services.commitment(value)
    assert view["text"].startswith('{"a":{"api_key":"[redacted')
    assert "hunter2" not in view["text"]
    assert "Ab3Ab3" not in view["text"]
    assert view["bytes"] == len(json.dumps(value, separators=(",", ":")).replace("1.0", "1"))
    assert services.opens(view, value, salt)
    assert not services.opens(view, value | {"b": []}, salt)
    entry = record("call.done", principal="agent:claude", data={"arguments": view})
    assert json.loads(entry.payload)["data"]["arguments"] == view


def test_a_secret_at_the_cut_of_a_view_does_not_show(monkeypatch: Any) -> None:
    monkeypatch.setenv("MEAH_TEST_SECRET_FOR_VIEWS", "tr0ub4dor-and-three")
    name_secrets(["MEAH_TEST_SECRET_FOR_VIEWS"])
    for before in range(services.VIEW_CHARACTERS - 25, services.VIEW_CHARACTERS + 5):
        view, _salt = services.commitment(" " * before + "tr0ub4dor-and-three" + " " * 50)
        assert "tr0ub" not in view["text"]
        assert len(view["text"]) <= services.VIEW_CHARACTERS
        assert view["cut"]


def test_equal_arguments_have_different_commitments() -> None:
    (one, salt_one), (other, salt_other) = services.commitment({"pin": "1234"}), services.commitment({"pin": "1234"})
    assert one["digest"] != other["digest"]
    assert services.opens(one, {"pin": "1234"}, salt_one)
    assert services.opens(other, {"pin": "1234"}, salt_other)
    plain = {hashlib.sha256(b'{"pin":"%04d"}' % n).hexdigest() for n in range(10_000)}
    tagged = {hashlib.sha256(b'meah/args/v1\0{"pin":"%04d"}' % n).hexdigest() for n in range(10_000)}
    assert one["digest"] not in plain | tagged


def test_a_change_tells_before_after_and_what_differs() -> None:
    new = services.change(
        "provider.changed",
        principal="user:alice",
        subject="openai",
        before={"url": "http://a", "colour": "red", "same": 1},
        after={"url": "http://b", "colour": "blue", "same": 1},
        hidden=("colour",),
    )
    assert new is not None
    assert new.data["changed"] == ["colour", "url"]
    assert json.loads(new.data["before"]) == {"colour": "[hidden]", "same": 1, "url": "http://a"}
    assert "blue" not in new.data["after"]


def test_a_change_of_nothing_is_no_entry() -> None:
    same = {"url": "http://a"}
    assert services.change("provider.changed", principal="u", subject="s", before=same, after=dict(same)) is None


def test_a_long_setting_is_cut_with_its_length() -> None:
    text = services.settings_text("x" * 200_000)
    assert len(text) < 101_000
    assert text.endswith("… (200002 characters)")


def test_the_state_of_the_chain_tells_the_last_verification() -> None:
    assert services.chain_state() == services.ChainState(services.head())
    record_history(2)
    verdict = services.verify_and_record(principal="user:alice")
    record_history(1)
    state = services.chain_state()
    assert (state.verdict, state.verified_size, state.head.size) == ("whole", 2, 4)
    assert state.verified_at == Entry.objects.get(kind="audit.verified").at
    assert verdict.whole


def test_an_export_is_recorded_and_verifies_without_the_database(tmp_path: Path) -> None:
    record_history(3)
    end = services.export_to(tmp_path / "chain.jsonl", principal="user:alice")
    verdict = services.verify_file(tmp_path / "chain.jsonl", anchor=end.hash)
    assert (verdict.whole, verdict.size, verdict.anchor_seq) == (True, 3, 2)
    entry = Entry.objects.get(kind="audit.exported")
    assert entry.principal == "user:alice"
    assert json.loads(entry.payload)["data"] == {"file": "chain.jsonl", "head": end.hash, "size": 3}


def test_an_export_that_can_not_be_recorded_leaves_no_file(tmp_path: Path) -> None:
    drop_triggers()
    # The number of the next entry is taken, so that reading works and appending does not.
    record_history(1)
    sql("UPDATE audit_head SET size = 0, last_hash = %s", GENESIS)
    with pytest.raises(MeahError, match="E_AUDIT"):
        services.export_to(tmp_path / "chain.jsonl", principal="user:alice")
    assert list(tmp_path.iterdir()) == []


def test_the_same_history_has_the_same_bundle_on_every_database(tmp_path: Path, monkeypatch: Any) -> None:
    start = datetime(2026, 11, 30, 12, tzinfo=UTC)
    times = iter(start + timedelta(microseconds=n * 37) for n in range(10))
    monkeypatch.setattr(timezone, "now", lambda: next(times))
    monkeypatch.setattr(services.secrets, "token_bytes", lambda count: b"s" * count)
    drop_triggers()
    sql("UPDATE audit_head SET log = 'log_0123456789abcdef0123'")
    view, _salt = services.commitment(FOREIGN)
    record("call.sent", principal="agent:é\0", subject="c_é", data={"arguments": view, "none": None, "yes": True})
    record("call.done", principal="agent:claude", data={"n": -(2**53) + 1, "text": "\0\x1f\x7f\u2028😀é"})
    record("call.done", principal="agent:claude", subject="c_3")
    assert services.verify().whole
    services.export_to(tmp_path / "chain.jsonl", principal="system")
    # This digest freezes the format: one that changes breaks every bundle and anchor there is.
    assert hashlib.sha256((tmp_path / "chain.jsonl").read_bytes()).hexdigest() == BUNDLE_SHA256


BUNDLE_SHA256 = "8582cbd0a0f3f39442bbb30dee8eb888cd1ccce2d0207809c17b7a1ecbfcb1b7"
