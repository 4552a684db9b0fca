"""`manage.py audit`, as a person or a script runs it: exit codes, output, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest
from django.core.management import call_command
from django.db import transaction

from audit import services
from audit.models import Entry
from tests.audit.histories import drop_triggers, record_history, sql
from tests.conftest import ROOT, Home


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def audit(*arguments: str) -> Done:
    """Run the command in this process."""
    out, err = StringIO(), StringIO()
    try:
        call_command("audit", *arguments, stdout=out, stderr=err, no_color=True)
    except SystemExit as left:
        return Done(int(str(left.code)), out.getvalue(), err.getvalue())
    return Done(0, out.getvalue(), err.getvalue())


def audit_process(home: Home, *arguments: str, **environ: str) -> Done:
    """Run it as a shell does."""
    done = subprocess.run(
        [sys.executable, "manage.py", "audit", *arguments],
        cwd=ROOT,
        env=home.environ | environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def test_a_whole_chain_exits_with_0_and_is_recorded(home: Home) -> None:
    record_history(3)
    done = audit_process(home, "verify")
    assert (done.returncode, done.stderr) == (0, "")
    assert "whole: 3 entries" in done.stdout
    assert "not anchored" in done.stdout
    entry = Entry.objects.get(kind="audit.verified")
    assert (entry.principal, entry.subject) == ("system", "whole")


def test_an_anchor_is_taken_and_a_wrong_one_is_tampering(home: Home) -> None:
    record_history(3)
    printed = json.loads(audit("head", "--json").stdout)
    assert printed == {"log": services.head().log, "size": 3, "hash": services.head().hash}
    record_history(2)
    done = audit("verify", "--anchor", printed["hash"], "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["anchored"] is True
    done = audit("verify", "--anchor", "ab" * 32)
    assert done.returncode == 1
    assert "truncated" in done.stdout


def test_a_tampered_chain_exits_with_1(home: Home) -> None:
    record_history(3)
    with transaction.atomic():
        drop_triggers()
        sql("UPDATE audit_entry SET subject = 'other' WHERE seq = 1")
    done = audit_process(home, "verify", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["fault"] == {
        "kind": "projection_mismatch",
        "seq": 1,
        "detail": "the column subject does not say what the entry says.",
    }


def test_a_verdict_that_can_not_be_recorded_is_still_given(home: Home) -> None:
    record_history(3)
    with transaction.atomic():
        drop_triggers()
        sql("DELETE FROM audit_entry WHERE seq = 2")
        sql("UPDATE audit_head SET size = 2, last_hash = (SELECT hash FROM audit_entry WHERE seq = 1)")
        sql(
            "INSERT INTO audit_entry (seq, payload, hash, kind, principal, subject, at)"
            " SELECT 2, payload, hash, kind, principal, subject, at FROM audit_entry WHERE seq = 1"
        )
    done = audit("verify")
    assert done.returncode == 1
    assert "inserted at entry 2" in done.stdout
    assert "could not be recorded" in done.stderr


def test_a_bundle_goes_out_and_is_verified_without_a_database(home: Home, tmp_path: Path) -> None:
    record_history(3)
    out = tmp_path / "chain.jsonl"
    done = audit("export", "--out", str(out), "--verify")
    assert done.returncode == 0
    assert "whole: 3 entries" in done.stdout
    assert out.stat().st_mode & 0o777 == 0o600
    nowhere = {"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none", "MEAH_HOME": str(tmp_path / "elsewhere")}
    assert audit_process(home, "verify", str(out), **nowhere).returncode == 0
    data = out.read_bytes()
    out.write_bytes(data.replace(b"c_0", b"c_1", 1))
    assert audit("verify", str(out)).returncode == 1
    out.write_bytes(data[: len(data) // 2])
    assert audit("verify", str(out)).returncode == 1


def test_an_export_does_not_replace_a_file_unless_told_to(home: Home, tmp_path: Path) -> None:
    out = tmp_path / "chain.jsonl"
    out.write_text("precious")
    done = audit("export", "--out", str(out))
    assert done.returncode == 2
    assert "already there" in done.stderr
    assert "--force" in done.stderr
    assert out.read_text() == "precious"
    assert audit("export", "--out", str(out), "--force").returncode == 0
    assert out.read_text().startswith('{"format":"meah.audit"')


@pytest.mark.parametrize(
    "arguments",
    [("verify", "none.jsonl"), ("verify", "."), ("verify", "manage.py"), ("verify", "--anchor", "abc")],
)
def test_what_can_not_be_told_exits_with_2(home: Home, arguments: tuple[str, ...]) -> None:
    done = audit(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("Could not tell: ")
    assert done.stdout == ""
    done = audit(*arguments, "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["verdict"] == "unknown"


@pytest.mark.parametrize(
    ("database", "action"),
    [
        ("sqlite:///{home}/none/db.sqlite3", ["head"]),
        ("postgres://nobody@127.0.0.1:1/none", ["verify"]),
        ("sqlite:///empty.sqlite3", ["export", "--out", "{home}/out"]),
    ],
    ids=["no directory", "no server", "not migrated"],
)
def test_a_database_that_does_not_answer_exits_with_2(home: Home, database: str, action: list[str]) -> None:
    arguments = [argument.format(home=home.path) for argument in action]
    done = audit_process(home, *arguments, DATABASE_URL=database.format(home=home.path))
    assert done.returncode == 2
    assert done.stderr.startswith("Could not tell: ")
    assert not (home.path / "out").exists()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_progress_is_shown_on_a_terminal_only(home: Home) -> None:
    record_history(10)
    terminal, end = os.openpty()
    done = subprocess.run(
        [sys.executable, "manage.py", "audit", "verify"],
        cwd=ROOT,
        env=home.environ,
        stdout=subprocess.PIPE,
        stderr=end,
        timeout=60,
    )
    os.close(end)
    assert done.returncode == 0
    assert b"10 of 10" in os.read(terminal, 1000)
    os.close(terminal)
    assert audit("verify").stderr == ""
