"""The one switch, on a page of its own."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from approvals import services
from approvals.models import Approval, ApprovalState, Call, CallState, Halt
from approvals.readonly import ReadOnlyAdmin
from audit.models import Entry
from audit.services import user_principal

PERMISSION = "approvals.halt"
MAX_ENTRIES = 10


@admin.register(Halt)
class HaltAdmin(ReadOnlyAdmin):
    """The list's address is the page of the switch."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(PERMISSION)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def change_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return redirect("admin:approvals_halt_changelist")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            self._switch(request)
            return redirect("admin:approvals_halt_changelist")
        context = self.admin_site.each_context(request) | {
            "title": "Halt",
            "opts": self.opts,
            "halt": Halt.objects.filter(pk=1).first(),
            "waiting": Approval.objects.filter(
                state__in=[ApprovalState.PENDING, ApprovalState.APPROVED], call__state=CallState.HELD
            ).count(),
            "sending": Call.objects.filter(state=CallState.SENDING).count(),
            "entries": list(Entry.objects.filter(kind__startswith="halt.").order_by("-seq")[:MAX_ENTRIES]),
        }
        return render(request, "admin/approvals/halt/page.html", context)

    def _switch(self, request: HttpRequest) -> None:
        principal, reason = user_principal(request.user), request.POST.get("reason", "").strip()
        if request.POST.get("switch") == "resume":
            services.resume(principal=principal)
            messages.success(request, "Calls go through the policy again.")
        elif request.POST.get("switch") != "halt" or not reason:
            messages.error(request, "Say why: agents and people read it.")
        else:
            ended = services.halt(principal=principal, reason=reason)
            messages.success(request, f"Halted. Open requests that are void now: {ended}.")
