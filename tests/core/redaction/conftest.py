from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from core import secrets

Configure = Callable[..., None]


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Configure]:
    """Set secrets for one test: `configured(MEAH_A="value")`; no other variable is a secret meanwhile."""
    known = set(secrets._named)
    secrets._named.clear()

    def configure(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        secrets.name_secrets(values)

    yield configure
    secrets._named.clear()
    secrets._named.update(known)
