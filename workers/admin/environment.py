"""Fields that the environment sets: shown with the variable's name in place of an input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.display import environment_mark
from core.errors import MeahError
from core.text import visible
from workers.config import effective
from workers.config_env import PREFIX, PROVIDER_PREFIX, ROLE_PREFIX, TERMINAL_PREFIX
from workers.routing import Config

Shown = Callable[[Any], SafeString]
Fieldsets = Sequence[tuple[str | None, dict[str, Any]]]


def configuration() -> tuple[Config, MeahError | None]:
    """The configuration in force; where the environment is wrong, an empty one and what is wrong."""
    try:
        return effective(), None
    except MeahError as error:
        return Config(), error


def provider_variable(name: str, field: str) -> str:
    return f"{PROVIDER_PREFIX}{name.upper().replace('-', '_')}_{field.upper()}"


def role_variable(role: str, field: str) -> str:
    return f"{ROLE_PREFIX}{role.upper()}_{field.upper()}"


def limit_variable(field: str) -> str:
    return f"{PREFIX}{field.upper()}"


def terminal_variable(field: str) -> str:
    return f"{TERMINAL_PREFIX}{field.upper()}"


def from_environment(model: type[Model], field: str, value: Any, variable: str, *, label: str = "") -> Shown:
    """A read-only field that takes the place of `field`: the value in force, and where it comes from."""

    @admin.display(description=label or str(model._meta.get_field(field).verbose_name))  # type: ignore[union-attr]
    def shown(obj: Any) -> SafeString:
        return format_html("{} {}", _text(value), environment_mark(variable))

    shown.__name__ = f"{field}_from_environment"
    return shown


def replaced(fieldsets: Any, shown: dict[str, Shown]) -> list[tuple[str | None, dict[str, Any]]]:
    """The fieldsets with these fields in the form that says where they come from."""
    return [(title, options | {"fields": _replaced(options["fields"], shown)}) for title, options in fieldsets]


def _replaced(fields: Iterable[Any], shown: dict[str, Shown]) -> list[Any]:
    return [shown.get(field, field) if isinstance(field, str) else tuple(_replaced(field, shown)) for field in fields]


class FromEnvironmentMixin:
    """For a ModelAdmin with `fieldsets`: `overridden` says which fields the environment sets, and how they show."""

    def overridden(self, obj: Any) -> dict[str, Shown]:
        """`obj` is None on the page that adds one."""
        raise NotImplementedError

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)  # type: ignore[misc]
        return replaced(fieldsets, self._overridden(request, obj))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = super().get_readonly_fields(request, obj)  # type: ignore[misc]
        return [*fields, *self._overridden(request, obj).values()]

    def _overridden(self, request: HttpRequest, obj: Any) -> dict[str, Shown]:
        """Made once a request: the admin has to meet the same functions in the fieldsets and among the read-only."""
        made: dict[Any, dict[str, Shown]] = request.__dict__.setdefault("_meah_overridden", {})
        key = None if obj is None else str(obj)
        if key not in made:
            made[key] = self.overridden(obj)
        return made[key]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return visible(", ".join(str(getattr(item, "path", item)) for item in value)) or "none"
    return "none" if value is None or value == "" else visible(str(value))
