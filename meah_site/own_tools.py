"""MEAH's own tools, of every app, as `tools/list` shows them before the downstream ones."""

from __future__ import annotations

from approvals.tool import Tool
from approvals.tools import tools as approval_tools
from core.errors import JsonObject
from gateway.runner import Runner
from gateway.tools import tools as lazy_tools
from workers.pool import Pool
from workers.tools import tools as worker_tools


def own_tools(role: str, pool: Pool, runner: Runner) -> list[Tool]:
    """What that role is offered, over what this process runs."""
    return [*worker_tools(pool), *lazy_tools(runner), *approval_tools(role)]


def listed(role: str) -> list[JsonObject]:
    """The same without anything to run it."""
    return [tool.as_listed() for tool in own_tools(role, Pool(""), Runner(""))]


def direct(principal: str) -> list[JsonObject]:
    """The downstream tools that are listed one by one, as that principal is shown them."""
    from meah_site.proxied import proxied_tools

    return [tool.as_listed() for tool in proxied_tools(principal).values()]
