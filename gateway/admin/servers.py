"""Downstream servers: imported, looked at with their tools and pins, refreshed, configured."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.forms import ModelForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.display import badge
from approvals.models import EffectClass
from approvals.processes import ring_after_commit
from audit.audited import AuditedModelAdmin
from audit.services import user_principal
from core.errors import MeahError
from core.text import one_line, visible
from gateway import observations, services
from gateway.admin import starting
from gateway.admin.server_form import ServerForm
from gateway.admin.server_page import accept_context, server_context
from gateway.admin.tool_columns import hints_in_words
from gateway.models import PinState, Server

MAX_CHOICES = 2_000


@admin.register(Server)
class ServerAdmin(AuditedModelAdmin):
    form = ServerForm
    audit_noun: ClassVar[str] = "server"
    list_display = ("shown_state", "shown_name", "where", "exposure", "tools_count", "quarantined_count", "problem")
    list_display_links = ("shown_name",)
    list_filter = ("exposure", "state", "transport")
    search_fields = ("name", "command", "url")
    ordering = ("name",)
    show_facets = admin.ShowFacets.NEVER
    change_list_template = "admin/gateway/server/change_list.html"
    change_form_template = "admin/gateway/server/change_form.html"
    fieldsets = (
        ("Agents", {"fields": ("exposure", "names", "prefix")}),
        (
            "Policy",
            {
                "description": "What its tools get where no rule matches.",
                "fields": ("read_default", "write_default", "destructive_default"),
            },
        ),
        (
            "How it is reached",
            {
                "description": "With another command, other arguments or another URL it is another server: every tool "
                "waits to be accepted again.",
                "fields": ("transport", "command", "args", "env", "inherit_env", "url", "headers", "private"),
            },
        ),
        ("Limits and pins", {"fields": ("timeout_ms", "keep_alive", "concurrent", "pin_scope")}),
    )

    # -- the list

    def get_queryset(self, request: HttpRequest) -> QuerySet[Server]:
        rows: QuerySet[Server] = super().get_queryset(request)
        quarantined = Count("tools", filter=Q(tools__pin_state=PinState.QUARANTINED))
        return rows.annotate(tool_total=Count("tools"), quarantined_total=quarantined)

    @admin.display(description="state", ordering="state")
    def shown_state(self, server: Server) -> SafeString:
        return badge(server.state)

    @admin.display(description="server", ordering="name")
    def shown_name(self, server: Server) -> str:
        return visible(server.name)

    @admin.display(description="reached by", ordering="transport")
    def where(self, server: Server) -> SafeString:
        place = " ".join([server.command, *map(str, server.args)]) if server.transport == "stdio" else server.url
        return format_html('{}<div class="meah-id">{}</div>', server.transport, one_line(place, 120))

    @admin.display(description="tools", ordering="tool_total")
    def tools_count(self, server: Server) -> int:
        return int(getattr(server, "tool_total", 0))

    @admin.display(description="quarantined", ordering="quarantined_total")
    def quarantined_count(self, server: Server) -> SafeString | str:
        count = int(getattr(server, "quarantined_total", 0))
        if not count:
            return "–"
        url = reverse("admin:gateway_server_accept", args=[server.pk])
        return format_html('<a href="{}">{}</a>', url, badge("quarantined", f"{count} to look at"))

    @admin.display(description="last error")
    def problem(self, server: Server) -> str:
        return one_line(server.last_error, 160) or "–"

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"title": "Servers", "is_empty": not Server.objects.exists()}
        return super().changelist_view(request, context | (extra_context or {}))

    # -- rights

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(services.ACCEPT) or super().has_view_permission(request, obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(services.ACCEPT) or super().has_module_permission(request)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Who may delete a server deletes its tools with it."""
        objects, counts, _, protected = super().get_deleted_objects(objs, request)
        return objects, counts, set(), protected

    # -- configuration

    def audit_state(self, obj: Server) -> dict[str, Any]:
        """What the operator configured; what processes report is no change of theirs."""
        return services.configuration(obj)

    def save_model(self, request: HttpRequest, obj: Server, form: ModelForm[Any], change: bool) -> None:
        # Only what the form is about: a process may report a state in this very moment.
        obj.save(update_fields=[name for name in services.configuration(obj) if name != "name"])
        ring_after_commit()

    def delete_model(self, request: HttpRequest, obj: Server) -> None:
        self._void_held(obj)
        super().delete_model(request, obj)
        ring_after_commit()

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Server]) -> None:
        with transaction.atomic():
            for server in queryset:
                self._void_held(server)
            super().delete_queryset(request, queryset)
            ring_after_commit()

    def _void_held(self, server: Server) -> None:
        observations.void_held_calls(server.name, server.tools.values_list("name", flat=True))

    # -- one server

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<int:pk>/refresh/", view(self.refresh), name="gateway_server_refresh"),
            path("<int:pk>/accept/", view(self.accept), name="gateway_server_accept"),
            path("<int:pk>/classes/", view(self.classes), name="gateway_server_classes"),
            *super().get_urls(),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        server = self.get_object(request, object_id)
        if server is None or not self.has_view_permission(request, server):
            return super().change_view(request, object_id, form_url, extra_context)
        context = server_context(server) | {
            "may_refresh": self.has_change_permission(request, server),
            "may_mark": request.user.has_perm("gateway.change_tool"),
            "may_accept": request.user.has_perm(services.ACCEPT),
            "show_save_and_add_another": False,
            "configures": request.method == "POST" or "configure" in request.GET,
        }
        return super().change_view(request, object_id, form_url, context | (extra_context or {}))

    def refresh(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Start it, list its tools, compare them with their pins."""
        server = self._posted_to(request, pk, may=self.has_change_permission(request))
        shown = starting.refreshed(server, principal=user_principal(request.user))
        if shown.problems:
            messages.error(request, visible(f"It can not be started: {' '.join(shown.problems)}"))
        elif not shown.probe.worked:
            messages.error(request, one_line(f"It did not answer: {shown.probe.error}", 600))
        else:
            waiting = server.tools.filter(pin_state=PinState.QUARANTINED).count()
            messages.success(request, f"It lists {len(shown.probe.tools)} tools.")
            if waiting:
                messages.warning(request, f"Tools that are not as they were accepted: {waiting}.")
        return redirect("admin:gateway_server_change", pk)

    def classes(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The operator says of several tools what they do to the world."""
        server = self._posted_to(request, pk, may=request.user.has_perm("gateway.change_tool"))
        principal, changed = user_principal(request.user), 0
        with transaction.atomic():
            for tool in server.tools.all()[:MAX_CHOICES]:
                wanted = request.POST.get(f"class_{tool.pk}", tool.effect_class)
                if wanted != tool.effect_class and wanted in EffectClass.values:
                    services.mark(tool, wanted, principal=principal)
                    changed += 1
        messages.success(request, f"Classes changed: {changed}.")
        return redirect("admin:gateway_server_change", pk)

    def _posted_to(self, request: HttpRequest, pk: int, *, may: bool) -> Server:
        if not may:
            raise PermissionDenied
        server = Server.objects.filter(pk=pk).first()
        if server is None or request.method != "POST":
            raise Http404("There is nothing to see here: it is a button of a server's page.")
        return server

    # -- pins

    def accept(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The differences, and a button that accepts exactly what was shown."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        server = Server.objects.filter(pk=pk).first()
        if server is None:
            raise Http404("There is no such server.")
        if request.method not in {"GET", "POST"}:
            return HttpResponseNotAllowed(["GET", "POST"])
        if request.method == "POST" and self._accepted(request, server):
            return redirect("admin:gateway_server_change", pk)
        context = self.admin_site.each_context(request) | accept_context(server, only=request.GET.get("tool", ""))
        context |= {
            "title": f"Tools of {visible(server.name)} to look at",
            "opts": self.opts,
            "may_accept": request.user.has_perm(services.ACCEPT),
        }
        return render(request, "admin/gateway/server/accept.html", context)

    def _accepted(self, request: HttpRequest, server: Server) -> bool:
        chosen = set(request.POST.getlist("tool"))
        every = request.POST.get("every") == "yes"
        shown = [tool for tool in server.tools.all() if every or str(tool.pk) in chosen]
        pins = {tool.name: request.POST.get(f"pin_{tool.pk}", "") for tool in shown}
        choices = {name: pin for name, pin in pins.items() if pin}
        classes = {tool.name: wanted for tool in shown if (wanted := request.POST.get(f"class_{tool.pk}", ""))}
        if not choices:
            messages.error(request, "Tick what you accept.")
            return False
        if not set(classes.values()) <= set(EffectClass.values):
            messages.error(request, f"A class is one of {', '.join(EffectClass.values)}.")
            return False
        try:
            accepted = services.accept(server, choices, user=request.user, classes=classes)
        except MeahError as error:
            if error.code == "E_PERMISSION":
                raise PermissionDenied from error
            messages.error(request, visible(f"{error.message} {error.hint}"))
            return False
        names = one_line(", ".join(tool.name for tool in accepted), 500)
        messages.success(request, f"Accepted: {names}.")
        return True

    # -- import

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """An .mcp.json text: what it would do is shown, and done only if that is still so when it is confirmed."""
        if not (self.has_add_permission(request) and self.has_change_permission(request)):
            raise PermissionDenied
        form = starting.ImportForm(request.POST or None, initial={"directory": str(settings.BASE_DIR)})
        context = self.admin_site.each_context(request) | {"title": "Import servers", "opts": self.opts, "form": form}
        if request.method == "POST" and form.is_valid():
            previews = starting.previews_of(form.entries, form.cleaned_data["exposure"] or None)
            shown = starting.digest_of(previews)
            if request.POST.get("confirmed") == shown:
                return self._imported(request, previews)
            if request.POST.get("confirmed"):
                messages.error(request, "It is not what you were shown any more: look again.")
            context |= {
                "previews": [(one, [(tool, hints_in_words(tool.hints)) for tool in one.tools]) for one in previews],
                "shown_digest": shown,
                "applicable": [one for one in previews if not one.problems],
            }
        return render(request, "admin/gateway/server/import.html", context)

    def _imported(self, request: HttpRequest, previews: list[services.Preview]) -> HttpResponse:
        added = services.apply(previews, principal=user_principal(request.user))
        names = one_line(", ".join(server.name for server in added), 500)
        messages.success(request, f"Applied: {names or 'nothing'}.")
        if len(added) == 1:
            return redirect("admin:gateway_server_change", added[0].pk)
        return redirect("admin:gateway_server_changelist")
