"""`manage.py doctor`: what it says of a sound installation, and of each thing that is wrong."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import RequestFactory
from django.utils import timezone

from approvals.models import Process
from approvals.processes import Membership
from audit.models import Entry
from audit.services import record, verify_and_record
from meah_site.doctor import database as database_checks
from meah_site.doctor.findings import Level, examined, ok
from meah_site.installation import installation_id
from meah_site.urls import healthz
from tests.conftest import ROOT, Home, is_postgres
from tests.fake_provider import FakeProvider, chat, json_reply
from workers.models import Provider, ProviderModel, RoleRoute, Worker, WorkerSettings

KEY = "MEAH_DOCTOR_TEST_KEY"
VALUE = "a-value-that-nobody-may-see-4711"


# What says nothing about the database is asked on one kind of it only: a copy of the other takes long to make.
once = pytest.mark.skipif(is_postgres(), reason="says nothing about the database")


class Examined:
    """A report, read back from its JSON."""

    def __init__(self, text: str, status: int) -> None:
        self.text = text
        self.status = status
        self.data: dict[str, Any] = json.loads(text)

    def about(self, subject: str) -> list[dict[str, str]]:
        findings = [finding for group in self.data["groups"] for finding in group["findings"]]
        return [finding for finding in findings if finding["subject"] == subject]

    def one(self, subject: str) -> dict[str, str]:
        found = self.about(subject)
        assert len(found) == 1, (subject, found, self.text)
        return found[0]

    def level(self, subject: str) -> str:
        return self.one(subject)["level"]


def examine(*arguments: str) -> Examined:
    out = io.StringIO()
    status = 0
    try:
        call_command("doctor", "--json", *(arguments or ("--port", str(free_port()))), stdout=out)
    except SystemExit as end:
        status = int(end.code or 0)
    return Examined(out.getvalue(), status)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def in_a_process(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "doctor", "--port", str(free_port()), *arguments],
        env=home.environ,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )


@contextmanager
def web_server(answer: bytes) -> Iterator[int]:
    """Something that answers every GET with these bytes."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def plain_environment(home: Home, monkeypatch: Any) -> None:
    """A sound installation: what the settings make at start is there."""
    monkeypatch.delenv(KEY, raising=False)
    (home.path / "secret_key").write_text("k" * 64)
    (home.path / "secret_key").chmod(0o600)


def make_provider(**fields: Any) -> Provider:
    values = {"name": "glm", "base_url": "https://api.example.com/v1", "api_key_env": KEY, "model": "glm-4.5-air"}
    return Provider.objects.create(**(values | fields))


def make_worker(**fields: Any) -> Worker:
    from approvals.models import Call

    call = Call.objects.create(state="done", principal="agent:t", server="meah", tool="meah_run_agent", door="mcp")
    values = {"call": call, "owner": "p_" + "0" * 20, "role": "coder", "provider": "mock", "model": "mock-1"}
    return Worker.objects.create(**(values | {"timeout_ms": 1000, "max_output_tokens": 100, "task": "t"} | fields))


# -- sound ----------------------------------------------------------------------------------------------------------


def test_a_sound_installation_has_no_problem_and_exits_with_0() -> None:
    report = examine()
    assert report.status == 0
    assert report.data["ok"] is True
    assert [
        f for group in report.data["groups"] for f in group["findings"] if f["level"] in ("problem", "warning")
    ] == []
    for subject in ("MEAH_HOME", "secret key", "database", "durability", "schema", "bell", "triggers", "verified now"):
        assert report.level(subject) == "ok", subject


def test_every_finding_that_is_wrong_comes_with_its_fix(home: Home, monkeypatch: Any) -> None:
    make_provider(base_url="api.example.com/v1")
    RoleRoute.objects.create(role="coder", provider="gone")
    home.path.chmod(0o755)
    monkeypatch.setenv("MEAH_MAXCONCURRENT", "3")
    report = examine()
    wrong = [f for group in report.data["groups"] for f in group["findings"] if f["level"] in ("problem", "warning")]
    assert len(wrong) >= 4
    assert all(finding["fix"] for finding in wrong)
    assert report.data["problems"] + report.data["warnings"] == len(wrong)
    assert report.status == 1


