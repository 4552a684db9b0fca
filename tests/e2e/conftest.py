"""Servers that several tests of a module talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Home
from tests.e2e.server import LEGACY, MODERN, Server


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
