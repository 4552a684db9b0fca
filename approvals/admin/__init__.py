"""Everything of approvals in the admin; importing a module registers what is in it."""

from __future__ import annotations

from approvals.admin import calls as calls
from approvals.admin import halt as halt
from approvals.admin import processes as processes
from approvals.admin import queue as queue
from approvals.admin import rules as rules
from approvals.admin import settings as settings
from approvals.admin import tokens as tokens
from approvals.admin import webhooks as webhooks
