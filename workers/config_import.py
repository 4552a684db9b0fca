"""A configuration file meets the database: previewed, then written whole with its entry in the chain, or not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any, Final

from django.db import transaction

from audit.services import record
from core.errors import MeahError
from core.redaction import redact
from workers import config_file
from workers.config import build, environment_values, stored_values
from workers.config_fields import Values
from workers.config_file import Change
from workers.models import Provider, ProviderModel, RoleRoute, WorkerSettings
from workers.routing import route_problems

MAX_RECORDED_CHARS: Final = 2_000


def preview(data: bytes) -> list[Change]:
    """What importing the file's bytes would change. Raises MeahError E_CONFIG for whatever is wrong with it."""
    return _plan(config_file.loads(data))


def import_config(data: bytes, *, principal: str) -> list[Change]:
    """Write the file's values over the stored ones and record them, in one transaction; returns the changes.

    What the file does not mention stays as it is. Raises MeahError: E_CONFIG for whatever is wrong with the
    file, E_AUDIT when the chain cannot be written. In both cases nothing has changed.
    """
    given = config_file.loads(data)
    with transaction.atomic():
        changes = _plan(given)
        if changes:
            _write(given)
            record("config.imported", principal=principal, subject="workers", data={"changes": _recorded(changes)})
    return changes


def export_config() -> str:
    """The stored configuration as a file's text. It holds names of key variables, never keys."""
    return config_file.dumps(stored_values())


def overridden(changes: Collection[Change]) -> set[str]:
    """The paths among these that the environment sets too, so that the stored value has no effect at present."""
    given = config_file.difference(Values(), environment_values(stored_values()))
    return {change.path for change in given} & {change.path for change in changes}


def _plan(given: Values) -> list[Change]:
    stored = stored_values()
    after = _merged(stored, given)
    config = build(after, environment_values(after))
    for name in given.providers:
        if name not in config.providers:
            raise _refused(f"providers.{name}.baseUrl is missing.", "Give the address of its API.")
    problems = route_problems(config, given.roles)
    if problems:
        raise _refused(f"roles.{problems[0]}", "Correct the route, or add what it names to the file.")
    return config_file.difference(stored, given)


def _merged(below: Values, above: Values) -> Values:
    merged = deepcopy(below)
    for name, provider in above.providers.items():
        merged.providers.setdefault(name, {"base_url": ""}).update(provider)
    for role, route in above.roles.items():
        merged.roles.setdefault(role, {}).update(route)
    merged.defaults |= above.defaults
    merged.terminal |= above.terminal
    return merged


def _write(given: Values) -> None:
    for name, provider in given.providers.items():
        _write_provider(name, provider)
    for role, route in given.roles.items():
        RoleRoute.objects.update_or_create(role=role, defaults=route)
    terminal = {f"terminal_{name}": value for name, value in given.terminal.items()}
    if "terminal_allowlist" in terminal:
        terminal["terminal_allowlist"] = config_file.plain(terminal["terminal_allowlist"])
    if given.defaults or terminal:
        WorkerSettings.objects.update_or_create(pk=1, defaults={**given.defaults, **terminal})


def _write_provider(name: str, given: Mapping[str, Any]) -> None:
    columns = {key: value for key, value in given.items() if key != "models"}
    provider, _ = Provider.objects.update_or_create(name=name, defaults=columns)
    if "models" in given:
        _write_models(provider, given["models"])


def _write_models(provider: Provider, names: Collection[str]) -> None:
    """List exactly these. A model that is no longer listed keeps its price and what was learned about it."""
    known = ProviderModel.objects.filter(provider=provider)
    known.filter(listed=True).exclude(name__in=names).update(listed=False)
    known.filter(name__in=names).update(listed=True)
    new = set(names) - set(known.values_list("name", flat=True))
    ProviderModel.objects.bulk_create(ProviderModel(provider=provider, name=name) for name in sorted(new))


def _recorded(changes: Collection[Change]) -> list[dict[str, str]]:
    return [{"path": change.path, "before": _short(change.before), "after": _short(change.after)} for change in changes]


def _short(value: Any) -> str:
    # The chain keeps every entry for ever, and a prompt may be long.
    text = redact(config_file.as_text(value))
    return text if len(text) <= MAX_RECORDED_CHARS else f"{text[:MAX_RECORDED_CHARS]}… ({len(text)} characters)"


def _refused(message: str, hint: str) -> MeahError:
    return MeahError("E_CONFIG", message, hint=hint, reason="config_file")
