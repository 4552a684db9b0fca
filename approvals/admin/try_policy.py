"""The page that tries a call against the policy: its form, and what it says."""

from __future__ import annotations

from typing import Any

from django import forms

from approvals import trial
from approvals.holds import load_settings
from approvals.models import Call
from approvals.policy import Subject
from core.canonical import StrictDecodeError, strict_loads
from core.errors import MeahError
from core.text import visible

DOOR = "admin"
ANYBODY = "agent:claude"
_TEXT = {"class": "vTextField", "autocomplete": "off", "spellcheck": "false"}


class TryForm(forms.Form):
    required_css_class = "required"

    server = forms.CharField(max_length=128, widget=forms.TextInput(attrs=_TEXT | {"list": "known-servers"}))
    tool = forms.CharField(max_length=256, widget=forms.TextInput(attrs=_TEXT | {"list": "known-tools"}))
    arguments = forms.CharField(
        required=False,
        strip=False,
        initial="{}",
        widget=forms.Textarea(attrs={"rows": 6, "class": "vLargeTextField meah-code", "spellcheck": "false"}),
        help_text='A JSON object, such as {"ticket_id": "T-1001"}.',
    )
    principal = forms.CharField(
        max_length=255,
        initial=ANYBODY,
        widget=forms.TextInput(attrs=_TEXT),
        help_text="Who calls: agent:NAME, token:NAME or user:NAME.",
    )

    def clean_arguments(self) -> Any:
        text = self.cleaned_data["arguments"].strip() or "{}"
        try:
            arguments = strict_loads(text)
        except StrictDecodeError as error:
            raise forms.ValidationError(visible(f"This is no JSON that the gate would take: {error}.")) from error
        if not isinstance(arguments, dict):
            raise forms.ValidationError("The arguments are a JSON object: { … }.")
        return arguments

    def subject(self) -> Subject:
        """Raises MeahError."""
        said = self.cleaned_data
        return trial.subject_of(said["server"], said["tool"], said["arguments"], said["principal"], door=DOOR)


def initial_of(call_id: str) -> dict[str, Any]:
    """Filled with a call that there was."""
    call = Call.objects.filter(public_id=call_id).first() if call_id else None
    if call is None:
        return {}
    return {
        "server": call.server,
        "tool": call.tool,
        "arguments": call.arguments or "{}",
        "principal": call.principal,
    }


def tried(form: TryForm) -> dict[str, Any]:
    """The verdict and its reasons for the template, or what the gate would say before it asks the policy."""
    try:
        subject = form.subject()
        found = trial.explained(subject)
    except MeahError as error:
        return {"refusal": {"code": error.code, "message": visible(error.message), "hint": visible(error.hint)}}
    return {"subject": subject, "found": found, "ttl_s": found.verdict.ttl_s or load_settings().ttl_s}
