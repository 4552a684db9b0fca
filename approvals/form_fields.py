"""Form fields of the admin for columns that hold JSON."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from approvals.conditions import equal
from core.canonical import StrictDecodeError, strict_loads
from core.text import visible

MAX_BYTES = 100_000


class JsonField(forms.CharField):
    """Strict JSON in a text area; empty is `empty_as`."""

    def __init__(self, *, empty_as: Any, rows: int, help_text: str, label: str | None = None) -> None:
        widget = forms.Textarea(attrs={"rows": rows, "class": "vLargeTextField meah-code", "spellcheck": "false"})
        super().__init__(required=False, widget=widget, help_text=help_text, label=label, strip=True)
        self.empty_as = empty_as

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return value
        return "" if value == self.empty_as else json.dumps(value, indent=2, ensure_ascii=False)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return self.empty_as
        try:
            return strict_loads(text, max_bytes=MAX_BYTES)
        except StrictDecodeError as error:
            raise ValidationError(visible(f"This is no JSON that can be used: {error}.")) from error

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return not equal(self.clean(data), initial)
        except ValidationError:
            return True


class LinesField(forms.CharField):
    """A list of texts, one a line."""

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, str) else "\n".join(map(str, value or []))

    def clean(self, value: Any) -> Any:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(self.clean(data) != (initial or []))
