"""Starting servers from a page, to see what they list; and the form that imports them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from django import forms
from django.conf import settings

from approvals.processes import run_directory
from core.canonical import canonical_text, digest
from core.errors import MeahError
from core.text import visible
from gateway import mcpfile, services
from gateway.launch import Launch
from gateway.models import Exposure, GatewaySettings, Server
from gateway.probing import Probe, probe_all
from gateway.services import Preview

_TAG: Final = "meah/import/v1"
_EXAMPLE: Final = '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time==2025.9.25"]}}}'


def probes_of(launches: Iterable[Launch]) -> dict[str, Probe]:
    """Start each, list its tools, end it. Takes as long as the slowest, at most what the settings allow."""
    row = GatewaySettings.objects.filter(pk=1).first() or GatewaySettings(pk=1)
    home = Path(settings.MEAH_HOME)
    work = probe_all(
        launches,
        directory=run_directory(),
        home=home,
        at_once=row.starts_at_once,
        limit_s=float(row.start_timeout_s),
    )
    return asyncio.run(work)


def refreshed(server: Server, *, principal: str) -> Preview:
    """Start a server as it is configured, and compare what it lists with its pins.

    Of the preview that comes back, `problems` say why nothing was started, `probe.error` why it did not answer.
    """
    entry = mcpfile.Entry(
        server.launch(), exposure=server.exposure, prefix=server.prefix, pin_scope=str(server.pin_scope)
    )
    probes = {} if entry.check(server.exposure) else probes_of([entry.launch])
    [shown] = services.preview([entry], probes, exposure=None)
    services.apply([shown], principal=principal)
    return shown


def previews_of(entries: Iterable[mcpfile.Entry], exposure: str | None) -> list[Preview]:
    """What importing these servers would do; starts each that has no problem."""
    found = list(entries)
    fine = [entry.launch for entry in found if not entry.check(entry.exposure or exposure or Exposure.OFF)]
    return services.preview(found, probes_of(fine) if fine else {}, exposure=exposure)


def digest_of(previews: Iterable[Preview]) -> str:
    """What a person confirms: the servers' configuration, and each tool with its class, pin and problem."""
    shown: list[Any] = [
        [
            repr(preview.entry.launch),
            preview.exposure,
            preview.entry.prefix,
            preview.entry.pin_scope,
            sorted(preview.entry.defaults.items()),
            preview.known,
            preview.problems,
            preview.probe.worked,
            [[tool.name, tool.effect_class, tool.pin, tool.status, tool.problem] for tool in preview.tools],
        ]
        for preview in previews
    ]
    return digest(_TAG, canonical_text(shown).encode())


class ImportForm(forms.Form):
    required_css_class = "required"

    text = forms.CharField(
        label="Servers",
        strip=False,
        max_length=200_000,
        widget=forms.Textarea(attrs={"rows": 14, "class": "vLargeTextField meah-code", "spellcheck": "false"}),
        help_text=f"The text of an .mcp.json file, such as {_EXAMPLE}. Secrets only as ${{NAME}}.",
    )
    exposure = forms.ChoiceField(
        required=False,
        choices=[("", "as each entry says; else off"), *Exposure.choices],
        help_text="For servers whose entry does not say how agents reach its tools.",
    )
    directory = forms.CharField(
        max_length=1000,
        widget=forms.TextInput(attrs={"class": "vTextField", "spellcheck": "false"}),
        help_text="Where the file is: commands with a slash are looked up from there.",
    )

    def clean_directory(self) -> Path:
        path = Path(self.cleaned_data["directory"]).expanduser()
        if not path.is_absolute() or not path.is_dir():
            raise forms.ValidationError("This is no directory on this machine; write its whole path.")
        return path

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or {}
        if "text" in cleaned and "directory" in cleaned:
            try:
                self.entries = mcpfile.parse(cleaned["text"], directory=cleaned["directory"])
            except MeahError as error:
                self.add_error("text", visible(f"{error.message} {error.hint}"))
            else:
                if not self.entries:
                    self.add_error("text", "It names no server.")
        return cleaned
