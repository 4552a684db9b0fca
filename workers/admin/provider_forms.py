"""The provider's forms. What is refused here is refused by `config import` and the environment too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator

from core.redaction import looks_like_key
from workers.config_fields import PROVIDER_FIELDS
from workers.config_kinds import SettingError, check_provider_name, refuse_keys
from workers.models import Provider, ProviderModel

if TYPE_CHECKING:
    ProviderModelFormBase = forms.ModelForm[Provider]
    ModelModelFormBase = forms.ModelForm[ProviderModel]
else:
    ProviderModelFormBase = ModelModelFormBase = forms.ModelForm

_CHECKS: Final = {field.name: field.check for field in PROVIDER_FIELDS}
_NO_KEYS_HERE: Final = (
    "This is not the name of a variable. Put the key into an environment variable such as MY_API_KEY (in .env "
    "beside manage.py), and write MY_API_KEY here. What was typed is not shown again and was not kept."
)


class ProviderForm(ProviderModelFormBase):
    """`pasted_url` is the address as it was typed, where it had to be changed."""

    pasted_url: str = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "base_url" in self.fields:
            self.fields["base_url"].required = True
        for name in ("base_url", "api_key_env", "model"):
            if name in self.fields:
                self.fields[name].widget.attrs |= {
                    "autocomplete": "off",
                    "spellcheck": "false",
                    "class": "vLargeTextField",
                }

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        try:
            refuse_keys(name)
            check_provider_name(name)
        except SettingError as error:
            raise ValidationError(f"This {error.problem}. {error.fix}") from None
        return name

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        for name, check in _CHECKS.items():
            if name not in cleaned:
                continue
            try:
                value = check(cleaned[name])
            except SettingError as error:
                self.add_error(name, ValidationError(f"This {error.problem}. {error.fix}"))
                continue
            if name == "base_url" and value != cleaned[name]:
                self.pasted_url = cleaned[name]
            cleaned[name] = value
        return cleaned

    def add_error(self, field: str | None, error: Any) -> None:
        """A key that somebody pasted is neither shown again nor quoted by another error."""
        if field == "api_key_env":
            self._forget(field)
            self.errors.pop(field, None)
            error = ValidationError(_NO_KEYS_HERE)
        elif field and looks_like_key(str(self.data.get(self.add_prefix(field), ""))):
            self._forget(field)
        super().add_error(field, error)

    def _forget(self, field: str) -> None:
        data: Any = self.data
        data = data.copy()
        data[self.add_prefix(field)] = ""
        self.data = data


class ProviderModelForm(ModelModelFormBase):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("input_price", "output_price"):
            if name in self.fields:
                self.fields[name].validators.append(MinValueValidator(0))
                self.fields[name].widget.attrs |= {"min": 0, "step": "any"}
        if "currency" in self.fields:
            self.fields["currency"].widget.attrs |= {"size": 5}

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        try:
            checked: str = _CHECKS["model"](name)
        except SettingError as error:
            raise ValidationError(f"This {error.problem}. {error.fix}") from None
        return checked
