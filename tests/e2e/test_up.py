"""`manage.py up` as a child: it serves, runs what the admin starts, names a port that is taken, and ends cleanly."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

from tests.conftest import ROOT, Home
from tests.e2e.consoles import free_port
from tests.e2e.server import Server, eventually
from workers import starts
from workers.models import Worker

PATIENCE_S = 60


def up(home: Home, port: int, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "up", "--port", str(port)],
        cwd="/",
        env=home.environ | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def killed_at_last(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    with process:
        try:
            yield process
        finally:
            process.kill()


def health(port: int) -> str | None:
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_S) as answer:
            assert answer.status == 200
            return str(json.load(answer)["status"])
    except ConnectionRefusedError:
        return None
    except OSError as error:
        if isinstance(getattr(error, "reason", None), ConnectionRefusedError):
            return None
        raise


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_it_serves_runs_what_is_started_there_and_ends_with_all_it_had(home: Home, number: signal.Signals) -> None:
    port = free_port()
    with killed_at_last(up(home, port)) as console:
        assert eventually(lambda: health(port), within_s=PATIENCE_S) == "ok"
        quick = eventually(lambda: started("[mock text=From the admin]"), within_s=PATIENCE_S)
        eventually(lambda: state(quick) == "succeeded", within_s=PATIENCE_S)
        slow = started("[mock wait=60000]")
        assert slow is not None
        eventually(lambda: state(slow) == "running", within_s=PATIENCE_S)
        console.send_signal(number)
        said, complained = console.communicate(timeout=PATIENCE_S)
    assert console.returncode == 0 and "MEAH has stopped." in said
    assert f"http://127.0.0.1:{port}/login/" in said and "claude mcp add meah" in said
    assert all(json.loads(line)["level"] == "info" for line in complained.splitlines())
    assert state(slow) == "cancelled"
    assert list((home.path / "run").iterdir()) == []
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def test_a_port_that_is_taken_is_named_with_the_way_out(home: Home) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with killed_at_last(up(home, port)) as console:
            said, complained = console.communicate(timeout=PATIENCE_S)
    assert console.returncode == 1 and said == ""
    assert str(port) in complained and "--port" in complained and "Traceback" not in complained


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MEAH_HOME", "/dev/null/home"),
        ("DATABASE_URL", "nonsense"),
        ("MEAH_TIMEOUT_MS", "soon"),
        ("MEAH_LOG_LEVEL", "x"),
    ],
)
def test_a_start_that_fails_says_so_in_words(home: Home, variable: str, value: str) -> None:
    with killed_at_last(up(home, free_port(), **{variable: value})) as console:
        _, complained = console.communicate(timeout=PATIENCE_S)
    assert console.returncode == 1
    assert variable in complained and "Traceback" not in complained and len(complained.splitlines()) == 2


def started(task: str) -> Worker | None:
    from core.errors import MeahError

    try:
        return starts.start({"task": task}, principal="user:alice", door="admin")
    except MeahError as error:
        # It answers requests a moment before its engine has joined.
        assert error.reason == "no_console"
        return None


def state(worker: Worker) -> str:
    worker.refresh_from_db(fields=["state"])
    return worker.state


def test_a_second_console_stands_by_and_takes_over(home: Home) -> None:
    port = free_port()
    with killed_at_last(up(home, port)) as first:
        eventually(lambda: health(port), within_s=PATIENCE_S)
        with killed_at_last(up(home, port)) as second:
            assert second.stdout is not None
            assert "runs already" in second.stdout.readline()
            assert "stands by" in second.stdout.readline()
            first.send_signal(signal.SIGTERM)
            first.communicate(timeout=PATIENCE_S)
            assert "is running at" in eventually(
                lambda: second.stdout and second.stdout.readline().strip(), within_s=10
            )
            assert eventually(lambda: health(port), within_s=5) == "ok"
            second.send_signal(signal.SIGTERM)
            assert "MEAH has stopped." in second.communicate(timeout=PATIENCE_S)[0]


def test_a_client_brings_a_console_along_and_takes_it_away(home: Home) -> None:
    port = free_port()
    web = {"MEAH_WEB": "true", "MEAH_WEB_PORT": str(port)}
    with Server(home, environ=web) as client:
        client.initialize()
        assert eventually(lambda: health(port), within_s=PATIENCE_S) == "ok"
        assert client.data("meah_list_models")["runtime"]["processes"] == 2
        with Server(home, environ=web) as other:
            other.initialize()
            eventually(lambda: other.logged("console_standby") or None, within_s=PATIENCE_S)
            client.process.kill()
            eventually(lambda: other.logged("console_of_client") or None, within_s=15)
            assert eventually(lambda: health(port), within_s=5) == "ok"
            assert other.data("meah_list_models")["providers"]
    eventually(lambda: health(port) is None, within_s=10)


def test_a_foreign_holder_of_the_port_breaks_no_client(home: Home) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        web = {"MEAH_WEB": "true", "MEAH_WEB_PORT": str(holder.getsockname()[1])}
        with Server(home, environ=web) as client:
            client.initialize()
            eventually(lambda: client.logged("console_unavailable") or None, within_s=PATIENCE_S)
            assert client.data("meah_list_models")["providers"]
