"""One worker: its workspace, what is stored of its answer, and that its row is written whatever happens."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from itertools import pairwise
from typing import Any

import pytest
from django.utils import timezone

from audit.dbthread import in_db
from audit.models import Entry
from core.errors import MeahError
from core.redaction import StreamRedactor
from core.secrets import name_secrets
from tests.conftest import Home
from tests.fake_provider import FakeProvider, chat, json_reply, stream_reply, usage
from tests.rows import make_worker
from workers import run as run_module
from workers import services
from workers.models import Provider, ProviderModel, Worker, WorkerSettings
from workers.providers.base import Completion, ProviderFailure
from workers.run import WorkerRun
from workers.terminal import probes, sandbox

pytestmark = pytest.mark.usefixtures("home")

VALUE = "correct-horse-battery-staple"


def running(task: str = "Look.", **values: Any) -> Worker:
    values = {"state": "running", "owner": "p_mine", "model": "mock-1", "started_at": timezone.now()} | values
    worker = make_worker(task=task, **values)
    worker.refresh_from_db()
    return worker


def done(run: Any, worker: Worker, *, cancel_after_s: float | None = None, budget_s: float = 30) -> Worker:
    async def main() -> None:
        work = WorkerRun(worker, time.monotonic() + budget_s)
        if cancel_after_s is not None:
            await asyncio.sleep(cancel_after_s)
            work.cancel()
            work.cancel()
        await work.task

    run(main())
    worker.refresh_from_db()
    return worker


def settings(**values: Any) -> None:
    WorkerSettings.objects.update_or_create(pk=1, defaults=values)


@pytest.fixture
def fake() -> Any:
    with FakeProvider() as fake:
        Provider.objects.create(name="fake", base_url=fake.base_url, model="fake-model")
        yield fake


@pytest.mark.parametrize(
    ("profile", "files"),
    [
        ("none", None),
        ("read-only", ["context/a.txt", "context/context-2.txt"]),
        ("workspace-write", ["context/a.txt", "context/context-2.txt", "result.md"]),
    ],
)
def test_a_profile_says_what_is_in_the_workspace(home: Home, run: Any, profile: str, files: list[str] | None) -> None:
    context = [{"name": "a.txt", "content": "A"}, {"name": "", "content": "B"}]
    worker = done(run, running("[mock text=The answer]", permission_profile=profile, context=context))
    path = home.path / "workspaces" / worker.public_id
    assert worker.state == "succeeded" and worker.workspace == (worker.public_id if files else "")
    if files is None:
        assert not path.exists()
        return
    assert sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()) == files
    assert (path / "context/context-2.txt").read_text() == "B"
    if "result.md" in files:
        assert (path / "result.md").read_text() == "The answer"


def test_a_workspace_goes_at_the_end_where_the_settings_say_so(home: Home, run: Any) -> None:
    settings(cleanup_workspace_on_finish=True)
    worker = done(run, running())
    assert worker.workspace == "" and not (home.path / "workspaces" / worker.public_id).exists()


def test_a_result_is_redacted_and_then_cut(run: Any, fake: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEAH_TEST_RUN_KEY", VALUE)
    name_secrets(["MEAH_TEST_RUN_KEY"])
    settings(max_result_chars=120)
    fake.reply(chat("x" * 110 + VALUE + "y" * 200))
    worker = done(run, running(provider="fake", model="fake-model"))
    assert worker.state == "succeeded" and worker.result_truncated
    assert len(worker.result) == 120 and "correct" not in worker.result
    assert worker.result.endswith("[redacted:")


def test_an_answer_that_was_cut_at_its_limit_says_so(run: Any, fake: FakeProvider) -> None:
    fake.reply(chat("half of", finish="length"))
    worker = done(run, running(provider="fake", model="fake-model"))
    assert (worker.state, worker.result, worker.result_truncated) == ("succeeded", "half of", True)
    assert worker.finish_reason == "length"


def test_usage_price_and_model_are_stored(run: Any, fake: FakeProvider) -> None:
    ProviderModel.objects.create(
        provider=Provider.objects.get(), name="fake-model", input_price="2", output_price="8", currency="USD"
    )
    fake.reply(chat("Yes.", usage=usage(sent=1_000, said=500)))
    worker = done(run, running(provider="fake", model="fake-model"))
    assert (worker.input_tokens, worker.output_tokens, str(worker.cost.normalize())) == (1_000, 500, "0.006")
    assert (worker.currency, worker.resolved_model, worker.attempts) == ("USD", "fake-model", 1)


def test_a_stream_that_breaks_keeps_the_part_that_came(run: Any, fake: FakeProvider) -> None:
    from tests.fake_provider import Cut, chunk

    settings(max_retries=0)
    fake.reply(stream_reply(chunk("The first half"), Cut()))
    worker = done(run, running(provider="fake", model="fake-model"))
    assert worker.state == "failed" and worker.result == "The first half" and worker.result_truncated
    assert worker.error["code"] in ("E_NETWORK", "E_MALFORMED_RESPONSE")


def test_a_budget_that_runs_out_is_timed_out(run: Any) -> None:
    worker = done(run, running("[mock wait=60000]"), budget_s=0.2)
    assert (worker.state, worker.error["code"]) == ("timed_out", "E_TIMEOUT")


def test_a_provider_that_keeps_no_deadline_is_ended_all_the_same(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        async def complete(self, *_: Any, **__: Any) -> Any:
            await asyncio.sleep(600)

        async def aclose(self) -> None:
            pass

    monkeypatch.setattr(run_module, "provider_for", lambda _: Endless())
    monkeypatch.setattr(run_module, "DEADLINE_GRACE_S", 0.2)
    assert done(run, running(), budget_s=0.2).state == "timed_out"


@pytest.mark.parametrize("after_s", [0, 0.3])
def test_a_cancelled_worker_is_cancelled_however_early(run: Any, after_s: float) -> None:
    worker = running("[mock wait=60000]")
    services.cancel_many([worker.public_id], principal="agent:test", reason="not needed")
    done(run, worker, cancel_after_s=after_s)
    assert worker.state == "cancelled" and "not needed" in worker.error["message"]


def test_a_cancel_that_comes_when_the_answer_is_there_does_not_lose_it(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = running("[mock text=Paid for]")
    finish, began, go_on = services.finish, threading.Event(), threading.Event()

    def slow(*arguments: Any) -> bool:
        began.set()
        assert go_on.wait(20)
        return finish(*arguments)

    async def main() -> None:
        work = WorkerRun(worker, time.monotonic() + 30)
        await asyncio.to_thread(began.wait, 20)
        work.cancel()
        go_on.set()
        await work.task

    monkeypatch.setattr(services, "finish", slow)
    run(main())
    worker.refresh_from_db()
    assert (worker.state, worker.result) == ("succeeded", "Paid for")


def test_an_end_that_can_not_be_written_is_tried_again(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    finish, tries = services.finish, []

    def stubborn(*arguments: Any) -> bool:
        tries.append(1)
        if len(tries) < 3:
            raise MeahError("E_AUDIT")
        return finish(*arguments)

    monkeypatch.setattr(services, "finish", stubborn)
    monkeypatch.setattr(run_module, "WRITE_AGAIN_AFTER_S", (0.01, 0.01, 0.01))
    assert done(run, running()).state == "succeeded" and len(tries) == 3


def test_a_failure_inside_ends_the_worker_and_tells_nothing(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(run_module, "provider_for", broken)
    worker = done(run, running())
    assert worker.state == "failed" and worker.error["code"] == "E_UNAVAILABLE"
    assert "secret" not in json.dumps(worker.error)


def test_a_provider_that_is_gone_is_an_error_of_configuration(run: Any) -> None:
    worker = done(run, running(provider="gone", model="m"))
    assert worker.state == "failed" and worker.error["code"] == "E_CONFIG" and "gone" in worker.error["message"]


def test_an_answer_that_can_not_be_written_to_its_file_is_not_lost(
    home: Home, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise MeahError("E_UNAVAILABLE", "The disk is full.")

    worker = running("[mock text=Paid for]", permission_profile="workspace-write")
    monkeypatch.setattr("workers.run.Workspace.write", full)
    done(run, worker)
    assert (worker.state, worker.result) == ("failed", "Paid for") and "disk is full" in worker.error["message"]


@pytest.mark.parametrize("kept", [False, True])
def test_transcripts_are_kept_only_where_they_are_wanted(run: Any, kept: bool) -> None:
    settings(retain_transcripts=kept)
    good, bad = done(run, running("[mock text=Yes]")), done(run, running("[mock fail=E_AUTH]"))
    assert (good.transcript is not None, bad.transcript is not None) == (kept, kept)
    if kept:
        assert good.transcript["answer"] == "Yes" and good.transcript["messages"][1]["role"] == "user"


def test_what_the_model_taught_is_remembered_for_the_next(run: Any, fake: FakeProvider) -> None:
    refusal = {
        "error": {
            "message": "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            "type": "invalid_request_error",
            "param": "max_tokens",
            "code": "unsupported_parameter",
        }
    }
    fake.reply(json_reply(refusal, status=400), chat("Yes."))
    assert done(run, running(provider="fake", model="fake-model")).state == "succeeded"
    assert services.learned_adaptations("fake", "fake-model")[0].field == "max_tokens"
    before = len(fake.requests)
    assert done(run, running(provider="fake", model="fake-model")).attempts == 1
    assert "max_completion_tokens" in fake.requests[before].json


def test_a_lesson_is_kept_of_a_failure_too(run: Any, fake: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    from workers.providers.base import Adaptation

    lesson = Adaptation("temperature", "drop", None, "not supported")

    class Teacher:
        async def complete(self, *_: Any, **__: Any) -> Any:
            failure = ProviderFailure("E_PROVIDER")
            failure.adaptations_learned = [lesson]
            raise failure

        async def aclose(self) -> None:
            pass

    monkeypatch.setattr(run_module, "provider_for", lambda _: Teacher())
    assert done(run, running(provider="fake", model="fake-model")).state == "failed"
    assert services.learned_adaptations("fake", "fake-model") == [lesson]


def test_people_see_the_text_grow_and_no_key_in_it(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "PARTIAL_EVERY_S", 0.05)
    monkeypatch.setenv("MEAH_TEST_RUN_KEY", VALUE)
    name_secrets(["MEAH_TEST_RUN_KEY"])
    worker = running(f"[mock every=150 text={'one two three ' * 4}{VALUE} {'four five six ' * 4}]")
    seen: list[str] = []

    async def main() -> None:
        work = WorkerRun(worker, time.monotonic() + 30)
        while not work.task.done():
            seen.append(await in_db(lambda: services.get(worker.public_id).partial))
            await asyncio.sleep(0.05)

    run(main())
    grown = sorted(set(seen), key=len)
    assert len(grown) > 3 and all(longer.startswith(shorter) for shorter, longer in pairwise(grown))
    assert not any("correct-horse" in text for text in seen)
    worker.refresh_from_db()
    assert worker.partial == "" and "[redacted:" in worker.result


class Scripted:
    """A provider that does what the test says, in this process and without a network."""

    def __init__(self, answer: Any) -> None:
        self.complete = answer

    async def aclose(self) -> None:
        pass


def scripted(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(run_module, "provider_for", lambda _: Scripted(answer))


CODE = "The quick brown fox. def f(x): return token = 1\n"


@pytest.mark.parametrize("fails", [False, True])
def test_a_very_long_answer_holds_up_nobody_else(
    home: Home, run: Any, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    text = CODE * (4_000_000 // len(CODE))

    async def talkative(*_: Any, on_text: Any, **__: Any) -> Completion:
        on_text(text)
        await asyncio.sleep(0.2)
        if fails:
            raise ProviderFailure("E_NETWORK", partial_text=text)
        return Completion(text=text)

    async def main() -> float:
        work = WorkerRun(worker, time.monotonic() + 60)
        longest, before = 0.0, time.monotonic()
        while not work.task.done():
            await asyncio.sleep(0.01)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
        return longest

    settings(retain_transcripts=True)
    monkeypatch.setattr(run_module, "PARTIAL_EVERY_S", 0.05)
    scripted(monkeypatch, talkative)
    worker = running(permission_profile="workspace-write")
    assert run(main()) < 0.5
    worker.refresh_from_db()
    assert worker.result == text[:100_000] and worker.result_truncated
    assert worker.transcript["answer"] == worker.result
    if not fails:
        assert (home.path / "workspaces" / worker.public_id / "result.md").read_text() == worker.result


@pytest.mark.parametrize(("cancel_after_s", "state"), [(1.0, "cancelled"), (None, "timed_out")])
def test_redacting_an_answer_can_be_ended(
    run: Any, monkeypatch: pytest.MonkeyPatch, cancel_after_s: float | None, state: str
) -> None:
    async def talkative(*_: Any, **__: Any) -> Completion:
        return Completion(text=CODE * 2_000)

    class Slow(StreamRedactor):
        def feed(self, text: str) -> str:
            time.sleep(1)
            return super().feed(text)

    scripted(monkeypatch, talkative)
    monkeypatch.setattr(run_module, "StreamRedactor", Slow)
    monkeypatch.setattr(run_module, "DEADLINE_GRACE_S", 0.2)
    worker = done(run, running(), cancel_after_s=cancel_after_s, budget_s=30 if cancel_after_s else 1)
    assert worker.state == state


def test_an_answer_with_a_nul_is_stored(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(*_: Any, **__: Any) -> Completion:
        return Completion(text="a\0b")

    scripted(monkeypatch, answer)
    assert done(run, running()).result == "a\ufffdb"


def test_the_growing_text_begins_anew_with_a_new_attempt_and_stays_small(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def twice(*_: Any, on_text: Any, **__: Any) -> Completion:
        for piece in ("first attempt", "", "second", "\N{GRINNING FACE} " * 500_000, " the end. "):
            on_text(piece)
            await asyncio.sleep(0.4)
            seen.append(await in_db(lambda: services.get(worker.public_id).partial))
        return Completion(text="Yes.")

    monkeypatch.setattr(run_module, "PARTIAL_EVERY_S", 0.05)
    scripted(monkeypatch, twice)
    worker = running()
    done(run, worker)
    assert seen[0].startswith("first") and seen[1] == "" and "first" not in seen[2]
    assert 1_000 < len(seen[3].encode()) <= services.MAX_PARTIAL_BYTES
    assert 1_000 < len(seen[4].encode()) <= services.MAX_PARTIAL_BYTES


def test_after_a_flood_half_a_key_is_not_shown(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEAH_TEST_RUN_KEY", VALUE)
    name_secrets(["MEAH_TEST_RUN_KEY"])
    flood = VALUE + "." * (run_module.MAX_NEW_BYTES - 8) + "\n"

    async def main() -> str:
        partial = run_module.Partial("w_" + "0" * 20)
        partial.add(flood)
        partial.close()
        await partial._take()
        return partial._text

    shown = run(main())
    assert len(shown) > 1_000 and "staple" not in shown


def test_an_accepted_context_is_sent_whole_though_the_limit_was_lowered(run: Any) -> None:
    settings(max_context_chars=100)
    worker = running("[mock text=Yes] " + "x" * 300, context=[{"name": "a.txt", "content": "y" * 500}])
    assert done(run, worker).state == "succeeded"
    assert not worker.context_truncated and worker.dropped_context == []


def test_what_was_really_left_out_is_said_at_the_end(run: Any) -> None:
    context = [{"name": "a.txt", "content": "y" * 5_000}]
    worker = running("[mock text=Yes] " + "x" * 300, context=context, context_truncated=True)
    settings(max_context_chars=100)
    done(run, worker)
    assert worker.state == "succeeded" and worker.context_truncated and worker.dropped_context == ["a.txt"]
    told = finished_entry(worker)
    assert (told["contextTruncated"], told["contextDropped"]) == (True, 1)
    again = running("[mock text=Yes]", context=context, context_truncated=True, dropped_context=["a.txt"])
    settings(max_context_chars=60_000)
    done(run, again)
    assert not again.context_truncated and again.dropped_context == []
    assert finished_entry(again)["contextTruncated"] is False


@pytest.mark.parametrize("cleaned", [False, True])
def test_the_chain_says_whether_the_workspace_was_removed(run: Any, cleaned: bool) -> None:
    settings(cleanup_workspace_on_finish=cleaned)
    assert finished_entry(done(run, running()))["workspaceRemoved"] is cleaned


def finished_entry(worker: Worker) -> dict[str, Any]:
    entry = Entry.objects.get(kind="worker.finished", subject=worker.public_id)
    told: dict[str, Any] = json.loads(bytes(entry.payload))["data"]
    return told


# -- commands -------------------------------------------------------------------------------------------------------


def commands_allowed(monkeypatch: pytest.MonkeyPatch, why: str, *, without: bool) -> None:
    """`why`: what the self-test finds."""

    async def found() -> tuple[str, bool]:
        return why, True

    monkeypatch.setattr(probes, "tested", found)
    monkeypatch.setattr(sandbox, "missing", lambda: why)
    monkeypatch.setenv(sandbox.UNSANDBOXED, "true" if without else "")
    settings(terminal_enabled=True, terminal_allowlist=["/bin/ls", "/usr/bin/env"])


def kinds_of(worker: Worker) -> list[str]:
    return list(Entry.objects.filter(subject=worker.public_id).order_by("seq").values_list("kind", flat=True))


def test_without_a_sandbox_nothing_is_started(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commands_allowed(monkeypatch, "the sandbox lets through: UDP", without=False)
    worker = done(run, running(permission_profile="workspace-exec", commands=[["/bin/ls"]]))
    assert worker.state == "failed" and worker.error["code"] == "E_SANDBOX_UNAVAILABLE"
    assert "UDP" in worker.error["message"] and worker.command_results == []
    assert "worker.commands_started" not in kinds_of(worker)
    tested = json.loads(bytes(Entry.objects.get(kind="sandbox.tested").payload))["data"]
    assert tested == {"holds": False, "why": "the sandbox lets through: UDP", "unsandboxedAllowed": False}


def test_where_the_operator_says_so_commands_run_without_and_everything_says_so(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands_allowed(monkeypatch, "bubblewrap (bwrap) is not installed", without=True)
    monkeypatch.setenv("A_KEY_OF_MEAH", VALUE)
    worker = done(run, running(permission_profile="workspace-exec", commands=[["/usr/bin/env"]]))
    assert worker.state == "succeeded"
    assert [ran["sandboxed"] for ran in worker.command_results] == [False]
    entries = [
        json.loads(bytes(entry.payload))["data"]
        for entry in Entry.objects.filter(kind__in=["sandbox.tested", "worker.commands_started"]).order_by("seq")
    ]
    assert [entry.get("unsandboxedAllowed") for entry in entries] == [True, None]
    assert entries[1] == {"commands": ["/usr/bin/env"], "sandboxed": False}


def test_what_is_no_longer_allowed_when_it_runs_is_not_run(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commands_allowed(monkeypatch, "", without=False)
    settings(terminal_allowlist=["/usr/bin/env"])
    worker = done(run, running(permission_profile="workspace-exec", commands=[["/bin/ls"]]))
    assert worker.state == "failed" and worker.error["code"] == "E_PERMISSION"
    assert "worker.commands_started" not in kinds_of(worker)
