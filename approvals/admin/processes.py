"""Processes in the admin: who runs, and with which keys."""

from __future__ import annotations

from django.contrib import admin
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from approvals.display import badge, moment
from approvals.models import Process
from approvals.processes import is_alive
from approvals.readonly import ReadOnlyAdmin
from core.text import visible


@admin.register(Process)
class ProcessAdmin(ReadOnlyAdmin):
    list_display = (
        "public_id",
        "kind",
        "alive",
        "host",
        "pid",
        "shown_principal",
        "shown_keys",
        "started_at",
        "version",
    )
    list_filter = ("kind",)
    search_fields = ("public_id", "host", "principal")
    fields = (
        "public_id",
        "kind",
        "alive",
        "host",
        "pid",
        "shown_principal",
        "shown_keys",
        "version",
        "since",
    )
    readonly_fields = fields

    @admin.display(description="state")
    def alive(self, process: Process) -> SafeString:
        return badge("running", "alive") if is_alive(process) else badge("failed", "ended")

    @admin.display(description="since", ordering="started_at")
    def since(self, process: Process) -> SafeString | str:
        return moment(process.started_at)

    @admin.display(description="speaks for", ordering="principal")
    def shown_principal(self, process: Process) -> str:
        return visible(process.principal) or "–"

    @admin.display(description="key variables set")
    def shown_keys(self, process: Process) -> SafeString | str:
        if not process.key_variables:
            return "none"
        return format_html_join(" ", "<code>{}</code>", ((visible(str(name)),) for name in process.key_variables))
