"""How the MCP server ends: with its client, by a signal, by force. No worker stays "running", nothing is sent twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from audit.services import verify
from tests.conftest import Home
from tests.e2e.providers import environ, silent
from tests.e2e.server import COMMAND, Server, eventually, is_running
from tests.fake_provider import FakeProvider
from workers.models import Worker, WorkerState

# The product promises 5 s; a busy machine may take longer.
GONE_WITHIN_S = 15.0

# The parent of the server: it starts the server with pipes that somebody else holds open too, and waits to be killed.
PARENT = """
import json, subprocess, sys, time
stdin, stdout, *command = sys.argv[1:]
child = subprocess.Popen(command, stdin=int(stdin), stdout=int(stdout))
print(child.pid, flush=True)
time.sleep(600)
"""


def states(home: Home) -> list[str]:
    return list(Worker.objects.order_by("pk").values_list("state", flat=True))


@pytest.mark.parametrize(
    "ending",
    ["end of input", signal.SIGTERM, signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)],
    ids=str,
)
def test_a_server_that_ends_cancels_its_workers_and_is_gone(home: Home, ending: str | signal.Signals) -> None:
    with FakeProvider() as fake:
        fake.reply(silent())
        with Server(home, environ=environ(fake, MEAH_MAX_CONCURRENT="1")) as server:
            server.initialize()
            blocked = server.begin_call("meah_delegate_task", task="one")
            server.data("meah_run_agent", task="two")
            eventually(lambda: len(fake.requests) == 1, within_s=20)
            begun = time.monotonic()
            if isinstance(ending, str):
                server.close()
            else:
                server.end(ending)
            answer = server.envelope(blocked)
            assert server.gone(within_s=GONE_WITHIN_S) == 0
            took_s = time.monotonic() - begun
        assert fake.requests[0].gone.wait(5), "the request was not aborted"
        assert len(fake.requests) == 1
    assert took_s < GONE_WITHIN_S
    # Whoever still listens gets an honest answer.
    assert answer["error"]["code"] == "E_CANCELLED"
    for worker in Worker.objects.all():
        assert worker.state == WorkerState.CANCELLED and worker.error["code"] == "E_CANCELLED"
    assert verify().whole
    assert list((home.path / "run").iterdir()) == []


@contextmanager
def parented(home: Home, extra: dict[str, str]) -> Iterator[tuple[int, int, subprocess.Popen[bytes]]]:
    """A server under a parent of its own: its pid, the end of its stdin that we keep, and the parent."""
    stdin, to_server = os.pipe()
    from_server, stdout = os.pipe()
    command = [sys.executable, "-c", PARENT, str(stdin), str(stdout), *COMMAND]
    parent = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=home.environ | extra, pass_fds=(stdin, stdout)
    )
    os.close(stdin)
    os.close(stdout)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    try:
        yield pid, to_server, parent
    finally:
        for victim in (parent.pid, pid):
            if is_running(victim):
                os.kill(victim, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
        os.close(to_server)
        os.close(from_server)


def test_a_killed_parent_is_the_end_even_where_the_pipe_stays_open(home: Home) -> None:
    with parented(home, {}) as (pid, to_server, parent):
        for message in (
            {
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "parent", "version": "1"},
                },
            },
            {
                "id": 2,
                "method": "tools/call",
                "params": {"name": "meah_run_agent", "arguments": {"task": "[mock wait=60000]"}},
            },
        ):
            os.write(to_server, json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
        eventually(lambda: states(home) == ["running"], within_s=30)
        parent.kill()
        parent.wait()
        eventually(lambda: not is_running(pid), within_s=GONE_WITHIN_S)
    assert states(home) == ["cancelled"]


def test_with_finish_the_server_stays_until_its_workers_have_ended(home: Home) -> None:
    with Server(home, environ={"MEAH_ON_CLIENT_EXIT": "finish", "MEAH_MAX_CONCURRENT": "1"}) as server:
        server.initialize()
        server.data("meah_run_agent", task="[mock wait=1500]")
        server.begin_call("meah_delegate_task", task="[mock wait=500]")
        eventually(lambda: len(states(home)) == 2, within_s=20)
        server.close()
        time.sleep(0.5)
        assert server.process.poll() is None
        assert server.gone(within_s=30) == 0
    assert states(home) == ["succeeded", "succeeded"]


@pytest.mark.parametrize("input_ended", [True, False])
def test_with_finish_a_signal_still_ends_the_server_at_once(home: Home, input_ended: bool) -> None:
    with Server(home, environ={"MEAH_ON_CLIENT_EXIT": "finish"}) as server:
        server.initialize()
        server.data("meah_run_agent", task="[mock wait=60000]")
        if input_ended:
            server.close()
            time.sleep(1.0)
            assert server.process.poll() is None
        server.end(signal.SIGTERM)
        server.gone(within_s=GONE_WITHIN_S)
    assert states(home) == ["cancelled"]


def test_after_a_kill_another_process_settles_the_workers_and_nothing_is_sent_again(home: Home) -> None:
    with FakeProvider() as fake:
        fake.reply(silent())
        provider = environ(fake, MEAH_MAX_CONCURRENT="6")
        with Server(home, environ=provider) as witness, Server(home, environ=provider) as victim:
            witness.initialize()
            victim.initialize()
            ids = [victim.data("meah_run_agent", task=f"task {number}")["workerId"] for number in range(8)]
            eventually(lambda: len(fake.requests) == 6, within_s=30)
            assert sorted(states(home)) == ["queued"] * 2 + ["running"] * 6
            victim.process.kill()
            begun = time.monotonic()
            victim.gone(within_s=10)
            ended = [witness.ended(worker_id, within_s=30) for worker_id in ids]
            assert time.monotonic() - begun < 20
            for worker in ended:
                assert worker["state"] == "failed"
                assert (worker["error"]["code"], worker["error"]["retryable"]) == ("E_UNAVAILABLE", True)
                assert worker["error"]["details"]["reason"] == "process_died"
            time.sleep(1.5)
            assert len(fake.requests) == 6
            left = {path.name for path in (home.path / "run").glob("p_*.lock")}
            assert len(left) == 1
    assert verify().whole


def test_a_server_that_starts_later_settles_what_a_killed_one_left(home: Home) -> None:
    with Server(home) as victim:
        victim.initialize()
        victim.data("meah_run_agent", task="[mock wait=60000]")
        victim.process.kill()
        victim.gone(within_s=10)
    assert states(home) == ["running"]
    with Server(home) as heir:
        heir.initialize()
        eventually(lambda: states(home) == ["failed"], within_s=30)


def test_a_database_that_became_newer_ends_the_server_after_its_calls(home: Home) -> None:
    from django.db import connection

    with Server(home) as server:
        server.initialize()
        call = server.begin_call("meah_delegate_task", task="[mock wait=5000 text=Done]")
        eventually(lambda: states(home) == ["running"], within_s=20)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO django_migrations (app, name, applied) VALUES ('workers', '9999_later', CURRENT_TIMESTAMP)"
            )
        assert server.envelope(call, within_s=40)["data"]["result"]["text"] == "Done"
        assert server.gone(within_s=40) == 0
        assert server.logged("schema_is_newer")
    done = subprocess.run(COMMAND, stdin=subprocess.PIPE, capture_output=True, env=home.environ, timeout=60)
    assert done.returncode == 1
    error = json.loads(done.stderr)["error"]
    assert error["code"] == "E_CONFIG" and "newer" in error["message"]


def test_a_client_that_reads_nothing_does_not_hold_the_server_back(home: Home, tmp_path: Path) -> None:
    """Its pipe is full of answers that nobody takes."""
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=home.environ
    ) as process:
        assert process.stdin is not None
        frame = {"jsonrpc": "2.0", "method": "tools/list"}
        first = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "deaf", "version": "1"},
        }
        frames = [{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": first}]
        frames += [frame | {"id": number} for number in range(1, 40)]
        process.stdin.write(b"".join(json.dumps(item).encode() + b"\n" for item in frames))
        process.stdin.flush()
        time.sleep(4)
        process.send_signal(signal.SIGTERM)
        assert process.wait(GONE_WITHIN_S) is not None
