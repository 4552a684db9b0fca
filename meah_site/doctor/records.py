"""What is kept: the audit chain, workspaces, texts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Final

from django.db import connection
from django.utils import timezone

from audit import triggers
from audit.services import ChainState, chain_state, verify
from meah_site.doctor.findings import Finding, Group, examined, info, ok, problem, warning
from workers import housekeeping
from workers.routing import Config
from workers.workspace import all_workspaces

# Some four seconds of work; a longer chain is left to `manage.py audit verify`, which shows how far it is.
QUICK_ENTRIES: Final = 200_000
STALE: Final = timedelta(days=30)
LARGE_BYTES: Final = 10**9


def chain() -> Group:
    return examined("Audit chain", ("chain", state), ("triggers", guards), ("verification", verification))


def state() -> Iterator[Finding]:
    found = chain_state()
    yield ok("head", f"{found.head.size:,} entries, {found.head.hash[:16]}… ({found.head.log})")
    yield _last(found)


def _last(found: ChainState) -> Finding:
    if found.verified_at is None:
        return info("last verified", "never", "`manage.py audit verify` does it and records that.")
    when = f"{found.verified_at:%Y-%m-%d %H:%M} UTC at {found.verified_size:,} entries"
    if found.verdict != "whole":
        return problem("last verified", f"{found.verdict}, {when}", "See `manage.py audit verify`.")
    if timezone.now() - found.verified_at > STALE:
        return info("last verified", f"whole, {when}: a month ago or more", "Run `manage.py audit verify`.")
    return ok("last verified", f"whole, {when}")


def guards() -> Iterator[Finding]:
    if names := triggers.missing(connection):
        fix = "Run `manage.py migrate`: it puts them back. Then run `manage.py audit verify`."
        yield problem("triggers", f"missing: {', '.join(names)}", fix)
    else:
        yield ok("triggers", "present: the database refuses changes of the chain")


def verification() -> Iterator[Finding]:
    size = chain_state().head.size
    if size > QUICK_ENTRIES:
        yield info(
            "verified now", f"no: {size:,} entries take a while", "`manage.py audit verify` shows how far it is."
        )
        return
    begun = time.monotonic()
    verdict = verify()
    took_ms = round((time.monotonic() - begun) * 1000)
    if verdict.fault:
        text = f"tampered: {verdict.fault.kind} at entry {verdict.fault.seq}: {verdict.fault.detail}"
        fix = "Keep a copy of the database as it is, then compare with an exported bundle or a noted head."
        yield problem("verified now", text, fix)
    else:
        yield ok("verified now", f"whole, {verdict.size:,} entries in {took_ms:,} ms")


def storage(config: Config) -> Group:
    return examined(
        "Storage",
        ("workspaces", partial(workspaces, config)),
        ("texts", partial(texts, config.limits.retention_days)),
    )


def workspaces(config: Config) -> Iterator[Finding]:
    root = housekeeping.workspace_root(config)
    if root.exists() and not (root.is_dir() and os.access(root, os.W_OK | os.X_OK)):
        yield problem(
            "workspaces", f"{root} is no directory that can be written", "Correct workspaceRoot or its rights."
        )
        return
    found = all_workspaces(root)
    size = sum(info.size_bytes for info in found)
    finished = len(housekeeping.finished_workspaces(older_than_days=0))
    text = f"{len(found):,} with {size / 1e6:,.1f} MB in {root}, {finished:,} of finished workers"
    if size >= LARGE_BYTES:
        yield warning("workspaces", text, "`manage.py workers cleanup` deletes those of finished workers.")
    else:
        yield ok("workspaces", text)


def texts(days: int) -> Iterator[Finding]:
    count = housekeeping.past_retention(older_than_days=days).count()
    if count:
        fix = "A running MEAH process deletes them every hour; `manage.py workers purge --yes` does so now."
        yield warning("texts", f"{count:,} workers have texts older than the {days} days they are kept", fix)
    else:
        yield ok("texts", f"none older than the {days} days they are kept")
