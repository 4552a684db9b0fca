"""The gate table: every door with every verdict, and nothing gets past any of them.

A door is a row of `DOORS`: a coroutine that takes a write through it and says how that was answered. A later door is
one more row.
"""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from approvals import executor, governor, services, targets
from approvals.models import Approval, Call, CallState, Rule
from approvals.targets import CallContext, CallRequest
from approvals.tool import AsItWas
from audit.dbthread import in_db
from audit.models import Entry
from audit.services import verify
from core.errors import JsonObject, MeahError
from gateway import method_runs, methods
from gateway.catalog import DirectTool
from gateway.runner import Runner
from gateway.tools import LazyTools
from meah_site.proxied import Proxied
from meah_site.proxied import call as call_proxied
from tests.approvals.targets import SCHEMA, CountingTarget
from tests.conftest import Home
from tests.gateway.methods import manifest, reviewer
from workers.models import Worker
from workers.pool import Pool
from workers.tools import WorkerTools

ROOT = Path(__file__).resolve().parent.parent.parent
AGENT = "agent:claude"
VERDICTS = ("allow", "require_approval", "deny")


class Caller:
    principal = AGENT
    owner = "p_mine"
    role = "agent"
    user_id = None
    run = ""
    step = ""

    async def progress(self, message: str) -> None: ...

    def cancelled_on_purpose(self) -> bool:
        return True

    async def pass_progress(self, progress: float, total: float | None, message: str | None) -> None: ...


@dataclass(frozen=True)
class Door:
    """`go` answers with a status or an error's code; `effects` counts what has happened behind the gate."""

    name: str
    go: Callable[[JsonObject], Awaitable[str]]
    server: str
    tool: str
    good: JsonObject
    bad: JsonObject
    allowed: str = "done"
    entries: tuple[str, ...] = ("call.sent", "call.done")


def _request(arguments: JsonObject, **more: Any) -> CallRequest:
    return CallRequest(AGENT, "box", "put", arguments, "mcp", owner="p_mine", **more)


async def through_the_gate(arguments: JsonObject) -> str:
    return (await governor.submit(_request(arguments))).status


async def with_a_step(arguments: JsonObject) -> str:
    """The call and its retry: the second must not add an effect, whatever became of the first."""
    first = await _answer(governor.submit(_request(arguments, run="r", step="s")))
    again = await _answer(governor.submit(_request(arguments, run="r", step="s")))
    assert again == first
    return first


async def twice_without_a_step(arguments: JsonObject) -> str:
    """A held call and its twin are one request."""
    first = await _answer(governor.submit(_request(arguments)))
    if first == "pending_approval":
        assert await _answer(governor.submit(_request(arguments))) == first
        assert await in_db(Approval.objects.count) == 1
    return first


async def _answer(submitted: Awaitable[Any]) -> str:
    try:
        return str((await submitted).status)
    except MeahError as error:
        return error.code


async def as_a_direct_tool(arguments: JsonObject) -> str:
    definition = {"name": "put", "inputSchema": SCHEMA}
    tool = Proxied(DirectTool("box__put", "box", "put", definition, "write", "pin-1"), "allow")
    answer = await call_proxied(tool, arguments, Caller(), CallContext())
    structured = answer.get("structuredContent")
    if structured is None:
        return "done"
    return str(structured["data"]["status"] if structured["ok"] else structured["error"]["code"])


async def as_a_lazy_tool(arguments: JsonObject) -> str:
    wanted = {"server": "box", "tool": "put", "args": arguments}
    answer = await LazyTools(Runner("p_mine")).call(wanted, Caller())
    return "done" if isinstance(answer, AsItWas) else str(answer["status"])


async def as_a_step_of_a_method(arguments: JsonObject) -> str:
    await in_db(_reviewed_method)
    runner = Runner("p_mine", allow_writes=True)
    try:
        public_id = await runner.start("ritual", "", arguments, principal=AGENT)
        await runner.wait(public_id, 20)
    finally:
        await runner.stop()
    ended = await in_db(method_runs.find, public_id)
    if ended.error is not None:
        return str(ended.error["code"])
    return "done" if ended.state == "completed" else str(ended.state)


