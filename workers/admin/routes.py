"""Role routes: every role is in the list, whether or not somebody has set its route."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from audit.audited import AuditedModelAdmin
from core.errors import MeahError
from core.text import visible
from workers.admin.environment import (
    FromEnvironmentMixin,
    Shown,
    configuration,
    from_environment,
    role_variable,
)
from workers.config_fields import ROUTE_FIELDS
from workers.config_kinds import SettingError
from workers.models import RoleRoute
from workers.roles import ROLES, system_prompt
from workers.routing import MOCK, Choice, Config, RouteConfig, choose

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[RoleRoute]
else:
    ModelForm = forms.ModelForm


@dataclass(frozen=True)
class RouteLine:
    """A role in the list. `where` is what its tasks get now, `problem` says why they get nothing."""

    role: str
    summary: str
    route: RouteConfig
    url: str
    where: Choice | None
    problem: str
    variables: tuple[str, ...]


class RoleRouteForm(ModelForm):
    provider = forms.ChoiceField(required=False, help_text="Empty: the only provider there is, or the call must say.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "provider" not in self.fields:
            return
        config, _ = configuration()
        names = [*sorted(config.providers), MOCK]
        if self.instance.provider and self.instance.provider not in names:
            names.append(self.instance.provider)
        choices = [("", "---------"), *((name, _label(name, config)) for name in names)]
        self.fields["provider"] = forms.ChoiceField(
            choices=choices, required=False, help_text=self.fields["provider"].help_text
        )

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or {}
        for field in ROUTE_FIELDS:
            try:
                if field.name in cleaned:
                    field.check(cleaned[field.name])
            except SettingError as error:
                self.add_error(field.name, ValidationError(f"This {error.problem}. {error.fix}"))
        self._check_model(cleaned)
        return cleaned

    def _check_model(self, cleaned: dict[str, Any]) -> None:
        provider = configuration()[0].provider(cleaned.get("provider") or "")
        model = cleaned.get("model")
        if provider and model and not provider.accepts(model):
            known = ", ".join(provider.known_models)
            self.add_error("model", ValidationError(f"{provider.name} does not list this model. It lists: {known}."))


def _label(name: str, config: Config) -> str:
    if name == MOCK:
        return "mock (built in, offline)"
    return name if name in config.providers else f"{name} (no longer configured)"


@admin.register(RoleRoute)
class RoleRouteAdmin(FromEnvironmentMixin, AuditedModelAdmin):
    form = RoleRouteForm
    audit_noun: ClassVar[str] = "route"
    change_list_template = "admin/workers/roleroute/change_list.html"
    fieldsets = (
        (None, {"fields": ("role", "provider", "model", "max_output_tokens", "temperature")}),
        ("Prompt", {"fields": ("system_prompt", "built_in_prompt")}),
    )
    readonly_fields = ("role", "built_in_prompt")

    @admin.display(description="built-in prompt")
    def built_in_prompt(self, route: RoleRoute) -> SafeString:
        return format_html('<pre class="meah-text">{}</pre>', system_prompt(route.role))

    def overridden(self, obj: RoleRoute | None) -> dict[str, Shown]:
        if obj is None:
            return {}
        route = configuration()[0].route(obj.role)
        return {
            name: from_environment(RoleRoute, name, getattr(route, name), role_variable(obj.role, name))
            for name in route.from_env
        }

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> RoleRoute | None:
        """By the role's name, whether or not it has a row: only saving makes one."""
        if object_id not in ROLES:
            return super().get_object(request, object_id, from_field)
        return RoleRoute.objects.filter(role=object_id).first() or RoleRoute(role=object_id)

    def save_model(self, request: HttpRequest, obj: RoleRoute, form: Any, change: bool) -> None:
        if obj._state.adding:
            obj.pk = RoleRoute.objects.get_or_create(role=obj.role)[0].pk
            obj._state.adding = False
        super().save_model(request, obj, form, change)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        config, error = configuration()
        lines = [_line(role, config) for role in ROLES]
        context = {"title": "Role routes", "lines": lines, "config_error": error}
        return super().changelist_view(request, context | (extra_context or {}))


def _line(role: str, config: Config) -> RouteLine:
    where, problem = None, ""
    try:
        where = choose(config, role=role)
    except MeahError as error:
        problem = visible(f"{error.message} {error.hint}")
    route = config.route(role)
    variables = tuple(role_variable(role, name) for name in sorted(route.from_env))
    url = reverse("admin:workers_roleroute_change", args=[role])
    return RouteLine(role, ROLES[role].summary, route, url, where, problem, variables)
