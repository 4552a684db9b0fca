"""Servers that several tests of a module talk to, and browsers that look at a module's console."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import Home
from tests.e2e.consoles import Console, chromium, running_console
from tests.e2e.server import LEGACY, MODERN, Server

WITHIN_MS = 20_000
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def server(shared_home: Home) -> Iterator[Server]:
    """One server for all tests of the module."""
    with Server(shared_home) as server:
        server.initialize()
        yield server


@pytest.fixture(scope="module", params=[LEGACY, MODERN])
def either(request: pytest.FixtureRequest, shared_home: Home) -> Iterator[Server]:
    """One server for each era."""
    with Server(shared_home, era=request.param) as server:
        server.initialize()
        yield server


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    with running_console(tmp_path_factory.mktemp("e2e") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def session(console: Console, browser: Any) -> Any:
    """The cookies of a person who came in by a link."""
    context = browser.new_context(base_url=console.base_url)
    page = context.new_page()
    page.goto(console.new_link())
    page.get_by_role("button", name="Log in as admin").click()
    page.wait_for_url("**/admin/**")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture(scope="module")
def context_with(console: Console, browser: Any, session: Any) -> Iterator[Callable[..., Any]]:
    """A logged-in browser profile with these options; the same one for the same options, so that its cache serves."""
    made: dict[str, Any] = {}

    def context(**options: Any) -> Any:
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = browser.new_context(base_url=console.base_url, storage_state=session, **options)
        return made[key]

    yield context
    for one in made.values():
        one.close()


@pytest.fixture
def open_page(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens a page, logged in unless it brings its own context; fails the test when the browser complained."""
    complaints: list[str] = []
    pages = []

    def opener(*, context: Any = None, viewport: dict[str, int] = WIDE, **options: Any) -> Any:
        used = context or request.getfixturevalue("context_with")(viewport=viewport, **options)
        page = used.new_page()
        pages.append(page)
        page.set_default_timeout(WITHIN_MS)
        page.on("console", lambda message: _note(complaints, message))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield opener
    for page in pages:
        page.close()
    assert complaints == []


def _note(complaints: list[str], message: Any) -> None:
    if message.type in ("error", "warning"):
        complaints.append(f"{message.type}: {message.text}")
