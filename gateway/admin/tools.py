"""Every downstream tool in one list, and a page for each: what was accepted, and what the server says now."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.display import badge
from approvals.inspection import shown_json
from approvals.models import EffectClass
from approvals.readonly import ReadOnlyAdmin
from audit.services import user_principal
from core.errors import MeahError
from core.text import visible
from gateway import services
from gateway.admin.tool_columns import Postures, why_waits
from gateway.marking import map_key
from gateway.models import Tool


@admin.register(Tool)
class ToolAdmin(ReadOnlyAdmin):
    list_display_links = None
    list_filter = ("pin_state", "effect_class", "server__exposure", "server")
    search_fields = ("name", "server__name")
    search_help_text = "Tool or server"
    list_per_page = 100
    change_list_template = "admin/gateway/tool/change_list.html"
    change_form_template = "admin/gateway/tool/change_form.html"
    fields = ("name",)
    readonly_fields = fields

    # -- the list

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tool]:
        rows: QuerySet[Tool] = super().get_queryset(request)
        return rows.select_related("server").defer("server__stderr_tail")

    def get_list_display(self, request: HttpRequest) -> Any:
        shown = Postures()
        return ("what", shown.posture, "effect_class", shown.hints, "pinned", "exposure")

    @admin.display(description="tool", ordering="name")
    def what(self, tool: Tool) -> SafeString:
        url = reverse("admin:gateway_tool_change", args=[tool.pk])
        return format_html('<a href="{}">{}</a>', url, visible(str(tool)))

    @admin.display(description="pin", ordering="pin_state")
    def pinned(self, tool: Tool) -> SafeString:
        return format_html('{}<div class="meah-id">{}</div>', badge(tool.pin_state), visible(why_waits(tool)))

    @admin.display(description="exposure", ordering="server__exposure")
    def exposure(self, tool: Tool) -> str:
        return tool.server.exposure

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"title": "Tools", "is_empty": not Tool.objects.exists()}
        return super().changelist_view(request, context | (extra_context or {}))

    # -- one tool

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(services.ACCEPT) or super().has_view_permission(request, obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(services.ACCEPT) or super().has_module_permission(request)

    def get_urls(self) -> list[URLPattern]:
        mark = path("<int:pk>/mark/", self.admin_site.admin_view(self.mark), name="gateway_tool_mark")
        return [mark, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        tool = Tool.objects.select_related("server").filter(pk=object_id).first() if object_id.isdigit() else None
        if tool is None or not self.has_view_permission(request, tool):
            return super().change_view(request, object_id, form_url, extra_context)
        context: dict[str, Any] = {
            "title": visible(str(tool)),
            "subtitle": None,
            "tool": tool,
            "line": Postures().line(tool),
            "classes": EffectClass.choices,
            "may_mark": request.user.has_perm("gateway.change_tool"),
            "may_accept": request.user.has_perm(services.ACCEPT),
            "why_not": services.why_not_acceptable(tool),
            "difference": diff_lines(tool) if tool.candidate else [],
            "arguments": [visible(name) for name in (tool.pinned.get("inputSchema") or {}).get("properties") or {}],
            "definition": shown_json(tool.definition, indent=2) if tool.definition else "",
        }
        return super().change_view(request, object_id, form_url, context | (extra_context or {}))

    def mark(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The operator says what a tool does to the world."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not request.user.has_perm("gateway.change_tool"):
            raise PermissionDenied
        tool = Tool.objects.select_related("server").filter(pk=pk).first()
        if tool is None:
            raise Http404("There is no such tool.")
        principal = user_principal(request.user)
        try:
            with transaction.atomic():
                services.mark(tool, request.POST.get("effect_class", tool.effect_class), principal=principal)
                key = request.POST.get("idempotency_argument", tool.idempotency_argument)
                map_key(tool, key.strip(), principal=principal)
        except MeahError as error:
            messages.error(request, visible(f"{error.message} {error.hint}"))
        else:
            messages.success(request, visible(f"{tool} is a {tool.effect_class} tool."))
        return redirect("admin:gateway_tool_change", pk)


def diff_lines(tool: Tool) -> list[tuple[str, str]]:
    """What differs between what was accepted and what the server says now: (plus | minus | "", line)."""
    kinds = {"+": "plus", "-": "minus"}
    return [(kinds.get(line[:1], ""), line) for line in services.changes_of(tool)]
