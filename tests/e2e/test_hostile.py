"""Frames and arguments that nobody should send: each gets one clear answer, and the server goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Home
from tests.e2e.http_server import HttpServer, Session, modern
from tests.e2e.server import LEGACY, MODERN, Server

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
KEY = "not-a-real-key-0123456789abcdef"


def frame(request_id: str, arguments: str, *, last: bool = False) -> bytes:
    """A call whose arguments are this text; its id comes first, or last."""
    named = f'"id":"{request_id}"'
    params = f'"params":{{"name":"meah_run_agent","arguments":{arguments}}}'
    rest = f'"jsonrpc":"2.0","method":"tools/call",{params}'
    return (f"{{{rest},{named}}}" if last else f"{{{named},{rest}}}").encode()


HOSTILE = {
    "a key twice": ('{"task":"a","task":"b"}', INVALID_REQUEST, "duplicate_key"),
    "NaN": ('{"task":"a","temperature":NaN}', INVALID_REQUEST, "nan"),
    "Infinity": ('{"task":"a","temperature":-Infinity}', INVALID_REQUEST, "nan"),
    "a float beyond all": ('{"task":"a","temperature":1e999}', INVALID_REQUEST, "nan"),
    "2^53+1": ('{"task":"a","timeoutMs":9007199254740993}', INVALID_REQUEST, "big_integer"),
    "an integer of 5,000 digits": ('{"task":"a","timeoutMs":' + "9" * 5_000 + "}", INVALID_REQUEST, "big_integer"),
    "a lone surrogate": ('{"task":"\\ud800"}', INVALID_REQUEST, "surrogate"),
    "65 levels": ('{"task":' + "[" * 65 + "]" * 65 + "}", INVALID_REQUEST, "depth"),
    "100,000 levels": ('{"task":' + "[" * 100_000 + "]" * 100_000 + "}", INVALID_REQUEST, "depth"),
    "100,000 levels that do not close": ('{"task":' + "[" * 100_000, INVALID_REQUEST, "depth"),
    "no JSON": ('{"task":}', PARSE_ERROR, "syntax"),
    "20 MB": ('{"task":"' + "x" * 20_000_000 + '"}', PARSE_ERROR, "size"),
    "20 MB of escapes": ('{"task":"' + "\\n" * 10_000_000 + '"}', PARSE_ERROR, "size"),
}


@pytest.mark.parametrize("last", [False, True], ids=["id first", "id last"])
@pytest.mark.parametrize(("arguments", "code", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_frame_is_refused_by_its_id_and_the_server_lives(
    server: Server, arguments: str, code: int, reason: str, last: bool
) -> None:
    if last and not arguments.endswith("}"):
        pytest.skip("what does not close has no end where an id could stand")
    request_id = f"{reason}-{last}"
    server.write(frame(request_id, arguments, last=last))
    error = server.answer(request_id)["error"]
    assert (error["code"], error["data"]["reason"]) == (code, reason)
    assert server.data("meah_list_agents", limit=1)["workers"] == []


@pytest.fixture(scope="module")
def web(shared_home: Home) -> Iterator[HttpServer]:
    with HttpServer(shared_home, "--no-auth") as running:
        yield running


ENVELOPE = '"_meta":' + json.dumps(modern("ping")[0]["params"]["_meta"])


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.parametrize(("arguments", "code", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_body_is_refused_before_the_sdk_sees_it(
    web: HttpServer, arguments: str, code: int, reason: str, era: str
) -> None:
    body = frame("h-1", arguments)
    headers = {}
    if era == MODERN:
        body = body.replace(b'"params":{', f'"params":{{{ENVELOPE},'.encode(), 1)
        headers = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "meah_run_agent"}
    answer = web.post(body, **headers)
    if reason == "size":
        assert answer.status_code == 413
    else:
        assert answer.status_code == 400
        assert (answer.json()["id"], answer.json()["error"]["code"]) == ("h-1", code)
        assert answer.json()["error"]["data"]["reason"] == reason
    assert Session(web).data("meah_list_agents", limit=1)["workers"] == []


LINES = pytest.mark.parametrize(
    "line",
    [
        b"\xef\xbb\xbf" + frame("bom", '{"task":"a"}'),
        frame("sixteen", '{"task":"a"}').decode().encode("utf-16-le"),
        frame("sixteen", '{"task":"a"}').decode().encode("utf-16"),
        b"\xff\xfe\xfd",
        b'{"jsonrpc":"2.0","id":"latin","method":"tools/call","params":{"name":"\xe9"}}',
        b"[]",
        b"17",
        b'"hello"',
        b'{"jsonrpc":"1.0","id":"old","method":"ping"}',
        b'{"jsonrpc":"2.0","id":"none"}',
        b'{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}',
        b'[{"jsonrpc":"2.0","id":"batched","method":"ping"}]',
    ],
    ids=lambda line: repr(line[:30]),
)


@LINES
@pytest.mark.parametrize("version", [{}, {"mcp_protocol_version": MODERN, "mcp_method": "ping"}], ids=["2025", "2026"])
def test_a_body_that_is_no_request_is_a_bad_request(web: HttpServer, line: bytes, version: dict[str, str]) -> None:
    answer = web.post(line, **version)
    assert answer.status_code == 400 and answer.json()["error"]["code"] < 0
    assert Session(web).request("ping") == {}


@LINES
def test_a_frame_that_is_no_request_is_answered_and_the_server_lives(server: Server, line: bytes) -> None:
    expected = next((name for name in ("bom", "latin", "old", "none") if f'"{name}"'.encode() in line), None)
    server.write(line)
    error = server.answer(expected)["error"]
    assert error["code"] in (PARSE_ERROR, INVALID_REQUEST) and error["message"] and error["data"]["reason"]
    server.request("ping")


def test_empty_lines_and_carriage_returns_are_nothing(server: Server) -> None:
    server.write(b"")
    server.write(b" \r")
    server.write(json.dumps({"jsonrpc": "2.0", "id": "cr", "method": "ping"}).encode() + b"\r")
    assert server.answer("cr")["result"] == {}


def test_a_frame_may_come_in_any_pieces(server: Server) -> None:
    assert server.process.stdin is not None
    for piece in (b'{"jsonrpc":"2.0","id"', b':"pie', b'ces","method":"ping"}', b"\n"):
        server.process.stdin.write(piece)
    assert server.answer("pieces")["result"] == {}


def task(**fields: Any) -> dict[str, Any]:
    return {"task": "Look."} | fields


# What is wrong, in the arguments of which tool, and what the error has to name.
BAD: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "unknown provider": ("meah_run_agent", task(provider="glmm"), "E_INVALID_REQUEST", "glmm"),
    "unknown model": ("meah_run_agent", task(model="gpt-9"), "E_INVALID_REQUEST", "gpt-9"),
    "unknown role": ("meah_run_agent", task(role="king"), "E_INVALID_REQUEST", "role"),
    "unknown profile": ("meah_run_agent", task(permissionProfile="root"), "E_INVALID_REQUEST", "permissionProfile"),
    "negative timeout": ("meah_run_agent", task(timeoutMs=-1), "E_INVALID_REQUEST", "timeoutMs"),
    "negative output": ("meah_run_agent", task(maxOutputTokens=-5), "E_INVALID_REQUEST", "maxOutputTokens"),
    "negative wait": ("meah_delegate_task", task(waitMs=-1), "E_INVALID_REQUEST", "waitMs"),
    "a long wait": ("meah_delegate_task", task(waitMs=600_001), "E_INVALID_REQUEST", "waitMs"),
    "hot": ("meah_run_agent", task(temperature=2.5), "E_INVALID_REQUEST", "temperature"),
    "empty task": ("meah_run_agent", {"task": ""}, "E_INVALID_REQUEST", "task"),
    "blank task": ("meah_run_agent", {"task": " \n\t"}, "E_INVALID_REQUEST", "task"),
    "no task": ("meah_run_agent", {}, "E_INVALID_REQUEST", "task"),
    "null task": ("meah_run_agent", {"task": None}, "E_INVALID_REQUEST", "task"),
    "task of a wrong type": ("meah_run_agent", {"task": ["Look."]}, "E_INVALID_REQUEST", "task"),
    "number as text": ("meah_run_agent", task(timeoutMs="1000"), "E_INVALID_REQUEST", "timeoutMs"),
    "truth as text": ("meah_run_agent", task(dryRun="true"), "E_INVALID_REQUEST", "dryRun"),
    "an unknown field": ("meah_run_agent", task(apiKey="x"), "E_INVALID_REQUEST", "apiKey"),
    "an unknown field deep inside": (
        "meah_run_agent",
        task(context=[{"content": "x", "path": "/etc/passwd"}]),
        "E_INVALID_REQUEST",
        "context.0.path",
    ),
    "context that is no text": ("meah_run_agent", task(context=[7]), "E_INVALID_REQUEST", "context.0"),
    "10 MB of context": ("meah_run_agent", task(context=["x" * 10_000_000]), "E_INVALID_REQUEST", "1,048,576"),
    "a task over the budget": ("meah_run_agent", {"task": "x" * 70_000}, "E_CONTEXT_LIMIT", "60000"),
    "control characters": ("meah_run_agent", task(label="a\x07b"), "E_INVALID_REQUEST", "label"),
    "bidi characters": ("meah_run_agent", task(label="a\u202eb"), "E_INVALID_REQUEST", "U+202E"),
    "a name that leads out": (
        "meah_run_agent",
        task(context=[{"name": "../../etc/passwd", "content": "x"}]),
        "E_PATH_ESCAPE",
        "etc/passwd",
    ),
    "one name twice": (
        "meah_run_agent",
        task(context=[{"name": "a.txt", "content": "x"}, {"name": "A.txt", "content": "y"}]),
        "E_INVALID_REQUEST",
        "A.txt",
    ),
    "commands without a profile": ("meah_run_agent", task(commands=["ls"]), "E_PERMISSION", "workspace-exec"),
    "commands with one": (
        "meah_run_agent",
        task(commands=["ls"], permissionProfile="workspace-exec"),
        "E_PERMISSION",
        "terminal.enabled",
    ),
    "a key": ("meah_run_agent", task(context=[f"the key is {KEY}"]), "E_PERMISSION", "MEAH_TEST_KEY"),
    "a key of something else in the label": (
        "meah_run_agent",
        task(label="sk-" + "a1B2c3D4" * 5),
        "E_PERMISSION",
        "label",
    ),
    "17 workers": ("meah_parallel_agents", {"workers": [task()] * 17}, "E_INVALID_REQUEST", "workers"),
    "no workers": ("meah_parallel_agents", {"workers": []}, "E_INVALID_REQUEST", "workers"),
    "one of many wrong": (
        "meah_parallel_agents",
        {"workers": [task(), task(role="king"), task()]},
        "E_INVALID_REQUEST",
        "workers.1.role",
    ),
    "a key among many": (
        "meah_parallel_agents",
        {"workers": [task(), task(task=KEY)]},
        "E_PERMISSION",
        "MEAH_TEST_KEY",
    ),
    "an id of nobody": ("meah_get_agent", {"workerId": "w_" + "0" * 20}, "E_NOT_FOUND", "w_000"),
    "no id": ("meah_get_agent", {"workerId": "42"}, "E_INVALID_REQUEST", "workerId"),
    "a negative offset": ("meah_get_agent", {"workerId": "w_" + "0" * 20, "offset": -1}, "E_INVALID_REQUEST", "offset"),
    "a state of none": ("meah_list_agents", {"state": "asleep"}, "E_INVALID_REQUEST", "state"),
    "a page of nothing": ("meah_list_agents", {"limit": 0}, "E_INVALID_REQUEST", "limit"),
    "a cursor from elsewhere": ("meah_list_agents", {"cursor": "bm90aGluZw=="}, "E_INVALID_REQUEST", "cursor"),
    "to cancel nobody": ("meah_cancel_agent", {"workerId": "w_" + "0" * 20}, "E_NOT_FOUND", "w_000"),
    "to clean up after nobody": ("meah_cleanup_workspace", {"workerId": "w_" + "0" * 20}, "E_NOT_FOUND", "w_000"),
}


@pytest.fixture(scope="module")
def keyed(shared_home: Home) -> Any:
    """A server that has a key to guard."""
    environ = {"MEAH_TEST_KEY": KEY, "MEAH_PROVIDER_FAKE_BASE_URL": "http://127.0.0.1:1/v1"}
    environ |= {"MEAH_PROVIDER_FAKE_API_KEY_ENV": "MEAH_TEST_KEY", "MEAH_PROVIDER_FAKE_MODELS": "fake-model"}
    environ |= {"MEAH_PROVIDER_FAKE_MODEL": "fake-model"}
    with Server(shared_home, environ=environ) as server:
        server.initialize()
        yield server


@pytest.mark.parametrize(("tool", "arguments", "code", "named"), BAD.values(), ids=BAD)
def test_bad_input_is_one_clear_error_and_leaves_nothing_behind(
    keyed: Server, tool: str, arguments: dict[str, Any], code: str, named: str
) -> None:
    error = keyed.error(tool, **arguments)
    assert error["code"] == code and error["hint"] and error["retryable"] is False
    assert named in error["message"] + error["hint"]
    assert KEY not in json.dumps(error) and "Traceback" not in json.dumps(error)
    assert keyed.data("meah_list_agents", limit=1)["workers"] == []


def test_null_is_as_good_as_left_out_where_a_field_is_optional(server: Server) -> None:
    optional = ("role", "provider", "model", "context", "constraints", "expectedOutput", "timeoutMs", "maxOutputTokens")
    optional += ("temperature", "permissionProfile", "commands", "label")
    shown = server.data("meah_run_agent", task="Look.", dryRun=True, **dict.fromkeys(optional))
    assert shown == server.data("meah_run_agent", task="Look.", dryRun=True)
    assert server.data("meah_list_agents", state=None, limit=None, cursor=None)["workers"] == []


def test_key_shaped_text_in_the_material_is_replaced_and_counted(server: Server) -> None:
    shaped = "sk-" + "a1B2c3D4" * 5
    shown = server.data("meah_run_agent", task=f"Why is {shaped} refused?", context=[shaped], dryRun=True)
    assert shown["redactions"] == 2
    assert shaped not in json.dumps(shown)
