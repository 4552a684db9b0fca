"""The engine of a process: it joins, hears the bell, sweeps, sees a newer schema, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.db import connection, transaction

from approvals.models import Process
from approvals.processes import living
from audit.dbthread import in_db
from audit.services import record_many
from core.bell import ring, socket_path
from core.errors import MeahError
from meah_site import engine as engine_module
from meah_site.engine import Chore, Engine
from tests.conftest import Home
from tests.rows import make_call, make_worker
from workers import services
from workers.models import Worker
from workers.preparation import prepare
from workers.routing import Config
from workers.schemas import TaskIn

pytestmark = pytest.mark.usefixtures("home")

PATIENCE_S = 30.0


def with_engine(run: Any, test: Callable[[Engine], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = Engine(Process.Kind.CONSOLE)
        await engine.start()
        try:
            await test(engine)
        finally:
            await engine.stop("the test is over")

    run(main())


def enqueue(owner: str, task: str = "quick") -> str:
    with transaction.atomic():
        worker, entry = services.enqueue(
            prepare(TaskIn(task=task), Config()), call=make_call(), owner=owner, verdict={"effect": "allow"}
        )
        record_many([entry])
    return worker.public_id


async def until(look: Callable[[], Any], *, within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while not await in_db(look):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def state(public_id: str) -> str:
    return str(services.get(public_id).state)


def test_it_joins_and_leaves_nothing_behind(home: Home, run: Any) -> None:
    async def test(engine: Engine) -> None:
        (process,) = await in_db(living)
        assert process.public_id == engine.membership.public_id and process.kind == "console"
        assert (home.path / "run" / f"{process.public_id}.lock").exists()
        assert socket_path(home.path, process.public_id).is_socket()

    with_engine(run, test)
    assert not Process.objects.exists() and list((home.path / "run").iterdir()) == []


def test_what_another_thread_queued_is_run_at_the_bell(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "LOOK_EVERY_S", 600.0)

    async def test(engine: Engine) -> None:
        await asyncio.sleep(0.3)
        public_id = await in_db(enqueue, engine.pool.owner)
        await until(lambda: state(public_id) == "succeeded")

    with_engine(run, test)


def test_what_was_queued_without_a_bell_is_run_a_second_later(
    home: Home, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("approvals.processes.ring", lambda home: None)

    async def test(engine: Engine) -> None:
        public_id = await in_db(enqueue, engine.pool.owner)
        await until(lambda: state(public_id) == "succeeded")

    with_engine(run, test)


def test_an_engine_that_can_not_bind_its_bell_works_without(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any) -> None:
        raise OSError("no sockets here")

    monkeypatch.setattr("core.bell.Bell.open", refuse)

    async def test(engine: Engine) -> None:
        public_id = await in_db(enqueue, engine.pool.owner)
        await until(lambda: state(public_id) == "succeeded")

    with_engine(run, test)


def test_the_dead_are_settled_and_forgotten(run: Any) -> None:
    async def test(engine: Engine) -> None:
        worker = await in_db(lambda: make_worker(state="running", owner="p_dead"))
        call = await in_db(lambda: make_call(state="sending", owner="p_dead"))
        await until(lambda: state(worker.public_id) == "failed")
        await until(lambda: type(call).objects.get(pk=call.pk).state == "unknown")

    with_engine(run, test)


def test_a_newer_schema_is_seen(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "SCHEMA_EVERY_S", 0.1)

    def migrate() -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO django_migrations (app, name, applied) VALUES ('workers', '9999_later', CURRENT_TIMESTAMP)"
            )

    async def test(engine: Engine) -> None:
        await asyncio.sleep(0.3)
        assert not engine.outdated.is_set()
        await in_db(migrate)
        await asyncio.wait_for(engine.outdated.wait(), PATIENCE_S)

    with_engine(run, test)


def test_texts_past_their_time_are_purged_without_anybody_asking(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    from django.utils import timezone

    monkeypatch.setattr(engine_module, "FIRST_PURGE_AFTER_S", 0.0)
    make_worker(state="succeeded", finished_at=timezone.now() - timedelta(days=31), result="old")

    async def test(engine: Engine) -> None:
        await until(lambda: Worker.objects.get().purged_at is not None)

    with_engine(run, test)


def test_a_key_variable_that_is_named_later_is_published(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from workers.models import Provider

    monkeypatch.setattr(engine_module, "PUBLISH_EVERY_S", 0.1)
    monkeypatch.setenv("MEAH_TEST_ENGINE_KEY", "a-value-that-is-long-enough")

    async def test(engine: Engine) -> None:
        assert "MEAH_TEST_ENGINE_KEY" not in (await in_db(Process.objects.get)).key_variables
        await in_db(
            lambda: Provider.objects.create(
                name="late", base_url="http://127.0.0.1:1/v1", api_key_env="MEAH_TEST_ENGINE_KEY"
            )
        )
        await until(lambda: "MEAH_TEST_ENGINE_KEY" in Process.objects.get().key_variables)

    with_engine(run, test)


def test_what_is_accepted_while_it_stops_is_cancelled_too(run: Any) -> None:
    ids: list[str] = []

    async def test(engine: Engine) -> None:
        ids.append(await in_db(enqueue, engine.pool.owner, "[mock wait=60000]"))
        await until(lambda: state(ids[0]) == "running")
        stop = engine.pool.stop

        async def stop_and_accept(reason: str) -> None:
            await stop(reason)
            ids.append(await in_db(enqueue, engine.pool.owner))

        engine.pool.stop = stop_and_accept  # type: ignore[method-assign]

    with_engine(run, test)
    assert [state(public_id) for public_id in ids] == ["cancelled", "cancelled"]


def test_a_configuration_that_can_not_be_used_is_an_error_of_the_start(
    home: Home, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEAH_MAX_RETRIES", "many")

    async def main() -> None:
        engine = Engine(Process.Kind.RUNMCP)
        with pytest.raises(MeahError, match="MEAH_MAX_RETRIES"):
            await engine.start()
        await engine.stop("it did not start")

    run(main())
    assert not Process.objects.exists()
    ring(home.path)


def test_a_chore_that_fails_is_done_again_and_keeps_no_other_from_being_done(run: Any) -> None:
    done: list[str] = []

    async def fail() -> None:
        done.append("failed")
        raise RuntimeError

    async def work() -> None:
        done.append("worked")

    async def main() -> None:
        chores = [Chore("bad", fail, 0.05, first_after_s=0), Chore("good", work, 600, first_after_s=0)]
        for _ in range(2):
            for chore in chores:
                await chore.do_if_due()
            await asyncio.sleep(0.1)

    run(main())
    assert done == ["failed", "worked", "failed"]
