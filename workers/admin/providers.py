"""Providers: where they are, which of them have their key, and whether they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from approvals.display import badge
from approvals.processes import living
from audit.audited import AuditedModelAdmin
from audit.services import user_principal
from core.text import visible
from workers.admin.environment import (
    FromEnvironmentMixin,
    Shown,
    configuration,
    from_environment,
    provider_variable,
)
from workers.admin.provider_forms import ProviderForm, ProviderModelForm
from workers.key_display import shown_key
from workers.key_state import key_state
from workers.learned import forget
from workers.models import Provider, ProviderModel
from workers.presets import PRESETS
from workers.probe import QUESTION, WITHIN_S, try_out
from workers.routing import ProviderConfig

if TYPE_CHECKING:
    TabularInline = admin.TabularInline[ProviderModel, Provider]
else:
    TabularInline = admin.TabularInline

MAX_MODELS_SHOWN = 500


class ProviderModelInline(TabularInline):
    model = ProviderModel
    form = ProviderModelForm
    verbose_name = "model"
    verbose_name_plural = "models and prices"
    extra = 0
    fields = ("name", "listed", "input_price", "output_price", "currency", "learned")
    readonly_fields = ("learned",)

    @admin.display(description="learned from its answers")
    def learned(self, model: ProviderModel) -> SafeString | str:
        """What the client does differently for this model, with the sentence that taught it."""
        if not model.pk or not model.adaptations:
            return "nothing"
        lessons = format_html_join("", "<li>{} <q>{}</q></li>", (_lesson(item) for item in model.adaptations))
        url = reverse("admin:workers_provider_forget", args=[model.pk])
        when = f"{model.learned_at:%Y-%m-%d %H:%M} UTC" if model.learned_at else "an unknown time"
        return format_html('<ul>{}</ul>{}, <a href="{}">reset what was learned</a>', lessons, when, url)


def _lesson(item: dict[str, Any]) -> tuple[str, str]:
    name, value = visible(str(item.get("field"))), visible(str(item.get("value")))
    what = {
        "drop": f"{name} is not sent",
        "rename": f"{name} is sent as {value}",
        "clamp": f"{name} is at most {value}",
    }
    return what.get(str(item.get("action")), name), visible(str(item.get("evidence", "")))


class ProviderList:
    """The columns of one view of the list: what is in force at that moment, read once."""

    def __init__(self) -> None:
        self.config, self.error = configuration()
        self.processes = living()

    @admin.display(description="base URL")
    def base_url(self, row: Provider) -> SafeString | str:
        provider = self.config.providers.get(row.name)
        return visible(provider.base_url) if provider else badge("not_set", "no address")

    @admin.display(description="default model")
    def model(self, row: Provider) -> str:
        provider = self.config.providers.get(row.name)
        return visible(provider.model) if provider and provider.model else "–"

    @admin.display(description="key")
    def key(self, row: Provider) -> SafeString:
        provider = self.config.providers.get(row.name)
        return shown_key(key_state(provider.api_key_env if provider else row.api_key_env, self.processes))

    @admin.display(description="environment")
    def origin(self, row: Provider) -> SafeString | str:
        provider = self.config.providers.get(row.name)
        names = sorted(provider.from_env) if provider else []
        marks = ((provider_variable(row.name, name),) for name in names)
        return format_html_join("", '<div class="meah-env"><code>{}</code></div>', marks) or "–"

    @admin.display(description="test")
    def test(self, row: Provider) -> SafeString:
        url = reverse("admin:workers_provider_test", args=[row.name])
        return format_html('<a href="{}">Test<span class="visually-hidden"> {}</span></a>', url, row.name)

    def from_environment_only(self, rows: set[str]) -> list[dict[str, Any]]:
        """Providers that have no row, for the table below the list."""
        only = [self.config.providers[name] for name in sorted(self.config.providers) if name not in rows]
        return [
            {
                "provider": provider,
                "key": key_state(provider.api_key_env, self.processes),
                "variables": [provider_variable(provider.name, name) for name in sorted(provider.from_env)],
            }
            for provider in only
        ]


@admin.register(Provider)
class ProviderAdmin(FromEnvironmentMixin, AuditedModelAdmin):
    form = ProviderForm
    inlines = (ProviderModelInline,)
    audit_noun: ClassVar[str] = "provider"
    search_fields = ("name", "base_url", "description")
    change_list_template = "admin/workers/provider/change_list.html"
    change_form_template = "admin/workers/provider/change_form.html"
    fieldsets = ((None, {"fields": ("name", "base_url", "api_key_env", "model", "description", "private")}),)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<str:name>/test/", view(self.test), name="workers_provider_test"),
            path("models/<int:pk>/forget/", view(self.forget), name="workers_provider_forget"),
            *super().get_urls(),
        ]

    def get_list_display(self, request: HttpRequest) -> Any:
        shown = ProviderList()
        return ("name", shown.base_url, shown.model, shown.key, shown.origin, shown.test)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        rows = set(Provider.objects.values_list("name", flat=True))
        shown = ProviderList()
        context: dict[str, Any] = {
            "title": "Providers",
            "environment_only": shown.from_environment_only(rows),
            "config_error": shown.error,
            "presets": list(PRESETS.values()),
            "is_empty": not rows and not shown.config.providers,
        }
        return super().changelist_view(request, context | (extra_context or {}))

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        preset = PRESETS.get(request.GET.get("preset", ""))
        if preset is None:
            return {}
        return {
            "name": preset.name,
            "base_url": preset.base_url,
            "api_key_env": preset.api_key_env,
            "model": preset.model,
            "description": preset.description,
        }

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None) -> Any:
        chosen = PRESETS.get(request.GET.get("preset", ""))
        context = {"presets": list(PRESETS.values()), "chosen": chosen} | (extra_context or {})
        return super().add_view(request, form_url, context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> Any:
        row = self.get_object(request, object_id)
        provider = configuration()[0].providers.get(row.name) if row else None
        key = key_state(provider.api_key_env, living()) if provider else None
        models = provider_variable(provider.name, "models") if provider and "models" in provider.from_env else ""
        context = {"key": key, "models_variable": models, "provider": provider} | (extra_context or {})
        return super().change_view(request, object_id, form_url, context)

    def overridden(self, obj: Provider | None) -> dict[str, Shown]:
        provider = configuration()[0].providers.get(obj.name) if obj else None
        if provider is None:
            return {}
        return {
            name: from_environment(Provider, name, getattr(provider, name), provider_variable(provider.name, name))
            for name in provider.from_env - {"models"}
        }

    def get_readonly_fields(self, request: HttpRequest, obj: Provider | None = None) -> Any:
        fields = super().get_readonly_fields(request, obj)
        # Routes, workers and variables refer to it by name.
        return [*fields, "name"] if obj else fields

    def save_model(self, request: HttpRequest, obj: Provider, form: ProviderForm, change: bool) -> None:
        if form.pasted_url and form.pasted_url != obj.base_url:
            text = f"The base URL is kept as {obj.base_url}: MEAH appends /chat/completions itself."
            messages.info(request, visible(text))
        super().save_model(request, obj, form, change)

    def response_add(self, request: HttpRequest, obj: Provider, post_url_continue: str | None = None) -> HttpResponse:
        response = super().response_add(request, obj, post_url_continue)
        stays = any(name in request.POST for name in ("_addanother", "_continue", "_popup"))
        return response if stays else redirect("admin:workers_provider_test", obj.name)

    def test(self, request: HttpRequest, name: str) -> HttpResponse:
        """A page that says what will be asked; its button asks."""
        provider = self._provider(request, name)
        may_test = self.has_change_permission(request)
        found = None
        if request.method == "POST":
            if not may_test:
                raise PermissionDenied
            model = request.POST.get("model", "").strip()[:200]
            found = try_out(provider, model=model, principal=user_principal(request.user))
        context = self.admin_site.each_context(request) | {
            "title": f"Test {name}",
            "opts": self.opts,
            "provider": provider,
            "row": Provider.objects.filter(name=name).first(),
            "key": key_state(provider.api_key_env, living()),
            "may_test": may_test,
            "question": QUESTION,
            "within_s": round(WITHIN_S),
            "found": found,
            "wanted": found.model if found else provider.model,
            "models": found.models.ids[:MAX_MODELS_SHOWN] if found and found.models else provider.known_models,
        }
        return render(request, "admin/workers/provider/test.html", context)

    def _provider(self, request: HttpRequest, name: str) -> ProviderConfig:
        if not self.has_view_permission(request):
            raise PermissionDenied
        config, error = configuration()
        provider = config.provider(name)
        if provider is None and error is not None:
            raise error
        if provider is None:
            raise Http404(f"There is no provider {name}.")
        return provider

    def forget(self, request: HttpRequest, pk: int) -> HttpResponse:
        model = get_object_or_404(ProviderModel.objects.select_related("provider"), pk=pk)
        if not self.has_change_permission(request, model.provider):
            raise PermissionDenied
        back = redirect("admin:workers_provider_change", model.provider_id)
        if request.method == "POST":
            if forget(model, principal=user_principal(request.user)):
                messages.success(request, visible(f"What was learned about {model.name} is forgotten."))
            return back
        context = self.admin_site.each_context(request) | {
            "title": "Reset what was learned",
            "opts": self.opts,
            "model": model,
            "lessons": [_lesson(item) for item in model.adaptations],
            "back": back.url,
        }
        return render(request, "admin/workers/provider/forget.html", context)
