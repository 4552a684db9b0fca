"""Lessons about models: none is lost when two come at once, and what is forgotten is named."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from django.db import connection

from audit.models import Entry
from workers import learned, services
from workers.models import Provider, ProviderModel
from workers.providers.base import Adaptation

pytestmark = pytest.mark.usefixtures("home")


def lesson(field: str) -> Adaptation:
    return Adaptation(field, "drop", None, f"no {field}")


def data_of(kind: str) -> Any:
    return json.loads(bytes(Entry.objects.get(kind=kind).payload))["data"]


def test_two_lessons_at_once_are_both_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    services.learn("fake", "m", [lesson("top_p")])
    record_many, slow, first = services.record_many, threading.Event(), threading.Event()

    def lingering(*arguments: Any) -> Any:
        """The first one stays in its transaction until the second has had time to read."""
        if not first.is_set():
            first.set()
            slow.wait(1)
        return record_many(*arguments)

    def learn(field: str) -> None:
        try:
            services.learn("fake", "m", [lesson(field)])
        finally:
            connection.close()

    monkeypatch.setattr(services, "record_many", lingering)
    threads = [threading.Thread(target=learn, args=(field,)) for field in ("temperature", "seed")]
    threads[0].start()
    assert first.wait(20)
    threads[1].start()
    for thread in threads:
        thread.join(30)
    fields = [item.field for item in services.learned_adaptations("fake", "m")]
    assert fields == ["top_p", "temperature", "seed"]


def test_a_provider_that_only_the_environment_knew_gets_its_entry_with_its_row() -> None:
    services.learn("fake", "m", [lesson("seed")])
    assert Provider.objects.get().name == "fake"
    assert data_of("provider.added") == {"because": "adapted", "model": "m"}
    Entry.objects.get(kind="provider.adapted", subject="fake")


def test_what_is_forgotten_is_what_was_there_then_not_what_was_read_before() -> None:
    services.learn("fake", "m", [lesson("seed")])
    model = ProviderModel.objects.get()
    services.learn("fake", "m", [lesson("temperature")])
    assert learned.forget(model, principal="user:alice")
    assert data_of("provider.adaptations_reset")["fields"] == ["seed", "temperature"]
    assert not learned.forget(model, principal="user:alice")
    model.refresh_from_db()
    assert model.adaptations == [] and model.learned_at is None
