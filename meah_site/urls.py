"""Routes: the admin, the one-time login link, and the health check."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import path

from meah_site.installation import installation_id
from meah_site.login_link import login_link


def healthz(request: HttpRequest) -> JsonResponse:
    """The process serves requests, and whose it is; nothing more is asked."""
    return JsonResponse({"status": "ok", "installation": installation_id()})


def root(request: HttpRequest) -> HttpResponse:
    return redirect("admin:index")


urlpatterns = [
    path("", root),
    path("healthz", healthz),
    path("login/<str:token>/", login_link, name="login-link"),
    path("admin/", admin.site.urls),
]
