"""Processes and calls in the admin: written by MEAH, read by people."""

from __future__ import annotations

import json

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from approvals.display import badge, duration, moment
from approvals.models import Call, Process
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


@admin.register(Call)
class CallAdmin(ReadOnlyAdmin):
    list_display = ("public_id", "shown_state", "what", "effect_class", "door", "shown_principal", "created", "took")
    list_filter = ("state", "effect_class", "door", ("created_at", admin.DateFieldListFilter))
    search_fields = ("public_id", "tool", "principal")
    search_help_text = "Id, tool or principal"
    fields = (
        "public_id",
        "shown_state",
        "what",
        "effect_class",
        "door",
        "shown_principal",
        "shown_run",
        "owner",
        "shown_error",
        "created",
        "finished",
        "took",
        "shown_results",
        "shown_entries",
    )
    readonly_fields = fields

    @admin.display(description="state", ordering="state")
    def shown_state(self, call: Call) -> SafeString:
        return badge(call.state)

    @admin.display(description="tool", ordering="tool")
    def what(self, call: Call) -> str:
        return visible(f"{call.server} / {call.tool}")

    @admin.display(description="principal", ordering="principal")
    def shown_principal(self, call: Call) -> str:
        return visible(call.principal)

    @admin.display(description="run and step")
    def shown_run(self, call: Call) -> str:
        return visible(" / ".join(part for part in (call.run, call.step) if part)) or "–"

    @admin.display(description="created", ordering="id")
    def created(self, call: Call) -> SafeString | str:
        return moment(call.created_at)

    @admin.display(description="finished")
    def finished(self, call: Call) -> SafeString | str:
        return moment(call.finished_at)

    @admin.display(description="duration")
    def took(self, call: Call) -> str:
        if call.finished_at is None:
            return "–"
        return duration(round((call.finished_at - call.created_at).total_seconds() * 1000))

    @admin.display(description="error")
    def shown_error(self, call: Call) -> SafeString | str:
        if not call.error:
            return "none"
        return format_html(
            '<pre class="meah-text">{}</pre>', visible(json.dumps(call.error, indent=2, ensure_ascii=False))
        )

    @admin.display(description="led to")
    def shown_results(self, call: Call) -> SafeString | str:
        """The rows that stand for what the call did, whichever app they belong to."""
        links = [
            (reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk]), str(row))
            for relation in Call._meta.related_objects
            for row in relation.related_model._base_manager.filter(**{relation.field.name: call})[:50]
        ]
        return format_html_join(", ", '<a href="{}">{}</a>', links) or "nothing that is kept as a row"

    @admin.display(description="audit")
    def shown_entries(self, call: Call) -> SafeString:
        url = reverse("admin:audit_entry_changelist", query={"q": call.public_id})
        return format_html('<a href="{}">entries under this id</a>', url)
