"""A fake provider for each module, reset for each test, and a key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fake_provider import FakeProvider, chat
from tests.workers.providers.asking import KEY, KEY_NAME


@pytest.fixture(scope="module")
def server() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


@pytest.fixture
def fake(server: FakeProvider) -> FakeProvider:
    server.reply(chat("Hello"))
    server.delay = 0.0
    return server


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(KEY_NAME, KEY)
    return KEY
