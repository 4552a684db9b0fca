"""Whatever a server has started ends with it, and after MEAH itself was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from core.errors import MeahError
from gateway.failures import AmbiguousError, NotSentError
from gateway.groups import end_groups_of_the_dead, refuse_loop
from tests.conftest import ROOT
from tests.gateway.support import alive, pid_of, pool_of, raw, until


@pytest.mark.parametrize("stubborn", [False, True])
def test_whatever_a_server_has_started_ends_with_it(run: Any, tmp_path: Path, stubborn: bool) -> None:
    async def scenario() -> list[int]:
        async with pool_of(tmp_path) as pool:
            options = ["--stubborn"] if stubborn else []
            opened = await pool.connection(raw("raw", *options)).open()
            started = json.loads((await opened.call("fork", {"stubborn": stubborn}))["content"][0]["text"])
            assert all(alive(pid) for pid in started)
            begun = time.monotonic()
            own = pid_of(tmp_path)
        assert time.monotonic() - begun < 6, "the aim is 4 s"
        return [own, *started]

    started = run(scenario())
    if sys.platform != "linux":
        started = started[:2]  # one that has left its session can not be found there
    assert not [pid for pid in started if alive(pid)]
    assert not list(tmp_path.glob("children-*"))


def test_what_a_server_that_died_has_started_ends_too(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of(tmp_path) as pool:
            opened = await pool.connection(raw()).open()
            started = json.loads((await opened.call("fork", {}))["content"][0]["text"])
            with pytest.raises(AmbiguousError):
                await opened.call("die", {})
            await until(lambda: not any(alive(pid) for pid in started))

    run(scenario())


ORPHANS = """
import asyncio, json, os, sys
from pathlib import Path
from tests.gateway.support import pool_of, raw
async def main():
    async with pool_of(Path(sys.argv[1])) as pool:
        opened = await pool.connection(raw("raw", "--stubborn")).open()
        print((await opened.call("fork", {"stubborn": True}))["content"][0]["text"], flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def test_after_a_kill_the_next_process_ends_what_was_left_behind(run: Any, tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DJANGO_SETTINGS_MODULE": "meah_site.settings_mcp",
        "MEAH_HOME": str(tmp_path / "home"),
    }
    script = "import django; django.setup()\n" + ORPHANS
    meah = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, env=environ)
    assert meah.stdout is not None
    started = json.loads(meah.stdout.readline())
    started.append(pid_of(tmp_path))
    assert end_groups_of_the_dead(tmp_path) == 0, "its owner lives"
    meah.kill()
    meah.wait()
    meah.stdout.close()
    assert all(alive(pid) for pid in started)

    async def scenario() -> None:
        async with pool_of(tmp_path):
            begun = time.monotonic()
            await until(lambda: not any(alive(pid) for pid in started), within_s=20)
            print(f"orphans ended after {time.monotonic() - begun:.2f} s")

    run(scenario())
    assert not list(tmp_path.glob("children-*"))


def test_a_stranger_with_a_recorded_number_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        group = {"pgid": stranger.pid, "started": "1", "server": "x", "mark": "m.1"}
        (tmp_path / "children-m.json").write_text(json.dumps({"marker": "m", "groups": [group]}))
        assert end_groups_of_the_dead(tmp_path) == 0
        assert alive(stranger.pid)
    finally:
        stranger.kill()
        stranger.wait()


def test_meah_is_not_its_own_downstream_server(run: Any, tmp_path: Path) -> None:
    async def scenario() -> str:
        async with pool_of(tmp_path) as pool:
            with pytest.raises(NotSentError) as refused:
                await pool.connection(raw("raw", "--name", "meah")).open()
            assert refused.value.reason == "loop"
            environ = (await (await pool.connection(raw("other")).open()).call("env", {}))["structuredContent"]
            return str(environ["_MEAH_CHILD"])

    marker = run(scenario())
    with pytest.raises(MeahError):
        refuse_loop(tmp_path, {"_MEAH_CHILD": marker})
    refuse_loop(tmp_path / "other", {"_MEAH_CHILD": marker})
    refuse_loop(tmp_path, {})
