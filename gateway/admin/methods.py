"""Methods in the admin: written, drawn, reviewed, run with a form that their input schema makes."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.display import badge
from approvals.inspection import shown_json
from approvals.readonly import ReadOnlyAdmin
from audit.services import user_principal
from core.errors import MeahError
from core.text import one_line, visible
from gateway import manifest, method_runs, methods
from gateway.admin.schema_form import InputForm
from gateway.admin.step_drawing import draw
from gateway.models import Method, MethodRun, MethodVersion

MAX_VERSIONS = 100
MAX_RUNS = 20
RUN = "gateway.add_methodrun"


class ManifestForm(forms.Form):
    manifest = forms.CharField(
        strip=False,
        widget=forms.Textarea(attrs={"rows": 28, "class": "vLargeTextField meah-code", "spellcheck": "false"}),
        help_text="JSON. `manage.py methods schema` prints what it may hold.",
    )


@admin.register(Method)
class MethodAdmin(ReadOnlyAdmin):
    list_display = ("shown_name", "highest", "reviewed", "last_run")
    list_display_links = ("shown_name",)
    search_fields = ("name",)
    change_list_template = "admin/gateway/method/change_list.html"

    @admin.display(description="method", ordering="name")
    def shown_name(self, method: Method) -> str:
        return visible(method.name)

    @admin.display(description="highest version")
    def highest(self, method: Method) -> str:
        version = method.versions.order_by("-order").first()
        return f"{version.version} ({version.effects})" if version else "–"

    @admin.display(description="reviewed")
    def reviewed(self, method: Method) -> SafeString | str:
        version = method.versions.exclude(reviewed_by="").order_by("-order").first()
        if version is None:
            return badge("waiting", "not yet")
        return format_html("{} {}", badge("accepted", version.version), visible(version.reviewed_by))

    @admin.display(description="last run")
    def last_run(self, method: Method) -> SafeString | str:
        run = MethodRun.objects.filter(version__method=method).first()
        if run is None:
            return "–"
        return format_html(
            '<a href="{}">{}</a>', reverse("admin:gateway_methodrun_change", args=[run.pk]), badge(run.state)
        )

    # -- rights

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(methods.REVIEW) or super().has_view_permission(request, obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(methods.REVIEW) or super().has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("gateway.add_methodversion"))

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("version/<int:pk>/review/", view(self.review), name="gateway_method_review"),
            path("version/<int:pk>/run/", view(self.run), name="gateway_method_run"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"title": "Methods", "is_empty": not Method.objects.exists()}
        return super().changelist_view(request, context | (extra_context or {}))

    # -- one Method

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        method = Method.objects.filter(pk=object_id).first() if object_id.isdigit() else None
        if method is None or not self.has_view_permission(request, method):
            return super().change_view(request, object_id, form_url, extra_context)
        versions = list(method.versions.order_by("-order")[:MAX_VERSIONS])
        wanted = request.GET.get("version", "")
        chosen = next((one for one in versions if str(one.pk) == wanted), versions[0] if versions else None)
        return self._page(request, chosen, versions) if chosen else redirect("admin:gateway_method_changelist")

    def _page(
        self, request: HttpRequest, chosen: MethodVersion, versions: list[MethodVersion], form: InputForm | None = None
    ) -> HttpResponse:
        found = manifest.stored(chosen.manifest)
        shown = methods.preview(chosen.manifest)
        context = self.admin_site.each_context(request) | {
            "title": visible(chosen.method.name),
            "opts": self.opts,
            "version": chosen,
            "versions": versions,
            "description": visible(chosen.description),
            "spec": found.spec,
            "drawing": draw(found.spec),
            "remarks": [visible(remark) for remark in (*shown.problems, *shown.warnings)],
            "text": shown_json(chosen.manifest, indent=2),
            "form": form or InputForm(found.spec.input_schema),
            "runs": MethodRun.objects.filter(version__method=chosen.method)[:MAX_RUNS],
            "may_review": request.user.has_perm(methods.REVIEW),
            "may_run": request.user.has_perm(RUN),
            "writes_allowed": not found.writes or methods.writes_allowed(False),
        }
        return render(request, "admin/gateway/method/page.html", context)

    # -- review

    def review(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Mark exactly the manifest that was shown as reviewed, or take that back."""
        version = self._posted_to(request, pk)
        try:
            if request.POST.get("withdraw") == "yes":
                methods.withdraw(version, user=request.user)
                messages.success(request, f"{visible(str(version))} is not offered to agents any more.")
            else:
                methods.review(version, user=request.user, digest=request.POST.get("digest", ""))
                messages.success(request, f"{visible(str(version))} is reviewed: agents may run it.")
        except MeahError as error:
            if error.code == "E_PERMISSION":
                raise PermissionDenied from error
            messages.error(request, visible(f"{error.message} {error.hint}"))
        return _to_page(version)

    def _posted_to(self, request: HttpRequest, pk: int) -> MethodVersion:
        version = MethodVersion.objects.select_related("method").filter(pk=pk).first()
        if version is None or request.method != "POST":
            raise Http404("There is nothing to see here: it is a button of a Method's page.")
        if not self.has_view_permission(request):
            raise PermissionDenied
        return version

    # -- running

    def run(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Begun here, driven by whichever MEAH process sees it first."""
        version = self._posted_to(request, pk)
        if not request.user.has_perm(RUN):
            raise PermissionDenied
        form = InputForm(manifest.stored(version.manifest).spec.input_schema, request.POST)
        if form.is_valid():
            try:
                run = method_runs.start(
                    methods.runnable(version.method.name, version.version),
                    form.value(),
                    principal=user_principal(request.user),
                    door="admin",
                    owner="",
                    user_id=request.user.pk,
                    allow_writes=False,
                )
            except MeahError as error:
                form.add_error(None, visible(f"{error.message} {error.hint}"))
            else:
                return redirect("admin:gateway_methodrun_change", run.pk)
        versions = list(version.method.versions.order_by("-order")[:MAX_VERSIONS])
        return self._page(request, version, versions, form)

    # -- writing

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A manifest as text; a change of one is begun from its text and becomes another version."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        if request.method not in {"GET", "POST"}:
            return HttpResponseNotAllowed(["GET", "POST"])
        form = ManifestForm(request.POST or None, initial={"manifest": _beginning(request.GET.get("from", ""))})
        shown = None
        if request.method == "POST" and form.is_valid():
            try:
                shown = methods.preview(form.cleaned_data["manifest"])
                if "save" in request.POST:
                    return _to_page(methods.add(shown, principal=user_principal(request.user)))
            except MeahError as error:
                form.add_error("manifest", visible(error.message))
        context = self.admin_site.each_context(request) | {
            "title": "Write a Method",
            "opts": self.opts,
            "form": form,
            "shown": shown,
            "drawing": draw(shown.manifest.spec) if shown else None,
            "remarks": [visible(remark) for remark in (*shown.problems, *shown.warnings)] if shown else [],
        }
        return render(request, "admin/gateway/method/write.html", context)


@admin.register(MethodRun)
class MethodRunAdmin(ReadOnlyAdmin):
    list_display = ("shown_state", "public_id", "what", "who", "created_at")
    list_display_links = ("public_id",)
    list_filter = ("state", "version__method")
    search_fields = ("public_id", "principal")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("version__method").defer("input", "output")

    @admin.display(description="state", ordering="state")
    def shown_state(self, run: MethodRun) -> SafeString:
        return badge(run.state)

    @admin.display(description="method")
    def what(self, run: MethodRun) -> str:
        return visible(str(run.version))

    @admin.display(description="asked by", ordering="principal")
    def who(self, run: MethodRun) -> str:
        return one_line(run.principal, 80)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(methods.REVIEW) or super().has_view_permission(request, obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(methods.REVIEW) or super().has_module_permission(request)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        runs = MethodRun.objects.select_related("version__method")
        run = runs.filter(pk=object_id).first() if object_id.isdigit() else None
        if run is None or not self.has_view_permission(request, run):
            return super().change_view(request, object_id, form_url, extra_context)
        answer = method_runs.as_answer(run)
        context = self.admin_site.each_context(request) | {
            "title": run.public_id,
            "opts": self.opts,
            "run": run,
            "answer": answer,
            "trace": [line | {"tool": visible(f"{line['server']}/{line['tool']}")} for line in answer["trace"]],
            "principal": visible(run.principal),
            "input": shown_json(run.input, indent=2),
            "output": shown_json(run.output, indent=2) if run.output else "",
            "error": visible(run.error["message"]) if run.error else "",
        }
        return render(request, "admin/gateway/methodrun/page.html", context)


def _to_page(version: MethodVersion) -> HttpResponse:
    return redirect(reverse("admin:gateway_method_change", args=[version.method_id]) + f"?version={version.pk}")


def _beginning(pk: str) -> str:
    """The text of a version that is to be changed, or a sketch of a new one."""
    version = MethodVersion.objects.filter(pk=pk).first() if pk.isdigit() else None
    return json.dumps(json.loads(version.manifest) if version else _SKETCH, indent=2, ensure_ascii=False)


_SKETCH = {
    "apiVersion": manifest.API_VERSION,
    "kind": "Method",
    "metadata": {"name": "my.method", "version": "1", "description": "What it is for."},
    "spec": {
        "effects": "read",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "steps": [{"id": "first", "server": "", "tool": "", "args": {}}],
    },
}
