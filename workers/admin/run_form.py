"""The form that hands a task to a worker: a person's way to what `meah_run_agent` does."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from django import forms
from django.forms import BaseFormSet, formset_factory

from core.errors import JsonObject, MeahError
from core.text import visible
from workers.admin.environment import configuration
from workers.models import PermissionProfile, Worker
from workers.roles import DEFAULT_ROLE, ROLES
from workers.routing import MAX_OUTPUT_TOKENS_RANGE, MOCK, TEMPERATURE_RANGE, TIMEOUT_MS_RANGE

if TYPE_CHECKING:
    Items = BaseFormSet["ContextForm"]

# Form fields and the arguments of the tool; empty ones are left out.
_ARGUMENTS = {
    "task": "task",
    "role": "role",
    "provider": "provider",
    "model": "model",
    "expected_output": "expectedOutput",
    "timeout_ms": "timeoutMs",
    "max_output_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "permission_profile": "permissionProfile",
    "label": "label",
}


class RunForm(forms.Form):
    required_css_class = "required"

    task = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 6, "class": "vLargeTextField", "autofocus": True}),
        help_text="What to do, self-contained: the worker sees nothing but this form.",
        strip=False,
    )
    role = forms.ChoiceField(initial=DEFAULT_ROLE, help_text="Picks the prompt, and where the task goes.")
    provider = forms.ChoiceField(required=False)
    model = forms.CharField(
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text="Empty: the route's, else the provider's default.",
    )
    constraints = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
        help_text="One a line.",
    )
    expected_output = forms.CharField(
        required=False,
        max_length=10_000,
        widget=forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"}),
        help_text="Form of the answer.",
    )
    label = forms.CharField(
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text="Your own name for it.",
    )
    timeout_ms = forms.IntegerField(
        label="Time budget",
        required=False,
        min_value=TIMEOUT_MS_RANGE[0],
        max_value=TIMEOUT_MS_RANGE[1],
        help_text="In milliseconds, retries included.",
    )
    max_output_tokens = forms.IntegerField(
        required=False, min_value=MAX_OUTPUT_TOKENS_RANGE[0], max_value=MAX_OUTPUT_TOKENS_RANGE[1]
    )
    temperature = forms.FloatField(required=False, min_value=TEMPERATURE_RANGE[0], max_value=TEMPERATURE_RANGE[1])
    permission_profile = forms.ChoiceField(
        choices=PermissionProfile.choices,
        initial=PermissionProfile.READ_ONLY,
        label="Workspace",
        help_text="read-only: the context is written into its directory; workspace-write: the result too; "
        "workspace-exec: commands run there first.",
    )
    commands = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
        help_text="One a line, without a shell; workspace-exec only, and of those that the limits allow.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config, _ = configuration()
        roles = [(name, f"{name}: {role.summary}") for name, role in ROLES.items()]
        providers = [("", "as the role's route says"), *((name, name) for name in [*sorted(config.providers), MOCK])]
        self._choices("role", roles)
        self._choices("provider", providers)
        limits = config.limits
        self.fields["timeout_ms"].widget.attrs["placeholder"] = str(limits.timeout_ms)
        self.fields["max_output_tokens"].widget.attrs["placeholder"] = "the route's, else the general limit"
        self.fields["model"].widget.attrs |= {"list": "known-models", "autocomplete": "off", "spellcheck": "false"}

    def _choices(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    def arguments(self) -> JsonObject:
        cleaned = self.cleaned_data
        given = {wire: cleaned[name] for name, wire in _ARGUMENTS.items() if cleaned[name] not in ("", None)}
        lines = [line.strip() for line in cleaned["constraints"].splitlines() if line.strip()]
        commands = [line.strip() for line in cleaned["commands"].splitlines() if line.strip()]
        return given | ({"constraints": lines} if lines else {}) | ({"commands": commands} if commands else {})

    def add_meah_error(self, error: MeahError) -> None:
        self.add_error(None, visible(f"{error.message} {error.hint}"))


class ContextForm(forms.Form):
    name = forms.CharField(
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text="Such as notes.md; it becomes the file's name in the workspace.",
    )
    content = forms.CharField(
        required=False, strip=False, widget=forms.Textarea(attrs={"rows": 6, "class": "vLargeTextField"})
    )


ContextFormSet = formset_factory(ContextForm, extra=1, max_num=50)


def context_arguments(items: Items) -> JsonObject:
    """The items that say something, as the tool takes them."""
    said = [
        {"name": form.cleaned_data.get("name", ""), "content": form.cleaned_data["content"]}
        for form in items.forms
        if form.cleaned_data.get("content")
    ]
    return {"context": said} if said else {}


def initial_of(worker: Worker | None) -> dict[str, Any]:
    """What another worker was given, to be changed and given again."""
    if worker is None:
        return {}
    values: dict[str, Any] = {name: getattr(worker, name) for name in _ARGUMENTS}
    commands = "\n".join(shlex.join(argv) for argv in worker.commands)
    return values | {"constraints": "\n".join(worker.constraints), "commands": commands}


def initial_context(worker: Worker | None) -> list[dict[str, str]]:
    return [] if worker is None else [dict(item) for item in worker.context]
