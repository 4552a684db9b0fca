"""The admin as a person meets it: the real console, a real browser, and nothing in its console."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import NARROW, WIDE
from tests.e2e.consoles import Console, running_console

PASSWORD = "correct horse battery"
PAGES = [
    "/admin/",
    "/admin/workers/worker/",
    "/admin/workers/worker/add/",
    "/admin/workers/provider/",
    "/admin/workers/provider/add/?preset=glm",
    "/admin/workers/provider/mock/test/",
    "/admin/workers/roleroute/",
    "/admin/workers/roleroute/coder/change/",
    "/admin/workers/workersettings/1/change/",
    "/admin/approvals/call/",
    "/admin/approvals/process/",
    "/admin/console/",
    "/admin/approvals/approval/",
    "/admin/approvals/rule/",
    "/admin/approvals/rule/add/",
    "/admin/approvals/rule/try/",
    "/admin/approvals/token/",
    "/admin/approvals/token/add/",
    "/admin/approvals/webhook/add/",
    "/admin/approvals/halt/",
    "/admin/gateway/server/",
    "/admin/gateway/server/add/",
    "/admin/gateway/tool/",
    "/admin/audit/entry/",
    "/admin/auth/user/",
]
# Contrast of each text against the nearest background that is not transparent, by the formula of WCAG 2.
CONTRASTS = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > .9) return colour;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll('#content *, #header *, nav *')].filter((node) =>
    node.checkVisibility() && [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim())
    && !node.closest('.visually-hidden, option'));
  return texts.map((node) => {
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    return [(a + .05) / (b + .05), node.tagName + '.' + node.className + ': ' + node.textContent.trim().slice(0, 40)];
  }).filter(([ratio]) => ratio < 4.5);
}"""


def hand_over(page: Any, task: str, **fields: str) -> None:
    page.goto("/admin/workers/worker/add/")
    page.get_by_role("textbox", name="Task:").fill(task)
    for label, value in fields.items():
        page.get_by_label(label.capitalize()).fill(value)
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**/worker/w_*/change/")


def wait_for_state(page: Any, state: str) -> None:
    page.locator("#live-state").get_by_text(state).wait_for()


def test_a_first_login_by_the_printed_link_sets_a_password_that_works(
    tmp_path: Path, browser: Any, open_page: Callable[..., Any]
) -> None:
    with running_console(tmp_path / "home") as fresh:
        log_in_first(open_page(context=browser.new_context(base_url=fresh.base_url)), fresh)


def log_in_first(page: Any, fresh: Console) -> None:
    page.goto(fresh.link)
    page.get_by_role("button", name="Log in as admin").click()
    page.wait_for_url("**/set-password/")
    page.get_by_label("New password", exact=False).first.fill(PASSWORD)
    page.get_by_label("New password confirmation").fill(PASSWORD)
    page.get_by_role("button", name="Set password").click()
    page.wait_for_url("**/admin/")
    assert page.get_by_text("First steps").is_visible()
    page.get_by_role("button", name="Log out").click()
    page.goto("/admin/")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    assert page.get_by_role("heading", name="Overview").is_visible()


def test_a_task_runs_to_its_result_on_a_page_that_keeps_itself_current(open_page: Callable[..., Any]) -> None:
    page = open_page()
    hand_over(page, "Condense it. [mock wait=2500]", label="Condense")
    loads = []
    page.on("load", lambda _: loads.append(1))
    page.get_by_text("Pause updates").wait_for()
    wait_for_state(page, "succeeded")
    assert "This is the mock provider" in page.locator("#live-result").inner_text()
    page.get_by_role("button", name="Run again").wait_for()
    assert loads == []


def test_updates_can_be_paused_and_resumed(open_page: Callable[..., Any]) -> None:
    page = open_page()
    hand_over(page, "Slow. [mock wait=2500]")
    page.get_by_role("button", name="Pause updates").click()
    assert page.get_by_role("link", name="Reload").is_visible()
    page.wait_for_timeout(4_500)
    assert not page.get_by_text("succeeded").is_visible()
    page.get_by_role("button", name="Resume updates").click()
    wait_for_state(page, "succeeded")


