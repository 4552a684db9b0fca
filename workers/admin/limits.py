"""The limits: one form for one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect

from audit.audited import AuditedModelAdmin
from workers.admin.environment import (
    FromEnvironmentMixin,
    Shown,
    configuration,
    from_environment,
    limit_variable,
    terminal_variable,
)
from workers.config_fields import LIMIT_FIELDS, TERMINAL_FIELDS
from workers.config_kinds import SettingError
from workers.models import WorkerSettings
from workers.routing import LIMIT_RANGES, TERMINAL_RANGES

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[WorkerSettings]
else:
    ModelForm = forms.ModelForm

_RANGES: Final = {**LIMIT_RANGES, **{f"terminal_{name}": bounds for name, bounds in TERMINAL_RANGES.items()}}
_LABELS: Final = {
    "max_concurrent": "Workers at once",
    "timeout_ms": "Time budget, ms",
    "max_retries": "Retries",
    "retry_base_ms": "First retry after, ms",
    "on_client_exit": "When the client goes",
    "max_output_tokens": "Output tokens",
    "max_context_chars": "Context characters",
    "max_result_chars": "Result characters",
    "retention_days": "Days texts are kept",
    "cleanup_workspace_on_finish": "Clean up workspaces at the end",
    "terminal_enabled": "Commands allowed",
    "terminal_allowlist": "Allowed commands",
    "terminal_timeout_ms": "Time budget of one, ms",
    "terminal_max_output_bytes": "Output bytes kept",
    "terminal_max_commands_per_worker": "Commands a worker",
}
_SETTINGS: Final = {
    **{field.name: field for field in LIMIT_FIELDS},
    **{f"terminal_{field.name}": field for field in TERMINAL_FIELDS},
}


class LimitsForm(ModelForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in self.fields.keys() & _LABELS.keys():
            self.fields[name].label = _LABELS[name]
        for name, (low, high) in _RANGES.items():
            if field := self.fields.get(name):
                field.validators += [MinValueValidator(low), MaxValueValidator(high)]
                field.widget.attrs |= {"min": low, "max": high}
                field.help_text = f"{field.help_text} From {low:,} to {high:,}.".strip()

    def clean(self) -> dict[str, Any] | None:
        """The same checks as for the environment and for `config import`."""
        cleaned = super().clean() or {}
        for name, value in list(cleaned.items()):
            try:
                if name in _SETTINGS:
                    _SETTINGS[name].check(value)
            except SettingError as error:
                self.add_error(name, ValidationError(f"This {error.problem}. {error.fix}"))
        return cleaned


@admin.register(WorkerSettings)
class LimitsAdmin(FromEnvironmentMixin, AuditedModelAdmin):
    form = LimitsForm
    audit_noun: ClassVar[str] = "limits"
    fieldsets = (
        ("Work", {"fields": ("max_concurrent", "timeout_ms", "max_retries", "retry_base_ms", "on_client_exit")}),
        ("Sizes", {"fields": ("max_output_tokens", "max_context_chars", "max_result_chars")}),
        (
            "What is kept",
            {"fields": ("retention_days", "retain_transcripts", "workspace_root", "cleanup_workspace_on_finish")},
        ),
        (
            "Commands",
            {
                "description": "Commands that a worker with the profile workspace-exec may bring. They run without a "
                "shell in a sandbox of the kernel (bubblewrap), and the shipped policy lets a person decide first.",
                "fields": (
                    "terminal_enabled",
                    "terminal_allowlist",
                    "terminal_timeout_ms",
                    "terminal_max_output_bytes",
                    "terminal_max_commands_per_worker",
                ),
            },
        ),
    )

    def overridden(self, obj: WorkerSettings | None) -> dict[str, Shown]:
        config, _ = configuration()
        limits = {name: (getattr(config.limits, name), limit_variable(name)) for name in config.limits.from_env}
        for name in config.terminal.from_env:
            limits[f"terminal_{name}"] = (getattr(config.terminal, name), terminal_variable(name))
        return {
            name: from_environment(WorkerSettings, name, value, variable, label=_LABELS.get(name, ""))
            for name, (value, variable) in limits.items()
        }

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return redirect("admin:workers_workersettings_change", 1)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        titles = {"title": "Limits", "subtitle": None}
        return super().change_view(request, object_id, form_url, titles | (extra_context or {}))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> WorkerSettings | None:
        """The row, or the defaults while there is none: only saving makes it."""
        if object_id != "1":
            return None
        return WorkerSettings.objects.filter(pk=1).first() or WorkerSettings(pk=1)

    def save_model(self, request: HttpRequest, obj: WorkerSettings, form: Any, change: bool) -> None:
        WorkerSettings.objects.get_or_create(pk=1)
        super().save_model(request, obj, form, change)

    def response_post_save_change(self, request: HttpRequest, obj: WorkerSettings) -> HttpResponseRedirect:
        return redirect("admin:index")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
