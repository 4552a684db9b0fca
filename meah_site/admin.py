"""The admin site: stock Django admin under our own name, with an overview as its index."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import AbstractUser
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path

from audit.services import record, user_principal
from core.errors import MeahError
from core.text import visible

# What is looked at most comes first; what is not named here follows in the admin's own order.
APP_ORDER: Final = ("workers", "approvals", "gateway", "audit", "auth")
MODEL_ORDER: Final = (
    *("Worker", "Provider", "RoleRoute", "WorkerSettings"),
    *("Approval", "Call", "Halt", "Rule", "ApprovalSettings", "Token", "Webhook", "Delivery", "Process"),
    *("Server", "Tool", "GatewaySettings"),
)
# Where the page is about something else than rows of that model.
MODEL_NAMES: Final = {"Approval": "Requests", "Halt": "Halt", "Delivery": "Messages to webhooks"}
View = Callable[..., HttpResponseBase]


class MeahAdminSite(AdminSite):
    site_header = "MEAH"
    site_title = "MEAH"
    index_title = "Overview"
    site_url = None

    def get_urls(self) -> list[URLPattern | URLResolver]:
        # Late: the console's socket needs the apps to be loaded.
        from meah_site.console import views as console

        return [
            path("set-password/", self.admin_view(self.set_password), name="set_password"),
            path("console/", self.admin_view(console.console), name="console"),
            path("console/rows/", self.admin_view(console.rows_page), name="console_rows"),
            path("console/rows/<str:public_id>/", self.admin_view(console.worker_text), name="console_text"),
            path("console/cancel/", self.admin_view(console.cancel), name="console_cancel"),
            path("console/compare/", self.admin_view(console.compare), name="console_compare"),
            *super().get_urls(),
        ]

    def admin_view(self, view: View, cacheable: bool = False) -> Any:
        return super().admin_view(_with_error_page(self, view), cacheable)

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        apps: list[Any] = super().get_app_list(request, app_label)
        for app in apps:
            app["models"].sort(key=lambda model: _place(model["object_name"], MODEL_ORDER))
            for model in app["models"]:
                model["name"] = MODEL_NAMES.get(model["object_name"], model["name"])
        return sorted(apps, key=lambda app: _place(app["app_label"], APP_ORDER))

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        from meah_site.overview import overview

        return super().index(request, (extra_context or {}) | overview(request.user))

    def set_password(self, request: HttpRequest) -> HttpResponse:
        """For whoever came in by a link and has no password yet; with one, the usual page asks for the old one."""
        user = request.user
        assert isinstance(user, AbstractUser)  # `admin_view` lets nobody else in
        if user.has_usable_password():
            return redirect("admin:password_change")
        form = SetPasswordForm(user, request.POST or None)
        if request.method == "POST" and form.is_valid():
            with transaction.atomic():
                form.save()
                _record_password(request)
            update_session_auth_hash(request, user)
            messages.success(request, f"The password of {user.get_username()} is set.")
            return redirect("admin:index")
        context = self.each_context(request) | {"form": form, "title": "Set a password"}
        return render(request, "meah/set_password.html", context)

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        with transaction.atomic():
            response = super().password_change(request, extra_context)
            if request.method == "POST" and response.status_code == 302:
                _record_password(request)
        return response


def _place(name: str, order: tuple[str, ...]) -> int:
    return order.index(name) if name in order else len(order)


def _record_password(request: HttpRequest) -> None:
    """That it changed, never what it is."""
    record("user.password_set", principal=user_principal(request.user), subject=request.user.get_username())


def _with_error_page(site: AdminSite, view: View) -> View:
    """What a service refuses is a page that says why and what to do, not a server error."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(request, *args, **kwargs)
        except MeahError as error:
            shown = {"code": error.code, "message": visible(error.message), "hint": visible(error.hint)}
            context = site.each_context(request) | {"title": "That did not work", "error": shown}
            return render(request, "meah/error.html", context, status=error.http_status)

    return guarded
