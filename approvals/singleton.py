"""Settings that are one row, in the admin: a form without a list, which saving makes."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse

from audit.audited import AuditedModelAdmin


class SingletonAdmin(AuditedModelAdmin):
    """The row with the key 1, or its defaults while there is none."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return redirect(self._page())

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        titles = {"title": str(self.opts.verbose_name).capitalize(), "subtitle": None}
        return super().change_view(request, object_id, form_url, titles | (extra_context or {}))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        if object_id != "1":
            return None
        if request.method == "POST":
            return self.model._default_manager.get_or_create(pk=1)[0]
        return self.model._default_manager.filter(pk=1).first() or self.model(pk=1)

    def response_post_save_change(self, request: HttpRequest, obj: Any) -> HttpResponseRedirect:
        return redirect(self._page())

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def _page(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[1])
