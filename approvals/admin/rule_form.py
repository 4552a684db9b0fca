"""The form of a rule: checked by building the rule itself, so that what is saved can be obeyed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.contrib.auth.models import Group

from approvals.conditions import OPERATORS, Condition
from approvals.form_fields import JsonField, LinesField
from approvals.models import Rule as RuleRow
from approvals.policy import MAX_APPROVALS, Rule, Verification
from core.errors import MeahError
from core.text import visible

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[RuleRow]
else:
    ModelForm = forms.ModelForm

# Checked one by one, so that each problem stands at its field.
_SIMPLE: Final = ("name", "server", "tool", "principal", "approvals", "ttl_s")
CONDITIONS_HELP: Final = (
    'All must hold. Such as [{"path": "amount", "op": "gt", "value": 100}]; paths: amount, customer.id, '
    f"items[*].price; operators: {', '.join(OPERATORS)}. exists and absent take no value. Where it can not be told "
    "(the argument is missing, or of another type), deny and require approval match and allow does not."
)
VERIFICATION_HELP: Final = (
    'After the write, call this tool and compare. Such as {"tool": "get_ticket", "arguments": {"ticket_id": '
    '"ticket_id"}, "expect": {"status": {"argument": "status"}}}: arguments name paths of the write\'s, expect '
    "names paths of the check's structured answer. Empty: no check."
)


class RuleForm(ModelForm):
    except_tools = LinesField(
        label="Except",
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField meah-code", "spellcheck": "false"}),
        help_text="Globs of tools that it does not speak of, one a line.",
    )
    conditions = JsonField(empty_as=[], rows=6, help_text=CONDITIONS_HELP)
    verification = JsonField(empty_as=None, rows=10, help_text=VERIFICATION_HELP, label="Read back")
    group = forms.ChoiceField(required=False, help_text="Who has to approve. Empty: anybody who may decide.")

    class Meta:
        widgets = {"reason": forms.TextInput(attrs={"class": "vTextField meah-wide"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if (group := self.fields.get("group")) is None:
            return
        assert isinstance(group, forms.ChoiceField)
        names = [*Group.objects.order_by("name").values_list("name", flat=True)]
        if self.instance.group and self.instance.group not in names:
            names.append(self.instance.group)
        group.choices = [("", "---------"), *((name, name) for name in names)]
        self.fields["approvals"].widget.attrs["max"] = MAX_APPROVALS

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or {}
        for name in _SIMPLE:
            if name in cleaned:
                self._try(name, lambda name=name: Rule(**{"name": "x", "effect": "allow", name: cleaned[name]}))
        self._try("except_tools", lambda: Rule("x", "allow", except_tools=tuple(cleaned.get("except_tools", ()))))
        self._clean_conditions(cleaned.get("conditions", []))
        if cleaned.get("verification") is not None:
            self._try("verification", lambda: Verification.from_dict(cleaned["verification"]))
        return cleaned

    def _clean_conditions(self, conditions: Any) -> None:
        if not isinstance(conditions, list):
            self.add_error("conditions", "The conditions are a list, also where there is only one: [ … ].")
            return
        for condition in conditions:
            self._try("conditions", lambda condition=condition: Condition.from_dict(condition))

    def _try(self, field: str, build: Any) -> None:
        try:
            build()
        except MeahError as error:
            self.add_error(field, visible(error.message).replace("Rule 'x' ", "It "))
