"""How servers are started when they are looked at: one form for one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.validators import MaxValueValidator, MinValueValidator

from approvals.singleton import SingletonAdmin
from gateway.models import GatewaySettings

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[GatewaySettings]
else:
    ModelForm = forms.ModelForm

_RANGES = {"start_timeout_s": (1, 600), "starts_at_once": (1, 32)}


class SettingsForm(ModelForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, (low, high) in _RANGES.items():
            if field := self.fields.get(name):
                field.validators += [MinValueValidator(low), MaxValueValidator(high)]
                field.widget.attrs |= {"min": low, "max": high}


@admin.register(GatewaySettings)
class GatewaySettingsAdmin(SingletonAdmin):
    form = SettingsForm
    audit_noun: ClassVar[str] = "gateway"
    fieldsets = (
        ("When servers are looked at", {"fields": ("start_timeout_s", "starts_at_once")}),
        ("Methods", {"fields": ("allow_method_writes",)}),
    )

    def audit_subject(self, obj: Any) -> str:
        return "settings"
