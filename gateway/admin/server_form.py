"""The form of a server's configuration; its problems are those that an import would find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django import forms

from approvals.form_fields import JsonField, LinesField
from core.errors import JsonObject
from gateway import catalog
from gateway.models import Exposure, PinState, Server

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[Server]
else:
    ModelForm = forms.ModelForm

OF_THE_SERVER: Final = "server"
BARE: Final = "bare"
OWN: Final = "own"


class ServerForm(ModelForm):
    args = JsonField(empty_as=[], rows=3, label="Arguments", help_text='A list of texts, such as ["--port", "1"].')
    env = JsonField(empty_as={}, rows=3, label="Environment", help_text='Such as {"KEY": "${MEAH_CRM_KEY}"}.')
    headers = JsonField(empty_as={}, rows=3, help_text='Such as {"Authorization": "Bearer ${MEAH_CRM_KEY}"}.')
    inherit_env = LinesField(
        label="Inherited variables",
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField meah-code", "spellcheck": "false"}),
        help_text="Names of variables that are passed on from MEAH's own environment, one a line.",
    )
    names = forms.ChoiceField(
        label="Listed names",
        choices=[
            (OF_THE_SERVER, "server__tool"),
            (BARE, "the tools' own names"),
            (OWN, "another prefix"),
        ],
        help_text="How direct tools are listed to agents.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        prefix = self.instance.prefix
        self.initial["names"] = OF_THE_SERVER if prefix is None else OWN if prefix else BARE
        if "prefix" in self.fields:
            self.fields["prefix"].help_text = "Only for another prefix: before the tools' names, with __ between."

    def clean_args(self) -> list[str]:
        return self._texts("args")

    def clean_env(self) -> JsonObject:
        return self._texts_by_name("env")

    def clean_headers(self) -> JsonObject:
        return self._texts_by_name("headers")

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or {}
        names, prefix = cleaned.get("names"), cleaned.get("prefix")
        if names == OWN and not prefix:
            self.add_error("prefix", "Say which.")
        if "prefix" in cleaned:
            cleaned["prefix"] = {OF_THE_SERVER: None, BARE: ""}.get(names or "", prefix)
            self._refuse_collisions(cleaned["prefix"], cleaned.get("exposure"))
        return cleaned

    def _refuse_collisions(self, prefix: str | None, exposure: str | None) -> None:
        if exposure != Exposure.DIRECT:
            return
        server = Server(name=self.instance.name, prefix=prefix)
        accepted = self.instance.tools.filter(pin_state=PinState.ACCEPTED).values_list("name", flat=True)
        names = [(server.listed_prefix + name, server.name) for name in accepted]
        for problem in catalog.collisions(names, apart_from=[server.name]):
            self.add_error("names", problem)

    def _texts(self, name: str) -> list[str]:
        value = self.cleaned_data[name]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise forms.ValidationError("A list of texts: [ … ].")
        return value

    def _texts_by_name(self, name: str) -> JsonObject:
        value = self.cleaned_data[name]
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise forms.ValidationError("An object of texts: { … }.")
        return value