@once
def test_the_text_is_aligned_and_fits_80_columns(home: Home) -> None:
    make_provider()
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("doctor", port=free_port(), stdout=out)
    lines = out.getvalue().splitlines()
    assert "Providers" in lines
    # A path is never broken, so that it can be copied; a line with one may be longer.
    assert [line for line in lines if len(line) > 80 and str(home.path) not in line] == []
    assert "\x1b" not in out.getvalue()
    starts = {line.index("glm key") for line in lines if "glm key" in line} | {
        line.index("bell") for line in lines if line.lstrip().startswith("ok       bell")
    }
    assert starts == {11}
    assert lines[-1] == "1 problem, 0 warnings."


# -- the installation ------------------------------------------------------------------------------------------------


@once
def test_an_open_home_and_an_open_secret_key_are_problems(home: Home) -> None:
    home.path.chmod(0o750)
    (home.path / "secret_key").chmod(0o640)
    report = examine()
    assert "0750" in report.one("MEAH_HOME")["text"]
    assert report.one("MEAH_HOME")["fix"] == f"chmod 700 {home.path}"
    assert report.level("secret key") == "problem"
    assert report.status == 1


@once
def test_the_env_file_in_use_is_named_and_what_overrides_it(tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "my.env"
    file.write_text(f"{KEY}={VALUE}\nMEAH_LOG_LEVEL=info\n")
    file.chmod(0o644)
    monkeypatch.setenv("MEAH_ENV_FILE", str(file))
    monkeypatch.setenv(KEY, VALUE)
    monkeypatch.setenv("MEAH_LOG_LEVEL", "error")
    report = examine()
    said = report.about(".env")
    assert [finding["level"] for finding in said] == ["ok", "info", "warning"]
    assert str(file) in said[0]["text"]
    assert "MEAH_LOG_LEVEL" in said[1]["text"]
    assert KEY not in said[1]["text"]
    assert said[2]["fix"] == f"chmod 600 {file}"
    assert VALUE not in report.text


@once
def test_an_env_file_that_is_named_but_not_there_is_a_problem(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MEAH_ENV_FILE", str(tmp_path / "none.env"))
    assert examine().level(".env") == "problem"


# -- the database ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(is_postgres(), reason="a file is damaged")
def test_a_damaged_database_is_a_problem_and_the_rest_is_still_said(home: Home) -> None:
    (home.path / "db.sqlite3").write_bytes(os.urandom(4096))
    child = in_a_process(home, "--json")
    report = Examined(child.stdout, child.returncode)
    assert report.status == 1
    assert "file is not a database" in report.one("database")["text"]
    assert report.level("bell") == "ok"
    assert report.level("boundary") == "info"
    assert child.stderr == ""


@pytest.mark.skipif(is_postgres(), reason="a file is missing")
def test_a_missing_database_is_not_made_by_looking(home: Home) -> None:
    connection.close()
    for file in home.path.glob("db.sqlite3*"):
        file.unlink()
    report = examine()
    assert report.level("database") == "warning"
    assert "migrate" in report.one("database")["fix"]
    assert not (home.path / "db.sqlite3").exists()


@pytest.mark.skipif(is_postgres(), reason="SQLite's settings")
def test_a_database_that_may_lose_entries_is_a_problem() -> None:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA synchronous=NORMAL")
    assert "NORMAL" in examine().one("durability")["text"]


def test_an_older_schema_is_named_with_the_way_on() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'workers' AND name = '0001_initial'")
    report = examine()
    assert "workers.0001_initial" in report.one("schema")["text"]
    assert "migrate" in report.one("schema")["fix"]


def test_a_newer_schema_is_a_problem() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('workers', '9999_later', %s)", [timezone.now()]
        )
    report = examine()
    assert report.level("schema") == "problem"
    assert report.status == 1


def test_a_database_whose_server_is_gone_is_told_without_its_password(monkeypatch: Any) -> None:
    from django.db import OperationalError

    def gone() -> str:
        raise OperationalError(f"connection to server failed: {VALUE}")

    monkeypatch.setenv(KEY, VALUE)
    make_provider()
    examine()  # from here on the value is known as a secret
    monkeypatch.setattr(database_checks, "_first_answer", gone)
    report = examine()
    assert report.level("database") == "problem"
    assert VALUE not in report.text


# -- processes, port, bell --------------------------------------------------------------------------------------------


@pytest.fixture
def member() -> Iterator[Membership]:
    membership = Membership(Process.Kind.RUNMCP, version="0.0.1")
    membership.join()
    yield membership
    membership.leave()


def test_living_processes_are_listed_and_an_outdated_one_is_warned_of(member: Membership) -> None:
    said = examine().about(f"runmcp {os.getpid()}")
    assert [finding["level"] for finding in said] == ["ok", "warning"]
    assert member.public_id in said[0]["text"]
    assert "0.0.1" in said[1]["text"]


def test_what_dead_processes_left_behind_is_counted() -> None:
    long_ago = timezone.now() - timedelta(hours=1)
    row = Process.objects.create(kind="console", host=socket.gethostname(), pid=99, version="1", heartbeat_at=long_ago)
    make_worker(state="running", owner=row.public_id)
    make_worker(state="queued", owner="p_" + "f" * 20)
    said = examine().one("dead processes")
    assert said["level"] == "warning"
    assert "console 99" in said["text"]
    assert "2 workers are unfinished" in said["text"]


def test_a_key_is_told_per_process_and_never_shown(member: Membership, monkeypatch: Any) -> None:
    Process.objects.filter(public_id=member.public_id).update(pid=4711, key_variables=[KEY])
    make_provider()
    report = examine()
    assert report.level("glm key") == "warning"
    assert report.one("glm key")["text"] == f"{KEY} is set in runmcp 4711; not in this process"
    monkeypatch.setenv(KEY, VALUE)
    report = examine()
    assert report.one("glm key")["text"] == f"{KEY} is set in this process, runmcp 4711"
    assert report.level("glm key") == "ok"
    assert VALUE not in report.text


@once
def test_a_free_port_is_free() -> None:
    port = free_port()
    assert examine("--port", str(port)).one(f"port {port}")["text"] == "free"


@once
@pytest.mark.parametrize("answer", [b"hello", b'["status"]', b'{"status": "ok", "installation": "another"}'])
def test_a_port_with_somebody_else_on_it_is_a_problem_with_the_way_out(answer: bytes) -> None:
    with web_server(answer) as port:
        said = examine("--port", str(port)).one(f"port {port}")
    assert said["level"] == "problem"
    assert f"PORT={port + 1}" in said["fix"]


@once
def test_a_port_that_does_not_speak_http_is_a_problem_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        threading.Thread(target=_say_nonsense, args=(mute,), daemon=True).start()
        assert examine("--port", str(port)).level(f"port {port}") == "problem"


def _say_nonsense(server: socket.socket) -> None:
    client, _ = server.accept()
    with client:
        client.sendall(b"-ERR unknown command\r\n")


@once
def test_the_console_of_this_installation_is_known_by_its_id() -> None:
    answer = json.loads(healthz(RequestFactory().get("/healthz")).content)
    assert answer == {"status": "ok", "installation": installation_id()}
    with web_server(json.dumps(answer).encode()) as port:
        assert examine("--port", str(port)).level(f"port {port}") == "ok"


@once
def test_a_bell_that_can_not_be_hung_is_a_problem(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    (home.path / "run").write_text("in the way")
    monkeypatch.setattr("core.bell.MAX_PATH_BYTES", 4096)  # below the home, however deep the test's own lies
    assert examine().level("bell") == "problem"


# -- configuration ---------------------------------------------------------------------------------------------------


@once
@pytest.mark.parametrize(
    ("fields", "level", "words"),
    [
        ({"base_url": "api.example.com/v1"}, "problem", "http"),
        ({"base_url": "http://api.example.com/v1", "private": False}, "problem", "not https"),
        ({"model": ""}, "warning", "no default model"),
        ({}, "ok", "https://api.example.com/v1, glm-4.5-air"),
    ],
)
def test_a_provider_is_judged_by_its_address_and_model(fields: dict[str, Any], level: str, words: str) -> None:
    make_provider(**fields)
    said = examine().one("glm")
    assert said["level"] == level
    assert words in said["text"]


def test_a_key_that_no_process_has_is_a_problem() -> None:
    make_provider()
    report = examine()
    assert report.level("glm key") == "problem"
    assert report.status == 1


def test_routes_to_unknown_providers_and_models_are_problems() -> None:
    provider = make_provider(api_key_env="")
    ProviderModel.objects.create(provider=provider, name="glm-4.5-air")
    RoleRoute.objects.create(role="coder", provider="gone")
    RoleRoute.objects.create(role="reviewer", provider="glm", model="glm-9")
    report = examine()
    assert "'gone'" in report.one("route coder")["text"]
    assert "'glm-9'" in report.one("route reviewer")["text"]


@once
def test_a_wrong_variable_is_one_problem_with_its_fix_and_hides_nothing_else(monkeypatch: Any) -> None:
    monkeypatch.setenv("MEAH_MAX_CONCURRENT", "-1")
    report = examine()
    assert report.data["problems"] == 1
    assert "MEAH_MAX_CONCURRENT" in report.one("settings")["text"]
    assert report.level("verified now") == "ok"


@once
def test_a_misspelled_variable_is_warned_of(monkeypatch: Any) -> None:
    monkeypatch.setenv("MEAH_MAXCONCURRENT", "3")
    assert "MEAH_MAX_CONCURRENT" in examine().one("environment")["fix"]


@once
def test_commands_that_are_switched_on_are_warned_of_where_no_sandbox_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    WorkerSettings.objects.create(pk=1, terminal_enabled=True)
    monkeypatch.setattr("workers.terminal.sandbox.missing", lambda: "bubblewrap (bwrap) is not installed")
    assert "E_SANDBOX_UNAVAILABLE" in examine().one("commands")["text"]
    monkeypatch.setenv("MEAH_ALLOW_UNSANDBOXED_EXEC", "true")
    assert "WITHOUT a sandbox" in examine().one("commands")["text"]


def test_an_allowlist_that_can_not_be_used_is_warned_of(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.terminal.sandbox.missing", lambda: "there is none")
    inside = home.path / "workspaces" / "tool"
    WorkerSettings.objects.create(
        pk=1, terminal_enabled=True, terminal_allowlist=["/bin/ls", "/nowhere/tool", str(inside)]
    )
    texts = [finding["text"] for finding in examine().about("commands allowed")]
    assert len(texts) == 2 and "/nowhere/tool is not there" in texts[0] and "within the workspaces" in texts[1]


# -- records ---------------------------------------------------------------------------------------------------------


def test_the_chain_is_shown_with_its_last_verification() -> None:
    with transaction.atomic():
        record("test.done", principal="system")
    verify_and_record(principal="system")
    report = examine()
    assert report.one("head")["text"].startswith("2 entries")
    assert report.one("last verified")["text"].startswith("whole, ")


def test_a_tampered_chain_without_its_triggers_is_found() -> None:
    with transaction.atomic():
        record("test.done", principal="system")
    with connection.cursor() as cursor:
        if is_postgres():
            cursor.execute("DROP TRIGGER audit_entry_no_change ON audit_entry")
        else:
            cursor.execute("DROP TRIGGER audit_entry_no_update")
        cursor.execute("UPDATE audit_entry SET principal = 'agent:other'")
    assert Entry.objects.get().principal == "agent:other"
    report = examine()
    assert report.level("triggers") == "problem"
    assert "projection_mismatch at entry 0" in report.one("verified now")["text"]


def test_workspaces_and_texts_past_their_time_are_counted(home: Home) -> None:
    worker = make_worker(state="succeeded", finished_at=timezone.now() - timedelta(days=31))
    directory = home.path / "workspaces" / worker.public_id
    directory.mkdir(parents=True)
    (directory / "result.md").write_bytes(b"x" * 100_000)
    report = examine()
    assert report.one("workspaces")["text"].startswith("1 with 0.1 MB")
    assert report.one("texts")["level"] == "warning"
    assert report.one("texts")["text"].startswith("1 workers have texts older than the 30 days")


# -- probe -----------------------------------------------------------------------------------------------------------


def probe(name: str = "") -> Examined:
    return examine("--port", str(free_port()), "--probe", *([name] if name else []))


def test_a_probe_lists_models_and_shows_one_answer() -> None:
    with FakeProvider() as fake:
        fake.reply(
            chat("OK", usage={"prompt_tokens": 9, "completion_tokens": 2}),
        )
        fake.models = json_reply({"data": [{"id": "m-1"}, {"id": "m-2"}]})
        make_provider(base_url=fake.base_url, api_key_env="", model="m-1")
        report = probe("glm")
    assert report.one("glm models") == {"level": "ok", "subject": "glm models", "text": "2 listed", "fix": ""}
    said = report.one("glm answer")
    assert said["level"] == "ok"
    assert "m-1 in " in said["text"]
    assert "9 in, 2 out" in said["text"]
    assert Entry.objects.filter(kind="provider.tested", subject="glm").exists()


@once
def test_a_probe_that_fails_is_a_problem_with_the_hint() -> None:
    with FakeProvider() as fake:
        fake.reply(json_reply({"error": {"message": "bad key"}}, status=401))
        make_provider(base_url=fake.base_url, api_key_env="", model="m-1")
        report = probe("glm")
    assert report.status == 1
    assert report.one("glm answer")["text"].startswith("E_AUTH: ")
    assert report.one("glm answer")["fix"]


@once
def test_a_probe_of_a_model_that_is_not_listed_warns() -> None:
    with FakeProvider() as fake:
        fake.models = json_reply({"data": [{"id": "m-2"}]})
        make_provider(base_url=fake.base_url, api_key_env="", model="m-1")
        assert probe("glm").level("glm models") == "warning"


@once
def test_a_probe_of_everything_without_providers_asks_the_mock() -> None:
    assert probe().level("mock answer") == "ok"


@once
def test_a_probe_of_an_unknown_provider_names_those_there_are() -> None:
    make_provider(api_key_env="")
    said = probe("gln").one("gln")
    assert said["level"] == "problem"
    assert "glm" in said["fix"]


@once
def test_without_probe_nobody_is_called() -> None:
    with FakeProvider() as fake:
        make_provider(base_url=fake.base_url, api_key_env="")
        examine()
        assert fake.requests == []


# -- whatever breaks --------------------------------------------------------------------------------------------------


@once
def test_a_check_that_breaks_is_a_finding_and_the_others_go_on() -> None:
    def broken() -> Iterator[Any]:
        yield ok("first", "seen before it broke")
        raise RuntimeError("unforeseen")

    group = examined("Group", ("broken", broken), ("next", lambda: [ok("next", "still seen")]))
    assert [(finding.subject, finding.level) for finding in group.findings] == [
        ("first", Level.OK),
        ("broken", Level.PROBLEM),
        ("next", Level.OK),
    ]
    assert "unforeseen" in group.findings[1].text


def test_it_runs_as_a_command_from_anywhere(home: Home) -> None:
    child = in_a_process(home)
    assert child.returncode == 0, child.stdout + child.stderr
    assert "All is well." in child.stdout
    assert child.stderr == ""
