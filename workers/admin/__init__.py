"""The worker half in the admin: what is configured, and what ran."""

from __future__ import annotations

from workers.admin.limits import LimitsAdmin
from workers.admin.providers import ProviderAdmin
from workers.admin.routes import RoleRouteAdmin
from workers.admin.workers import WorkerAdmin

__all__ = ["LimitsAdmin", "ProviderAdmin", "RoleRouteAdmin", "WorkerAdmin"]
