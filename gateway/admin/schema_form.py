"""A form made from the input schema of a Method; what a field can not say is written as JSON."""

from __future__ import annotations

import json
from typing import Any, Final

from django import forms

from approvals.form_fields import JsonField
from core.errors import JsonObject
from core.text import one_line, visible

WHOLE: Final = "input"
_LEFT_OUT: Final = object()
_LONG: Final = 120


class InputForm(forms.Form):
    """One field for each property of the schema; `value()` has what was filled in."""

    def __init__(self, schema: JsonObject, data: Any = None) -> None:
        super().__init__(data, prefix="input")
        properties = schema.get("properties")
        self._properties: JsonObject = properties if isinstance(properties, dict) else {}
        required = set(schema.get("required") or ()) if isinstance(schema.get("required"), list) else set()
        # By position: a property may be called anything. What has to be filled in comes first.
        ordered = sorted(self._properties, key=lambda name: name not in required)
        self._names = {f"f{number}": name for number, name in enumerate(ordered)}
        for key, name in self._names.items():
            self.fields[key] = _field(name, self._properties[name], required=name in required)
        if not self._properties:
            self.fields[WHOLE] = JsonField(empty_as={}, rows=6, label="Input", help_text="A JSON object.")

    def value(self) -> Any:
        """The input, without what was left empty. Call it once the form is valid."""
        if not self._properties:
            return self.cleaned_data[WHOLE]
        found = {name: _filled(self.fields[key], self.cleaned_data.get(key)) for key, name in self._names.items()}
        return {name: value for name, value in found.items() if value is not _LEFT_OUT}


class _Choice(forms.ChoiceField):
    """One of some JSON values."""

    def __init__(self, values: list[Any], **options: Any) -> None:
        choices = [("", "–"), *((json.dumps(value), visible(_as_label(value))) for value in values)]
        super().__init__(choices=choices, **options)


class _AnyJson(JsonField):
    def __init__(self, *, required: bool, **options: Any) -> None:
        super().__init__(empty_as=None, rows=3, **options)
        self.required = required


def _field(name: str, schema: Any, *, required: bool) -> forms.Field:
    schema = schema if isinstance(schema, dict) else {}
    about = one_line(str(schema.get("description") or ""), 300)
    options: dict[str, Any] = {"label": visible(name), "required": required, "help_text": about}
    kind = schema.get("type")
    if isinstance(schema.get("enum"), list):
        field: forms.Field = _Choice(schema["enum"], **options)
    elif kind == "string":
        is_long = int(schema.get("maxLength") or _LONG) > _LONG
        widget = forms.Textarea(attrs={"rows": 3}) if is_long and "maxLength" in schema else forms.TextInput()
        field = forms.CharField(widget=widget, strip=False, **options)
    elif kind == "integer":
        field = forms.IntegerField(**options)
    elif kind == "number":
        field = forms.FloatField(**options)
    elif kind == "boolean":
        field = _Choice([True, False], **options)
    else:
        return _AnyJson(required=required, label=visible(name), help_text=f"{about} JSON.".strip())
    if "default" in schema and not isinstance(schema["default"], dict | list):
        default = schema["default"]
        field.initial = json.dumps(default) if isinstance(field, _Choice) else default
        field.required = False
    return field


def _filled(field: forms.Field, value: Any) -> Any:
    if value in (None, ""):
        return _LEFT_OUT
    return json.loads(value) if isinstance(field, _Choice) else value


def _as_label(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
