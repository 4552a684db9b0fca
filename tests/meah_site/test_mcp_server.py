"""The MCP server's own part: who calls, why a request was taken back, and that no exception's text reaches a client."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from approvals.tool import Caller, Tool
from core.errors import JsonObject, MeahError
from meah_site.mcp_server import (
    AGENT,
    APPROVER,
    MAX_REASONS,
    WORKERS,
    Cancellations,
    ClientCaller,
    Identity,
    MeahServer,
)


def context(
    name: str | None = "claude", request_id: Any = 1, told: list[Any] | None = None, meta: JsonObject | None = None
) -> Any:
    async def report_progress(*beat: Any) -> None:
        assert told is not None
        told.append(beat)

    params = None if name is None else SimpleNamespace(client_info=SimpleNamespace(name=name))
    session = SimpleNamespace(client_params=params, report_progress=report_progress)
    return SimpleNamespace(session=session, request_id=request_id, meta=meta, protocol_version="2025-11-25")


def caller(of: Any = None, cancellations: Cancellations | None = None) -> ClientCaller:
    return ClientCaller(of or context(), "p_mine", Identity(), cancellations or Cancellations())


def cancelled(request_id: Any, reason: Any = None) -> JsonObject:
    params = {"requestId": request_id} | ({} if reason is None else {"reason": reason})
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


@pytest.mark.parametrize(
    ("reason", "purpose"),
    [
        ("timed out after 5.0s", False),  # the Python SDK
        ("McpError: MCP error -32001: Request timed out", False),  # the TypeScript SDK
        ("McpError: MCP error -32001: Maximum total timeout exceeded", False),
        ("TimeoutError: The operation was aborted due to timeout", False),  # AbortSignal.timeout()
        ("Request Timed-Out", False),
        ("caller cancelled", True),  # the Python SDK
        ("AbortError: This operation was aborted", True),
        ("User pressed Esc", True),
        ("", True),
        (None, True),
        (17, True),
    ],
)
def test_a_clients_own_clock_is_told_from_its_will(reason: Any, purpose: bool) -> None:
    cancellations = Cancellations()
    cancellations.note({"jsonrpc": "2.0", "id": 1, "method": "tools/call"})
    cancellations.note(cancelled(1, reason))
    assert caller(cancellations=cancellations).cancelled_on_purpose() is purpose


def test_what_was_not_taken_back_was_not_cancelled_on_purpose() -> None:
    cancellations = Cancellations()
    for message in (
        cancelled(2),
        cancelled(None),
        cancelled([1]),
        {"method": "notifications/cancelled"},
        [],
        "x",
        None,
    ):
        cancellations.note(message)
    assert not caller(cancellations=cancellations).cancelled_on_purpose()


def test_a_number_that_came_as_text_is_the_same_request() -> None:
    cancellations = Cancellations()
    cancellations.note(cancelled("1"))
    assert caller(cancellations=cancellations).cancelled_on_purpose()


def test_an_id_that_is_used_again_begins_anew() -> None:
    cancellations = Cancellations()
    cancellations.note(cancelled(1))
    cancellations.note({"jsonrpc": "2.0", "id": 1, "method": "tools/call"})
    assert not caller(cancellations=cancellations).cancelled_on_purpose()


def test_reasons_of_nothing_do_not_pile_up() -> None:
    cancellations = Cancellations()
    for number in range(10 * MAX_REASONS):
        cancellations.note(cancelled(number, "x" * 100))
    assert len(cancellations._reasons) == MAX_REASONS
    assert cancellations.reason(10 * MAX_REASONS - 1) is not None and cancellations.reason(0) is None


@pytest.mark.parametrize(
    ("variable", "name", "principal"),
    [
        ("", "claude-code", "agent:claude-code"),
        ("", None, "agent:unknown"),
        ("", "", "agent:unknown"),
        ("desk", "claude-code", "agent:desk"),
        ("  ", "claude-code", "agent:claude-code"),
        ("", "evil\u202ename\n", "agent:evil⟨U+202E⟩name"),
    ],
)
def test_who_calls_is_named_by_the_operator_or_by_the_clients_own_word(
    monkeypatch: pytest.MonkeyPatch, variable: str, name: str | None, principal: str
) -> None:
    monkeypatch.setenv("MEAH_AGENT", variable)
    assert caller(context(name)).principal == principal


def test_a_name_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEAH_AGENT", "x" * 10_000)
    assert len(caller().principal) <= 110


def test_progress_only_grows(run: Any) -> None:
    told: list[Any] = []

    async def main() -> None:
        one = caller(context(told=told))
        for _ in range(3):
            await one.progress("w_1: running")

    run(main())
    assert [beat[0] for beat in told] == [1, 2, 3] and told[0][2] == "w_1: running"


@pytest.mark.parametrize("role", [AGENT, APPROVER])
def test_the_instructions_fit_every_client(role: str) -> None:
    assert (WORKERS + role).isascii() and len(WORKERS + role) < 1_500


def test_a_step_comes_with_the_request_and_a_token_names_the_principal() -> None:
    stepped = caller(context(meta={"meah/run": "r1", "meah/step": "s1"}))
    assert (stepped.run, stepped.step) == ("r1", "s1")
    known = ClientCaller(context(), "p_mine", Identity("approver", "token:ann", 7), Cancellations())
    assert (known.principal, known.user_id, known.role) == ("token:ann", 7, "approver")


@pytest.mark.parametrize("step", [5, "x" * 256, ["s"]])
def test_a_step_that_is_no_short_text_is_refused(step: Any) -> None:
    from mcp.shared.exceptions import MCPError

    with pytest.raises(MCPError, match="meah/step"):
        caller(context(meta={"meah/step": step}))


async def _leak(arguments: JsonObject, caller: Caller) -> JsonObject:
    raise RuntimeError("postgres://user:hunter2@host")


async def _refuse(arguments: JsonObject, caller: Caller) -> JsonObject:
    raise MeahError("E_PERMISSION", "It said sk-" + "a1B2c3D4" * 5)


async def _cancel(arguments: JsonObject, caller: Caller) -> JsonObject:
    raise asyncio.CancelledError


def server() -> MeahServer:
    made = [Tool(name, name, "x", {"type": "object"}, work) for name, work in HANDLERS.items()]
    return MeahServer(made, "p_mine", Identity(), lambda principal: None)


HANDLERS = {"leak": _leak, "refuse": _refuse, "cancel": _cancel}


def call(run: Any, name: str) -> Any:
    return run(server()._call_tool(context(), SimpleNamespace(name=name, arguments=None)))


def test_an_exception_inside_says_nothing_to_the_client(run: Any) -> None:
    answer = call(run, "leak")
    assert answer.is_error and answer.structured_content["error"]["code"] == "E_UNAVAILABLE"
    assert "hunter2" not in answer.content[0].text


@pytest.mark.usefixtures("home")
def test_an_exception_on_the_way_to_a_server_says_nothing_either(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("postgres://user:hunter2@host")

    monkeypatch.setattr("meah_site.proxied.find", fails)
    answer = call(run, "box__put")
    assert answer.is_error and answer.structured_content["error"]["code"] == "E_UNAVAILABLE"
    assert "hunter2" not in answer.content[0].text


def test_an_error_leaves_redacted(run: Any) -> None:
    answer = call(run, "refuse")
    assert answer.structured_content["error"]["code"] == "E_PERMISSION" and "a1B2" not in answer.content[0].text


def test_a_cancelled_call_has_no_answer(run: Any) -> None:
    with pytest.raises(asyncio.CancelledError):
        call(run, "cancel")


@pytest.mark.usefixtures("home")
def test_an_unknown_tool_is_an_error_of_the_protocol(run: Any) -> None:
    from mcp.shared.exceptions import MCPError

    with pytest.raises(MCPError, match="nothing"):
        call(run, "nothing")