def test_a_long_task_is_cancelled_by_its_button(open_page: Callable[..., Any]) -> None:
    page = open_page()
    hand_over(page, "Think for long. [mock wait=30000]")
    wait_for_state(page, "running")
    page.get_by_role("button", name="Cancel").click()
    wait_for_state(page, "cancelled")
    assert page.get_by_text("E_CANCELLED").is_visible()


def test_a_worker_runs_again_from_its_page(open_page: Callable[..., Any]) -> None:
    page = open_page()
    hand_over(page, "Twice. [mock wait=100]")
    wait_for_state(page, "succeeded")
    page.get_by_role("button", name="Run again").click()
    page.get_by_text("runs again as").wait_for()
    wait_for_state(page, "succeeded")
    assert page.get_by_text("Rerun of").is_visible()


def test_without_scripts_the_same_pages_work_by_reloading(open_page: Callable[..., Any]) -> None:
    page = open_page(java_script_enabled=False)
    hand_over(page, "No scripts. [mock wait=1500]")
    page.get_by_role("link", name="Reload").wait_for()
    for _ in range(20):
        if page.get_by_text("succeeded").first.is_visible():
            break
        page.wait_for_timeout(500)
        page.reload()
    assert "This is the mock provider" in page.locator("#live-result").inner_text()


def test_a_task_is_handed_over_with_the_keyboard_alone(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.goto("/admin/workers/worker/add/")
    page.keyboard.type("By keys. [mock wait=100]")
    for _ in range(12):
        page.keyboard.press("Tab")
        focused = page.evaluate("document.activeElement.value || document.activeElement.textContent")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", f"no focus is to be seen on {focused!r}"
        if focused == "Run":
            break
    page.keyboard.press("Enter")
    wait_for_state(page, "succeeded")


def test_several_workers_are_cancelled_after_a_question(open_page: Callable[..., Any]) -> None:
    page = open_page()
    for number in (1, 2):
        hand_over(page, f"Wait {number}. [mock wait=30000]", label=f"batch {number}")
    page.goto("/admin/workers/worker/?q=batch")
    page.locator("#action-toggle").check()
    page.locator("select[name=action]").first.select_option("cancel_selected")
    page.locator("button[name=index]").click()
    page.get_by_role("button", name="Cancel 2 workers").click()
    page.wait_for_url("**/worker/?q=batch")
    assert page.get_by_text("told to stop").count() + page.get_by_text("is cancelled").count() >= 2


def test_the_mock_is_tested_and_a_provider_is_added_by_its_preset(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.goto("/admin/workers/provider/mock/test/")
    page.get_by_role("button", name="Test now").click()
    page.get_by_text("answered").first.wait_for()
    page.goto("/admin/workers/provider/")
    page.get_by_role("link", name="Z.AI GLM").click()
    assert page.get_by_label("Base URL").input_value() == "https://api.z.ai/api/paas/v4"
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("heading", name="Test glm").wait_for()
    page.get_by_role("button", name="Test now").click()
    page.get_by_text("E_CONFIG").first.wait_for()
    page.goto("/admin/workers/provider/")
    assert page.get_by_text("not set").first.is_visible()


@pytest.mark.parametrize(
    ("scheme", "viewport"), [("light", WIDE), ("dark", WIDE), ("light", NARROW)], ids=["light", "dark", "narrow"]
)
def test_every_page_fits_and_can_be_read(open_page: Callable[..., Any], scheme: str, viewport: dict[str, int]) -> None:
    page = open_page(viewport=viewport, color_scheme=scheme)
    hand_over(page, "Show it. [mock fail=E_RATE_LIMIT]", label="Shown")
    wait_for_state(page, "failed")
    for url in [page.url, *PAGES]:
        page.goto(url)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{url} is wider than the window"
        assert page.evaluate(CONTRASTS) == [], url


def test_the_theme_can_be_switched_by_hand(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.goto("/admin/")
    seen = set()
    for _ in range(3):
        page.locator(".theme-toggle").first.click()
        seen.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(seen) == 2