def _reviewed_method() -> None:
    step = {"id": "put", "server": "box", "tool": "put", "args": {"id": "${input.id}"}}
    version = methods.add(
        methods.preview(json.dumps(manifest(step, effects="write", inputSchema=SCHEMA))), principal="system"
    )
    methods.review(version, user=reviewer(), digest=version.digest)


async def at_a_sync_door(arguments: JsonObject) -> str:
    """The admin and commands: decided at once, done by an executor."""
    outcome = await in_db(governor.decide_now, _request(arguments))
    if outcome.status != "approved":
        return outcome.status
    await _run_executor()
    return str(await in_db(lambda: Call.objects.get(public_id=outcome.call_id).state))


async def after_an_approval(arguments: JsonObject) -> str:
    """Held, approved by a person, run by the executor; the verdict of the table is in force at that moment."""
    allowing = await in_db(_hold_first)
    outcome = await governor.submit(_request(arguments))
    assert outcome.approval is not None
    await in_db(_approve, outcome.approval["approvalId"])
    await in_db(_put_back, allowing)
    await _run_executor()
    return str(await in_db(lambda: Call.objects.get().state))


def _hold_first() -> list[dict[str, Any]]:
    saved = list(Rule.objects.filter(server="box").values())
    Rule.objects.filter(server="box").delete()
    return saved


def _put_back(saved: list[dict[str, Any]]) -> None:
    for row in saved:
        Rule.objects.create(**row)


def _approve(approval_id: str) -> None:
    user = get_user_model().objects.create_user("alice", password="x")
    user.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    services.approve(services.get(approval_id), user=user, note="fine", door="admin")


async def _run_executor() -> None:
    running = executor.Executor("p_mine")
    await running.look()
    if running._tasks:
        await asyncio.wait(running._tasks, timeout=20)


async def as_a_worker_tool(arguments: JsonObject) -> str:
    pool = Pool("p_mine")
    try:
        started = await WorkerTools(pool).run(arguments, Caller())
    finally:
        await pool.stop("the test is over")
    return str(started.get("status") or "done")


BOX = {"server": "box", "tool": "put", "good": {"id": "a"}, "bad": {"id": 5}}
DOORS = [
    Door("gate", through_the_gate, **BOX),
    Door("retry with a step", with_a_step, **BOX),
    Door("twin without a step", twice_without_a_step, **BOX),
    Door("direct tool", as_a_direct_tool, **BOX),
    Door("lazy tool", as_a_lazy_tool, **BOX),
    Door("step of a Method", as_a_step_of_a_method, **BOX),
    Door("sync door", at_a_sync_door, **BOX),
    Door(
        "worker tool",
        as_a_worker_tool,
        server="meah",
        tool="meah_run_agent",
        good={"task": "[mock text=ok]"},
        bad={"task": ""},
        entries=("worker.queued",),
    ),
]
doors = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)


@pytest.fixture
def box(home: Home) -> Iterator[CountingTarget]:
    target = CountingTarget()
    targets.register(target)
    Rule.objects.filter(server="meah").delete()
    yield target
    del targets._targets[target.server]


def rule(door: Door, effect: str) -> Rule:
    return Rule.objects.create(name="table", effect=effect, server=door.server, tool=door.tool)


def effects(door: Door, box: CountingTarget) -> int:
    return Worker.objects.count() if door.server == "meah" else len(box.effects)


def kinds() -> list[str]:
    return [
        entry.kind
        for entry in Entry.objects.order_by("seq")
        if entry.kind.startswith(("call.", "worker.queued", "approval."))
    ]


def answered(run: Any, door: Door, arguments: JsonObject) -> str:
    async def go() -> str:
        try:
            return await door.go(arguments)
        except MeahError as error:
            return error.code

    return str(run(go()))


@doors
def test_allowed_it_is_done_once_and_recorded(door: Door, box: CountingTarget, run: Any) -> None:
    rule(door, "allow")
    assert answered(run, door, door.good) == door.allowed
    assert effects(door, box) == 1
    assert [kind for kind in kinds() if kind in door.entries] == list(door.entries)
    assert verify().whole


