"""Connections to real child processes, good ones and bad ones."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.failures import AmbiguousError, DownstreamError, NotSentError
from gateway.launch import Launch
from gateway.sessions import Hooks, Report
from tests.gateway.support import alive, pid_of, pool_of, raw, recorded, until

ERAS = ["both", "legacy"]


def messages(log: Path, method: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("method") == method]


@pytest.mark.parametrize(
    ("era", "version"), [("both", "2026-07-28"), ("modern", "2026-07-28"), ("legacy", "2025-11-25")]
)
def test_the_newest_common_era_is_spoken(run: Any, tmp_path: Path, era: str, version: str) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(raw("raw", "--era", era)).open()
            assert opened.session.protocol_version == version
            result = await opened.call("echo", {"text": "hi"})
            assert result["content"] == [{"type": "text", "text": "hi"}]

    run(scenario())


@pytest.mark.parametrize("era", ["mute", "crash"])
def test_a_server_that_can_not_stand_the_probe_is_reached_and_its_era_remembered(
    run: Any, tmp_path: Path, monkeypatch: Any, era: str
) -> None:
    monkeypatch.setattr("gateway.handshake.PROBE_S", 0.5)

    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            connection = pool.connection(raw("raw", "--era", era))
            assert (await connection.open()).session.protocol_version == "2025-11-25"
            assert connection.launch.era == "legacy"

    run(scenario())


def test_a_remembered_era_costs_no_probe(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            begun = time.monotonic()
            await pool.connection(raw("raw", "--era", "mute", era="legacy")).open()
            assert time.monotonic() - begun < 4

    run(scenario())


def test_a_server_that_has_moved_to_the_new_era_is_found_there(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            connection = pool.connection(raw("raw", "--era", "legacy", era="2026-07-28"))
            assert (await connection.open()).session.protocol_version == "2025-11-25"

    run(scenario())


def test_many_first_calls_share_one_start(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            connection = pool.connection(raw())

            async def one(number: int) -> Any:
                return await (await connection.open()).call("echo", {"text": str(number)})

            results = await asyncio.gather(*(one(number) for number in range(20)))
            assert [result["content"][0]["text"] for result in results] == [str(number) for number in range(20)]
            assert connection.starts == 1

    run(scenario())


def test_calls_run_at_once(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(raw()).open()
            begun = time.monotonic()
            await asyncio.gather(*(opened.call("slow", {"seconds": 0.5}) for _ in range(10)))
            assert time.monotonic() - begun < 3

    run(scenario())


def test_what_the_sdk_does_not_know_passes_unchanged(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(raw("raw", "--era", "legacy")).open()
            result = await opened.call("odd", {})
            assert result["content"][0] == {"type": "hologram", "voxels": [1, 2, 3]}
            assert result["content"][1]["annotations"] == {"x": 1}
            assert (result["futureField"], result["structuredContent"], result["_meta"]) == (
                {"a": 1},
                [1, 2],
                {"k": "v"},
            )

    run(scenario())


def test_a_server_that_dies_in_a_call_leaves_it_open_and_is_started_again(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            connection = pool.connection(raw())
            opened = await connection.open()
            beside = asyncio.ensure_future(opened.call("hang", {}))
            await asyncio.sleep(0.1)
            begun = time.monotonic()
            with pytest.raises(AmbiguousError) as died:
                await opened.call("die", {})
            assert time.monotonic() - begun < 3
            assert (died.value.code, died.value.retryable) == ("E_NETWORK", False)
            with pytest.raises(AmbiguousError):
                await beside
            assert await (await connection.open()).call("echo", {"text": "again"})
            assert connection.starts == 2

    run(scenario())


def test_a_server_killed_while_idle_is_started_again(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            connection = pool.connection(raw())
            environ = (await (await connection.open()).call("env", {}))["structuredContent"]
            assert environ["_MEAH_CHILD"]
            os.kill(pid_of(tmp_path), signal.SIGKILL)
            await until(lambda: connection._open is None)
            assert await (await connection.open()).call("echo", {"text": "again"})

    run(scenario())


def test_a_call_on_a_connection_that_has_ended_was_not_sent(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            connection = pool.connection(raw())
            opened = await connection.open()
            os.kill(pid_of(tmp_path), signal.SIGKILL)
            await until(lambda: connection._open is None)
            with pytest.raises(NotSentError) as refused:
                await opened.call("echo", {"text": "hi"})
            assert refused.value.details["sent"] is False

    run(scenario())


def test_a_server_that_dies_at_its_start_fails_clearly_and_is_left_alone_for_a_while(run: Any, tmp_path: Path) -> None:
    reports: list[Report] = []

    async def scenario() -> None:
        async with pool_of(tmp_path, Hooks(reported=reports.append)) as pool:
            connection = pool.connection(raw("raw", "--die-at-start"))
            with pytest.raises(NotSentError) as failed:
                await connection.open()
            assert "could not be started" in failed.value.message
            await until(lambda: reports[-1].state == "failed")
            assert "no such database" in reports[-1].stderr
            with pytest.raises(NotSentError) as waiting:
                await connection.open()
            assert waiting.value.reason == "backing_off"

    run(scenario())


@pytest.mark.parametrize("command", ["no-such-command-anywhere", "/etc/hostname", "/"])
def test_a_command_that_can_not_be_started_says_so(run: Any, tmp_path: Path, command: str) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            with pytest.raises(NotSentError) as failed:
                await pool.connection(Launch(server="x", command=command)).open()
            assert failed.value.code == "E_CONFIG"

    run(scenario())


def test_a_server_that_never_answers_fails_in_time_and_leaves_no_child(
    run: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("gateway.connection.START_TIMEOUT_S", 1.0)

    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            connection = pool.connection(raw("raw", "--silent"))
            opening = asyncio.ensure_future(connection.open())
            await until(lambda: bool(recorded(tmp_path)))
            child = pid_of(tmp_path)
            with pytest.raises(NotSentError) as failed:
                await opening
            assert failed.value.code == "E_TIMEOUT"
            await until(lambda: not alive(child))

    run(scenario())


def test_a_cancelled_call_tells_the_server(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(raw("raw", "--log", str(log))).open()
            hanging = asyncio.ensure_future(opened.call("hang", {}))
            await until(lambda: bool(messages(log, "tools/call")))
            hanging.cancel()
            await until(lambda: bool(messages(log, "notifications/cancelled")))
            [told] = messages(log, "notifications/cancelled")
            assert told["params"]["requestId"] == messages(log, "tools/call")[0]["id"]
            assert await opened.call("echo", {"text": "still there"})

    run(scenario())


@pytest.mark.parametrize("era", ERAS)
def test_progress_passes_in_order_and_only_where_asked_for(run: Any, tmp_path: Path, era: str) -> None:
    log = tmp_path / "log"

    async def scenario() -> None:
        seen: list[tuple[float, float | None, str | None]] = []

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            seen.append((progress, total, message))

        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(raw("raw", "--era", era, "--log", str(log))).open()
            await opened.call("progress", {"steps": 20}, on_progress=tell)
            assert seen == [(step + 1, 20, f"step {step}") for step in range(20)]
            await opened.call("echo", {"text": "hi"})
            assert "progressToken" not in messages(log, "tools/call")[-1]["params"].get("_meta", {})

    run(scenario())


def test_errors_of_the_protocol_and_of_the_tool_are_told_apart(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(raw()).open()
            with pytest.raises(DownstreamError) as failed:
                await opened.call("fail", {})
            assert failed.value.details == {
                "jsonrpcCode": -32050,
                "message": "the ticket system is down",
                "data": {"retryIn": 5},
                "reason": "downstream_error",
            }
            assert (await opened.call("is_error", {}))["isError"] is True

    run(scenario())


@pytest.mark.parametrize("ids", ["first", "last"])
def test_large_results_pass_whole_and_larger_ones_fail_alone(run: Any, tmp_path: Path, ids: str) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(raw("raw", "--ids", ids)).open()
            for size in (200_000, 10_000_000, 16 * 2**20):
                assert len((await opened.call("big", {"bytes": size}))["content"][0]["text"]) == size
            beside = asyncio.ensure_future(opened.call("slow", {"seconds": 1}))
            with pytest.raises(AmbiguousError) as refused:
                await opened.call("big", {"bytes": 20_000_000})
            assert "larger than 16 MiB" in refused.value.message
            assert (await beside)["content"][0]["text"] == "late"

    run(scenario())


def test_an_answer_that_can_not_be_read_fails_alone(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(raw()).open()
            with pytest.raises(AmbiguousError):
                await opened.call("garbage", {})
            assert await opened.call("echo", {"text": "still there"})

    run(scenario())


def test_noise_before_the_handshake_and_chatter_on_stdout_do_no_harm(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            connection = pool.connection(raw("raw", "--noise", "300000", "--chatter"))
            opened = await connection.open()
            assert await opened.call("echo", {"text": "hi"})
            assert "[stdout] Listening on stdio..." in connection.tail.text()

    run(scenario())


def test_stderr_is_drained_and_only_its_end_is_kept(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            connection = pool.connection(raw())
            opened = await connection.open()
            await opened.call("spam", {"bytes": 20_000_000})
            await asyncio.sleep(0.1)
            assert 0 < len(connection.tail.text()) < 10_000

    run(scenario())


def test_every_page_of_a_listing_is_read(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            whole = (await pool.connection(raw()).open()).listing
            paged = (await pool.connection(raw("paged", "--page", "3")).open()).listing
            assert paged == whole
            assert len(whole) > 10

    run(scenario())


@pytest.mark.parametrize("era", ERAS)
def test_a_change_of_tools_is_listed_once_and_compared(run: Any, tmp_path: Path, era: str) -> None:
    file = tmp_path / "tools.json"
    tool = {"name": "change", "description": "before", "inputSchema": {"type": "object"}}
    file.write_text(json.dumps([tool]))
    compared: list[Any] = []

    async def listed(launch: Launch, listing: list[Any]) -> dict[str, str]:
        compared.append(listing)
        return {}

    async def scenario() -> None:
        async with pool_of(tmp_path, Hooks(listed=listed)) as pool:
            opened = await pool.connection(raw("raw", "--era", era, "--tools", str(file))).open()
            await opened.call("change", {})
            await asyncio.sleep(0.6)
            assert len(compared) == 1, "nothing had changed"
            file.write_text(json.dumps([tool | {"description": "after"}]))
            await opened.call("change", {})
            await until(lambda: len(compared) == 2)
            assert compared[1][0]["description"] == "after"

    run(scenario())


def test_a_server_that_cries_change_at_every_listing_does_not_loop(run: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            await pool.connection(raw("raw", "--era", "legacy", "--crier", "--log", str(log))).open()
            await asyncio.sleep(3)
            assert len(messages(log, "tools/list")) <= 6

    run(scenario())
