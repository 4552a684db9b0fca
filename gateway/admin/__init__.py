"""Servers and their tools in the admin; importing a module registers what is in it."""

from __future__ import annotations

from gateway.admin import methods as methods
from gateway.admin import servers as servers
from gateway.admin import settings as settings
from gateway.admin import tools as tools