@doors
def test_held_it_does_nothing_until_a_person_decides(door: Door, box: CountingTarget, run: Any) -> None:
    rule(door, "require_approval")
    assert answered(run, door, door.good) == "pending_approval"
    assert effects(door, box) == 0
    assert kinds() == ["call.held"]
    assert Call.objects.get().state == CallState.HELD and Approval.objects.count() == 1


@doors
def test_denied_it_does_nothing_and_leaves_only_its_entry(door: Door, box: CountingTarget, run: Any) -> None:
    rule(door, "deny")
    assert answered(run, door, door.good) == "E_DENIED"
    assert effects(door, box) == 0
    assert set(kinds()) == {"call.denied"}
    assert not Call.objects.exists() and not Approval.objects.exists()


@doors
@pytest.mark.parametrize("effect", VERDICTS)
def test_while_everything_is_halted_no_verdict_lets_it_through(
    door: Door, effect: str, box: CountingTarget, run: Any
) -> None:
    rule(door, effect)
    services.halt(principal="user:boss", reason="enough")
    assert answered(run, door, door.good) == "E_DENIED"
    assert effects(door, box) == 0 and not Call.objects.exists()


@doors
@pytest.mark.parametrize("effect", VERDICTS)
def test_bad_arguments_reach_nobody(door: Door, effect: str, box: CountingTarget, run: Any) -> None:
    rule(door, effect)
    assert answered(run, door, door.bad) == "E_INVALID_REQUEST"
    assert effects(door, box) == 0 and not Call.objects.exists() and not Approval.objects.exists()


@doors
@pytest.mark.parametrize("effect", VERDICTS)
def test_without_its_entry_nothing_happens(
    door: Door, effect: str, box: CountingTarget, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(door, effect)

    def fails(*_: object) -> None:
        raise MeahError("E_AUDIT")

    monkeypatch.setattr(governor, "record_many", fails)
    monkeypatch.setattr(executor, "record_many", fails)
    # A sync door has only decided: its call waits, unsent, for an executor that can record it.
    assert answered(run, door, door.good) in ("E_AUDIT", "held")
    assert effects(door, box) == 0 and not Approval.objects.exists()
    assert not Call.objects.exclude(state=CallState.HELD, needs_approval=False).exists()


# -- an approved execution: judged again ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "state", "count"), [("allow", "done", 1), ("require_approval", "done", 1), ("deny", "cancelled", 0)]
)
def test_an_approved_call_is_judged_again_when_it_runs(
    effect: str, state: str, count: int, box: CountingTarget, run: Any
) -> None:
    Rule.objects.create(name="table", effect=effect, server="box", tool="put")
    assert run(after_an_approval({"id": "a"})) == state
    assert len(box.effects) == count
    assert Approval.objects.get().state == ("approved" if count else "void")
    assert verify().whole


def test_a_held_worker_starts_once_it_is_approved(box: CountingTarget, run: Any) -> None:
    door = next(door for door in DOORS if door.server == "meah")
    rule(door, "require_approval")

    async def main() -> None:
        assert await door.go(door.good) == "pending_approval"
        assert await in_db(Worker.objects.count) == 0
        await in_db(_approve, (await in_db(Approval.objects.get)).public_id)
        await _run_executor()

    run(main())
    worker = Worker.objects.get()
    assert (worker.state, worker.owner, worker.principal) == ("queued", "p_mine", AGENT)
    assert Call.objects.get().state == CallState.DONE and "approval.decided" in kinds()
    assert services.get(Approval.objects.get().public_id).call.result, "the stored result is the queued worker"


# -- and there is no other way --------------------------------------------------------------------------------------


def test_only_the_gate_runs_and_applies_targets() -> None:
    """`target.run(…)` and `target.apply(…)` are called by the governor alone, and `read_back` by verification."""
    found = set()
    for app in ("approvals", "gateway", "workers", "meah_site"):
        for path in (ROOT / app).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if _runs_a_target(node):
                    found.add(path.relative_to(ROOT).as_posix())
    assert found == {"approvals/governor.py", "approvals/verification.py"}


def _runs_a_target(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = node.func.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return node.func.attr in ("run", "apply") and name == "target"
