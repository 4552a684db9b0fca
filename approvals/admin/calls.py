"""Calls: what was sent where, how it ended, and a person's word on what could not be known."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals import endings, services
from approvals.admin.request_page import call_context, outcome_context
from approvals.display import badge, duration, moment
from approvals.models import Approval, Call, CallState
from approvals.queue import asker_of, entries_about, retry_of
from approvals.readonly import ReadOnlyAdmin
from core.errors import MeahError
from core.text import visible

RESOLVE = "approvals.resolve_call"
TEXTS = ("arguments", "result")
MAX_RESULTS = 50


@admin.register(Call)
class CallAdmin(ReadOnlyAdmin):
    list_display = ("shown_state", "what", "effect_class", "read_back", "door", "shown_principal", "created", "took")
    list_display_links = None
    list_filter = ("state", "effect_class", "verification", "door", ("created_at", admin.DateFieldListFilter))
    search_fields = ("public_id", "server", "tool", "principal", "step")
    search_help_text = "Id, server, tool, principal or step"
    change_list_template = "admin/approvals/call/change_list.html"
    change_form_template = "admin/approvals/call/change_form.html"
    fields = ("public_id",)
    readonly_fields = fields

    # -- the list

    def get_queryset(self, request: HttpRequest) -> QuerySet[Call]:
        rows: QuerySet[Call] = super().get_queryset(request)
        return rows.defer(*TEXTS)

    @admin.display(description="state", ordering="state")
    def shown_state(self, call: Call) -> SafeString:
        return badge(call.state)

    @admin.display(description="call", ordering="tool")
    def what(self, call: Call) -> SafeString:
        url = reverse("admin:approvals_call_change", args=[call.pk])
        name = visible(f"{call.server}/{call.tool}")
        return format_html('<a href="{}">{}</a><div class="meah-id">{}</div>', url, name, call.public_id)

    @admin.display(description="read back", ordering="verification")
    def read_back(self, call: Call) -> SafeString | str:
        return "–" if call.verification == "none" else badge(call.verification)

    @admin.display(description="principal", ordering="principal")
    def shown_principal(self, call: Call) -> str:
        return visible(call.principal)

    @admin.display(description="created", ordering="id")
    def created(self, call: Call) -> SafeString | str:
        return moment(call.created_at)

    @admin.display(description="took")
    def took(self, call: Call) -> str:
        return duration(_took_ms(call))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {
            "title": "Calls",
            "is_empty": not Call.objects.exists(),
            "unknown": Call.objects.filter(state=CallState.UNKNOWN).count(),
        }
        return super().changelist_view(request, context | (extra_context or {}))

    # -- rights

    def may_resolve(self, request: HttpRequest) -> bool:
        return request.user.has_perm(RESOLVE)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_resolve(request) or super().has_view_permission(request, obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.may_resolve(request) or super().has_module_permission(request)

    # -- one call

    def get_urls(self) -> list[URLPattern]:
        resolve = path(
            "<str:public_id>/resolve/", self.admin_site.admin_view(self.resolve), name="approvals_call_resolve"
        )
        return [resolve, *super().get_urls()]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Call | None:
        """By public id, which is what people and entries have; or by key."""
        field = "pk" if object_id.isdigit() else "public_id"
        return Call.objects.filter(**{field: object_id}).first()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        call = self.get_object(request, object_id)
        if call is None or not self.has_view_permission(request, call):
            return super().change_view(request, object_id, form_url, extra_context)
        context = _context(call) | {"may_resolve": self.may_resolve(request), "live": "live" in request.GET}
        # By key: the admin takes `_23` in an id for an escape of its own.
        return super().change_view(request, str(call.pk), form_url, context | (extra_context or {}))

    def resolve(self, request: HttpRequest, public_id: str) -> HttpResponse:
        """The page that asks whether an unknown call happened; its buttons say so."""
        if not self.may_resolve(request):
            raise PermissionDenied
        call = self.get_object(request, public_id)
        if call is None:
            raise Http404(f"There is no call {public_id}.")
        if request.method == "POST" and self._resolved(request, call):
            return redirect("admin:approvals_call_change", call.pk)
        if call.state != CallState.UNKNOWN:
            messages.warning(request, f"The call {call.public_id} is not unknown: it is {call.state}.")
            return redirect("admin:approvals_call_change", call.pk)
        context = self.admin_site.each_context(request) | call_context(call)
        context |= {
            "title": f"Did {visible(call.server)}/{visible(call.tool)} happen?",
            "opts": self.opts,
            "asker": asker_of(call.principal),
            "note": request.POST.get("note", ""),
            "note_chars": endings.MAX_NOTE_CHARS,
            **outcome_context(call),
        }
        return render(request, "admin/approvals/call/resolve.html", context)

    def _resolved(self, request: HttpRequest, call: Call) -> bool:
        happened = {"yes": True, "no": False}.get(request.POST.get("happened", ""))
        if happened is None:
            messages.error(request, "Say whether it happened.")
            return False
        note = request.POST.get("note", "")[: endings.MAX_NOTE_CHARS]
        try:
            services.resolve_unknown(call, happened=happened, user=request.user, note=note)
        except MeahError as error:
            messages.error(request, visible(f"{error.message} {error.hint}"))
            call.refresh_from_db()
            return False
        messages.success(request, f"Recorded: {call.public_id} {'happened' if happened else 'did not happen'}.")
        return True


def _took_ms(call: Call) -> int | None:
    if call.finished_at is None:
        return None
    return round((call.finished_at - (call.sending_at or call.created_at)).total_seconds() * 1000)


def _context(call: Call) -> dict[str, Any]:
    approval = Approval.objects.filter(call=call).first()
    return {
        "title": visible(f"{call.server}/{call.tool}"),
        "subtitle": None,
        "approval": approval,
        "asker": asker_of(call.principal, approval.requested_by if approval else None),
        "is_live": call.state in Call.OPEN,
        "took_ms": _took_ms(call),
        "retry": retry_of(call, approval),
        "led_to": _led_to(call),
        "entries": entries_about(call.public_id),
        **call_context(call),
        **outcome_context(call),
    }


def _led_to(call: Call) -> list[tuple[str, str]]:
    """The rows that stand for what the call did, whichever app they belong to, as links."""
    return [
        (reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk]), visible(str(row)))
        for relation in Call._meta.related_objects
        if relation.related_model is not Approval
        for row in relation.related_model._base_manager.filter(**{relation.field.name: call})[:MAX_RESULTS]
    ]
