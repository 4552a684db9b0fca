"""Remote servers over Streamable HTTP, on loopback: good ones in both eras, and bad ones."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core import secrets
from core.errors import MeahError
from gateway.failures import AmbiguousError, DownstreamError, NotSentError
from gateway.launch import Launch
from gateway.sessions import Hooks
from tests.gateway.support import pool_of, until

SERVERS = Path(__file__).parent / "servers"
ERAS = [("", "2026-07-28"), ("legacy", "2025-11-25")]


def start(script: str, *options: str) -> tuple[subprocess.Popen[bytes], int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(SERVERS / script), str(port), *options])
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return process, port
        except OSError:
            time.sleep(0.05)
    process.kill()
    process.wait()
    raise AssertionError("the server did not start")


@pytest.fixture(scope="module", params=["sse", "json"])
def web(request: Any) -> Iterator[str]:
    process, port = start("web.py", *(["--json"] if request.param == "json" else []))
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def bad() -> Iterator[Callable[[str], Launch]]:
    process, port = start("badweb.py")
    yield lambda path: Launch(server="bad", transport="http", url=f"http://127.0.0.1:{port}/{path}", private=True)
    process.kill()
    process.wait()


def web_launch(url: str, **more: Any) -> Launch:
    return Launch(server="web", transport="http", url=url, private=True, **more)


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@pytest.mark.parametrize(("era", "version"), ERAS)
def test_calls_pass_over_http_in_both_eras(run: Any, tmp_path: Path, web: str, era: str, version: str) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(web_launch(web, era=era)).open()
            assert opened.session.protocol_version == version
            assert text_of(await opened.call("echo", {"text": "hi"})) == "hi"
            assert len(text_of(await opened.call("big", {"bytes": 10_000_000}))) == 10_000_000
            with pytest.raises(DownstreamError) as failed:
                await opened.call("fail", {})
            assert failed.value.details["jsonrpcCode"] == -32050
            results = await asyncio.gather(*(opened.call("echo", {"text": str(n)}) for n in range(20)))
            assert [text_of(result) for result in results] == [str(n) for n in range(20)]

    run(scenario())


@pytest.mark.parametrize(("era", "version"), ERAS)
def test_a_cancelled_call_ends_on_the_server(
    run: Any, tmp_path: Path, web: str, era: str, version: str, request: Any
) -> None:
    if request.node.callspec.params["web"] == "json" and not era:
        pytest.skip("the SDK's server does not notice a closed request that it answers in JSON")

    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(web_launch(web, era=era)).open()
            before = int(text_of(await opened.call("cancelled", {})))
            slow = asyncio.ensure_future(opened.call("slow", {"seconds": 30}))
            await asyncio.sleep(0.5)
            slow.cancel()
            deadline = time.monotonic() + 10
            while int(text_of(await opened.call("cancelled", {}))) == before:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)

    run(scenario())


@pytest.mark.parametrize(("era", "version"), ERAS)
def test_progress_passes_over_http(run: Any, tmp_path: Path, web: str, era: str, version: str, request: Any) -> None:
    if request.node.callspec.params["web"] == "json":
        pytest.skip("a JSON answer has no room for progress")

    async def scenario() -> None:
        seen: list[float] = []

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            seen.append(progress)

        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(web_launch(web, era=era)).open()
            await opened.call("progress", {"steps": 20}, on_progress=tell)
            assert seen == [float(step + 1) for step in range(20)]

    run(scenario())


@pytest.mark.parametrize(("era", "version"), ERAS)
def test_changes_of_tools_are_heard_over_http(run: Any, tmp_path: Path, web: str, era: str, version: str) -> None:
    listings: list[int] = []

    async def listed(launch: Launch, listing: list[Any]) -> dict[str, str]:
        listings.append(len(listing))
        return {}

    async def scenario() -> None:
        async with pool_of(tmp_path, Hooks(listed=listed)) as pool:
            opened = await pool.connection(web_launch(web, era=era)).open()
            await asyncio.sleep(0.5)
            await opened.call("change", {})
            await until(lambda: len(listings) == 2)
            assert listings[1] == listings[0] + 1

    run(scenario())


def test_headers_carry_secrets_and_mirrored_arguments(run: Any, tmp_path: Path, web: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("TEST_WEB_KEY", "a-secret-of-the-web-server")
    launch = web_launch(web, headers=(("Authorization", "Bearer ${TEST_WEB_KEY}"),))

    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(launch).open()
            schema = next(tool for tool in opened.listing if tool["name"] == "mirrored")["inputSchema"]
            seen = json.loads(text_of(await opened.call("mirrored", {"region": "eu"}, schema=schema)))
            assert seen["authorization"] == "Bearer a-secret-of-the-web-server"
            assert seen["mcp-param-region"] == "eu"
            assert seen["mcp-name"] == "mirrored"

    run(scenario())
    assert "TEST_WEB_KEY" in secrets.named_secrets()


def test_a_header_that_does_not_resolve_fails_that_server_alone(run: Any, tmp_path: Path, web: str) -> None:
    launch = web_launch(web, headers=(("X-Key", "${NO_SUCH_VARIABLE_HERE}"),))

    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            with pytest.raises(NotSentError) as failed:
                await pool.connection(launch).open()
            assert "headers.X-Key" in failed.value.message
            assert "NO_SUCH_VARIABLE_HERE" in failed.value.message

    run(scenario())


def test_a_server_that_dies_leaves_the_call_open(run: Any, tmp_path: Path) -> None:
    process, port = start("web.py")

    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            connection = pool.connection(web_launch(f"http://127.0.0.1:{port}/mcp"))
            opened = await connection.open()
            with pytest.raises(AmbiguousError):
                await opened.call("die", {})
            with pytest.raises(NotSentError) as refused:
                await (await connection.open()).call("echo", {"text": "hi"})
            assert refused.value.code == "E_NETWORK"

    run(scenario())
    process.wait()


def test_the_older_sse_transport_is_spoken_too(run: Any, tmp_path: Path) -> None:
    process, port = start("web.py", "--old")
    url = f"http://127.0.0.1:{port}/sse"

    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(Launch(server="old", transport="sse", url=url, private=True)).open()
            assert text_of(await opened.call("echo", {"text": "hi"})) == "hi"
            assert len(text_of(await opened.call("big", {"bytes": 500_000}))) == 500_000, "the SDK takes 1 MiB here"
            with pytest.raises(AmbiguousError):
                await opened.call("die", {})

    try:
        run(scenario())
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("502", AmbiguousError),
        ("cut", AmbiguousError),
        ("drop", AmbiguousError),
        ("gzip", AmbiguousError),
        ("big", AmbiguousError),
        ("gone", NotSentError),
        ("413", MeahError),
        ("own", DownstreamError),
        ("session", NotSentError),
    ],
)
def test_how_a_call_failed_says_whether_it_may_have_happened(
    run: Any, tmp_path: Path, bad: Callable[[str], Launch], path: str, kind: type[MeahError]
) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            connection = pool.connection(bad(path))
            opened = await connection.open()
            assert opened.session.protocol_version == "2025-11-25"
            with pytest.raises(MeahError) as failed:
                await asyncio.wait_for(opened.call("write", {}), 20)
            assert type(failed.value) is kind, failed.value

    run(scenario())


@pytest.mark.parametrize("path", ["401", "403", "404", "500", "redirect", "html"])
def test_a_url_that_is_no_mcp_server_fails_clearly(
    run: Any, tmp_path: Path, bad: Callable[[str], Launch], path: str
) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            with pytest.raises(NotSentError) as failed:
                await pool.connection(bad(path)).open()
            assert failed.value.details["sent"] is False
            if path in ("401", "403"):
                assert failed.value.code == "E_AUTH"

    run(scenario())


def test_a_port_where_nothing_listens_fails_clearly(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            with pytest.raises(NotSentError) as failed:
                await pool.connection(web_launch("http://127.0.0.1:9/mcp")).open()
            assert failed.value.code == "E_NETWORK"

    run(scenario())


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:9/mcp",
        "https://[::1]:9/mcp",
        "https://[::ffff:127.0.0.1]:9/mcp",
        "https://0x7f000001:9/mcp",
        "https://169.254.169.254/latest",
        "http://example.com/mcp",
        "https://localhost:9/mcp",
    ],
)
def test_a_server_that_is_not_private_is_reached_at_public_addresses_only(run: Any, tmp_path: Path, url: str) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            with pytest.raises(NotSentError) as refused:
                await pool.connection(Launch(server="x", transport="http", url=url)).open()
            assert refused.value.reason == "private_address"

    run(scenario())
