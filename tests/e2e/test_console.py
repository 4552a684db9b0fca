"""The live console in a real browser: what other processes do appears by itself, and a person steers from there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.e2e.conftest import NARROW
from tests.e2e.consoles import Console
from tests.e2e.server import Server, eventually

HOLD = """
version: 1
rules:
  - {name: hold-clean-up, effect: require_approval, server: meah, tool: meah_cleanup_workspace}
"""


@pytest.fixture(scope="module")
def agent(console: Console) -> Iterator[Server]:
    """A client of its own process, as Claude has one."""
    with Server(SimpleNamespace(environ=console.environ), name="claude") as server:  # type: ignore[arg-type]
        server.initialize()
        yield server


@pytest.fixture
def page(open_page: Callable[..., Any]) -> Any:
    shown = open_page()
    shown.goto("/admin/console/")
    live(shown)
    return shown


def live(page: Any) -> None:
    page.locator("#connection", has_text="Live.").wait_for()


def row(page: Any, worker_id: str) -> Any:
    return page.locator(f'#rows tr[data-id="{worker_id}"]')


def start(agent: Server, task: str, **more: Any) -> str:
    return str(agent.data("meah_run_agent", task=task, **more)["workerId"])


def test_a_worker_is_started_and_streams_to_its_end(page: Any) -> None:
    page.get_by_role("link", name="Start a worker").click()
    page.get_by_role("textbox", name="Task:").fill("[mock wait=1500 text=All of it came]")
    page.get_by_label("Label").fill("From the console")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**/admin/console/?selected=w_*")
    page.locator("#pane-heading", has_text="From the console").wait_for()
    page.locator("#pane-state", has_text="succeeded").wait_for()
    page.locator("#pane-text", has_text="All of it came").wait_for()
    assert "tokens" in page.locator("#pane-usage").inner_text()
    page.get_by_role("button", name="Run again").click()
    page.wait_for_url("**/worker/w_*/change/")


def test_a_worker_of_another_process_appears_and_is_cancelled(page: Any, agent: Server) -> None:
    worker_id = start(agent, "[mock wait=60000]", label="Of another process")
    row(page, worker_id).get_by_text("running").wait_for()
    row(page, worker_id).get_by_role("link").click()
    page.locator("#pane-cancel").get_by_role("button").click()
    page.wait_for_url("**/worker/**")
    page.go_back()
    live(page)
    row(page, worker_id).get_by_text("cancelled").wait_for()


def test_partial_text_streams_and_can_be_paused(page: Any, agent: Server) -> None:
    worker_id = start(agent, "[mock every=2000 length=20000]", label="Streams")
    row(page, worker_id).get_by_role("link").click()
    text = page.locator("#pane-text")
    before = eventually(lambda: length if (length := len(text.inner_text())) > 200 else None, within_s=20)
    eventually(lambda: len(text.inner_text()) > before, within_s=20)
    page.get_by_role("button", name="Pause").click()
    agent.data("meah_cancel_agent", workerId=worker_id)
    page.wait_for_timeout(700)
    assert row(page, worker_id).get_by_text("running").is_visible()
    page.get_by_role("button", name="Resume").click()
    row(page, worker_id).get_by_text("cancelled").wait_for()


def test_a_held_call_appears_and_is_approved_with_the_keyboard(
    page: Any, agent: Server, console: Console, tmp_path: Path
) -> None:
    policy = tmp_path / "hold.yaml"
    policy.write_text(HOLD)
    console.manage("policy", "import", str(policy), "--yes")
    worker_id = start(agent, "[mock text=x]", permissionProfile="workspace-write")
    row(page, worker_id).get_by_text("succeeded").wait_for()
    held = agent.data("meah_cleanup_workspace", workerId=worker_id)
    assert held["status"] == "pending_approval"
    link = page.locator("#held a", has_text="meah_cleanup_workspace")
    link.wait_for()
    assert page.locator("#meah-waiting").inner_text() == page.locator("#held-count").inner_text() == "1"
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/approval/**")
    page.get_by_role("link", name="Approve…").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Note").fill("fine")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Approve").focus()
    page.keyboard.press("Enter")
    page.locator(".messagelist").wait_for()
    answer = agent.data("approval_status", approvalId=held["approvalId"], waitMs=20_000)
    while answer["status"] in ("pending_approval", "approved", "executing"):
        answer = agent.data("approval_status", approvalId=held["approvalId"], waitMs=20_000)
    assert answer["status"] == "done" and answer["note"] == "fine"
    page.goto("/admin/console/")
    page.get_by_text("Nothing. A call that policy holds appears here by itself.").wait_for()


def test_filters_are_kept_in_the_address(page: Any, agent: Server) -> None:
    one = start(agent, "[mock text=1]", label="needle in here", role="coder")
    other = start(agent, "[mock text=2]", label="hay", role="reviewer")
    row(page, other).wait_for()
    page.get_by_label("Label").fill("needle")
    page.get_by_label("Label").press("Enter")
    row(page, other).wait_for(state="detached")
    row(page, one).wait_for()
    assert "label=needle" in page.url
    page.reload()
    live(page)
    assert row(page, one).is_visible() and not row(page, other).is_visible()
    # What does not match does not come in later either.
    another = start(agent, "[mock text=3]", label="more hay")
    matching = start(agent, "[mock text=4]", label="a second needle")
    row(page, matching).wait_for()
    assert not row(page, another).is_visible()


def test_two_results_are_compared_and_several_are_cancelled(page: Any, agent: Server) -> None:
    pair = [start(agent, f"[mock text={text}]", label=text) for text in ("first answer", "second answer")]
    for worker_id in pair:
        row(page, worker_id).get_by_text("succeeded").wait_for()
        row(page, worker_id).get_by_role("checkbox").check()
    page.get_by_role("button", name="Compare two").click()
    page.wait_for_url("**/compare/**")
    assert page.locator("del").inner_text() and page.locator("ins").inner_text()
    page.get_by_role("link", name="Back to the console").click()
    live(page)
    slow = [start(agent, "[mock wait=60000]") for _ in range(3)]
    for worker_id in slow:
        row(page, worker_id).get_by_text("running").wait_for()
        row(page, worker_id).get_by_role("checkbox").check()
    page.get_by_role("button", name="Cancel the ticked").click()
    page.get_by_role("button", name="Cancel 3 workers").click()
    live(page)
    for worker_id in slow:
        row(page, worker_id).get_by_text("cancelled").wait_for()


def test_after_a_dropped_connection_the_page_catches_up(open_page: Callable[..., Any], agent: Server) -> None:
    page = open_page(viewport={"width": 1280, "height": 901})
    page.goto("/admin/console/")
    live(page)
    before = start(agent, "[mock wait=60000]", label="before")
    row(page, before).get_by_text("running").wait_for()
    page.evaluate("window.stayed = true")
    # The socket is cut from the browser's side, as a network does it.
    page.context.set_offline(True)
    page.evaluate("document.dispatchEvent(new Event('cut'))")
    agent.data("meah_cancel_agent", workerId=before)
    missed = start(agent, "[mock text=missed]", label="missed")
    time.sleep(1)
    page.context.set_offline(False)
    live(page)
    row(page, missed).get_by_text("succeeded").wait_for()
    row(page, before).get_by_text("cancelled").wait_for()
    assert page.evaluate("window.stayed") is True, "it was not loaded anew"
    ids = page.locator("#rows tr").evaluate_all("rows => rows.map((row) => row.dataset.id)")
    assert len(ids) == len(set(ids))


def test_it_can_be_used_on_a_narrow_screen_and_without_a_script(open_page: Callable[..., Any], agent: Server) -> None:
    worker_id = start(agent, "[mock text=x]", label="narrow")
    page = open_page(viewport=NARROW)
    page.goto("/admin/console/")
    row(page, worker_id).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    plain = open_page(java_script_enabled=False)
    plain.goto("/admin/console/?label=narrow")
    assert plain.locator("#rows tr").count() == 1
    assert plain.get_by_role("button", name="Filter").is_visible()


def test_texts_of_strangers_stay_texts(page: Any, agent: Server) -> None:
    worker_id = start(agent, "[mock text=<img src=x onerror=alert(1)>\u202e]", label="<b>bold</b>")
    row(page, worker_id).get_by_text("succeeded").wait_for()
    assert row(page, worker_id).locator("b").count() == 0
    row(page, worker_id).get_by_role("link").click()
    page.locator("#pane-text", has_text="<img").wait_for()
    assert page.locator("#pane img").count() == 0
    assert "⟨U+202E⟩" in page.locator("#pane-text").inner_text()


def test_only_staff_may_listen_and_nobody_may_speak(console: Console, browser: Any, session: Any) -> None:
    """The socket is asked directly, as a hostile page or script would."""
    probe = """async ([url, say]) => new Promise((done) => {
        const socket = new WebSocket(url);
        socket.onopen = () => say && socket.send(JSON.stringify({type: "approve", id: "apr_1"}));
        socket.onclose = (event) => done(event.code);
        setTimeout(() => done("open"), 3000);
    })"""
    url = f"ws://127.0.0.1:{console.port}/ws/console/?after=-1"
    logged_in = browser.new_context(base_url=console.base_url, storage_state=session)
    stranger = browser.new_context(base_url=console.base_url)
    try:
        inside, outside = logged_in.new_page(), stranger.new_page()
        inside.goto("/healthz")
        outside.goto("/healthz")
        assert inside.evaluate(probe, [url, False]) == "open"
        assert inside.evaluate(probe, [url, True]) == 4008
        assert outside.evaluate(probe, [url, False]) == 4403
    finally:
        logged_in.close()
        stranger.close()
