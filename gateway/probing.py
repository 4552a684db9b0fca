"""Starting servers to see what they offer, a few at a time, without the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from core.errors import MeahError
from core.redaction import redact

from .launch import Launch
from .pins import Listed, read_listing
from .sessions import Pool

AT_ONCE: Final = 4
LIMIT_S: Final = 60.0


@dataclass(frozen=True)
class Probe:
    """What a server listed when it was started, or why it could not be."""

    server: str
    tools: list[Listed] = field(default_factory=list)
    error: str = ""
    era: str = ""
    stderr: str = ""

    @property
    def worked(self) -> bool:
        return not self.error


async def probe_all(
    launches: Iterable[Launch],
    *,
    directory: Path,
    home: Path,
    at_once: int = AT_ONCE,
    limit_s: float = LIMIT_S,
    told: Callable[[Probe], None] = lambda probe: None,
) -> dict[str, Probe]:
    """Start each server, list its tools, end it. `told` hears of each as it is done."""
    pool = Pool(directory=directory, home=home)
    pool.start_timeout_s = limit_s
    gate = asyncio.Semaphore(at_once)
    await pool.start()

    async def one(launch: Launch) -> Probe:
        async with gate:
            found = await _probe(pool, launch, limit_s)
        told(found)
        return found

    try:
        probes = await asyncio.gather(*(one(launch) for launch in launches))
    finally:
        await pool.stop()
    return {probe.server: probe for probe in probes}


async def _probe(pool: Pool, launch: Launch, limit_s: float) -> Probe:
    connection = pool.connection(launch)
    error = ""
    listing: list[Any] = []
    try:
        listing = (await asyncio.wait_for(connection.open(), limit_s)).listing
    except TimeoutError:
        error = f"It did not start within {limit_s:g} s."
    except MeahError as failed:
        error = f"{failed.message} {failed.hint}".strip()
    await connection.close()
    return Probe(
        launch.server, read_listing(listing), redact(error), connection.launch.era, redact(connection.tail.text())
    )
