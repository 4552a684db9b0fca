"""The defaults of the policy and its clocks: one form for one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from django import forms
from django.contrib import admin
from django.core.validators import MaxValueValidator, MinValueValidator
from django.http import HttpRequest

from approvals.models import ApprovalSettings
from approvals.processes import ring_after_commit
from approvals.singleton import SingletonAdmin

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[ApprovalSettings]
else:
    ModelForm = forms.ModelForm

_YEAR_S: Final = 366 * 86_400
_RANGES: Final = {
    "ttl_s": (1, _YEAR_S),
    "execute_within_s": (1, _YEAR_S),
    "duplicate_window_s": (0, _YEAR_S),
    "max_open_holds": (1, 10_000),
    "result_days": (1, 36_500),
}


class SettingsForm(ModelForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, (low, high) in _RANGES.items():
            if field := self.fields.get(name):
                field.validators += [MinValueValidator(low), MaxValueValidator(high)]
                field.widget.attrs |= {"min": low, "max": high}


@admin.register(ApprovalSettings)
class ApprovalSettingsAdmin(SingletonAdmin):
    form = SettingsForm
    audit_noun: ClassVar[str] = "policy"
    fieldsets = (
        (
            "Where no rule matches",
            {
                "description": "A server may override these for its own tools.",
                "fields": ("read_default", "write_default", "destructive_default"),
            },
        ),
        ("Clocks", {"fields": ("ttl_s", "execute_within_s", "duplicate_window_s")}),
        ("Limits", {"fields": ("max_open_holds", "result_days")}),
    )

    def audit_subject(self, obj: Any) -> str:
        return "settings"

    def save_model(self, request: HttpRequest, obj: ApprovalSettings, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        ring_after_commit()
