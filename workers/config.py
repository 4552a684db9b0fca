"""The configuration in force: the rows of the database, and over them the environment, field by field."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from core.errors import MeahError
from core.secrets import name_secrets, named_secrets
from workers import config_env
from workers.config_fields import LIMIT_FIELDS, TERMINAL_FIELDS, Values
from workers.models import Provider, ProviderModel, RoleRoute, WorkerSettings
from workers.providers.url import normal_base
from workers.routing import (
    MOCK,
    AllowedCommand,
    Config,
    Limits,
    Price,
    ProviderConfig,
    RouteConfig,
    TerminalConfig,
)

_TERMINAL_COLUMN: Final = "terminal_"
_NO_PRICES: Final[Mapping[str, Mapping[str, Price]]] = MappingProxyType({})


def effective() -> Config:
    """The configuration in force, read anew: four short queries. Makes every key variable known as a secret.

    Raises MeahError E_CONFIG naming the variables of the environment that are wrong.
    """
    models = list(ProviderModel.objects.select_related("provider"))
    stored = stored_values(models)
    name_secrets(_key_variables(stored))
    environment = environment_values(stored)
    name_secrets(_key_variables(environment))
    return build(stored, environment, prices=_prices(models))


def environment_values(stored: Values) -> Values:
    """What the environment sets over these stored values. Raises MeahError E_CONFIG."""
    addressed = [name for name, provider in stored.providers.items() if provider["base_url"]]
    return config_env.read(os.environ, stored=addressed, keys=named_secrets())


def stored_values(models: Iterable[ProviderModel] | None = None) -> Values:
    """Everything the database says, every field of every row; defaults where there is no row of limits."""
    listed = _listed(ProviderModel.objects.select_related("provider") if models is None else models)
    limits = WorkerSettings.objects.filter(pk=1).first() or WorkerSettings(pk=1)
    return Values(
        providers={
            row.name: {
                "base_url": _normal_or_as_is(row.base_url),
                "api_key_env": row.api_key_env,
                "model": row.model,
                "models": listed.get(row.name, ()),
                "description": row.description,
                "private": row.private,
            }
            for row in Provider.objects.exclude(name=MOCK)
        },
        roles={row.role: _route_values(row) for row in RoleRoute.objects.all()},
        defaults={field.name: getattr(limits, field.name) for field in LIMIT_FIELDS},
        terminal={field.name: _terminal_value(limits, field.name) for field in TERMINAL_FIELDS},
    )


def build(stored: Values, environment: Values, *, prices: Mapping[str, Mapping[str, Price]] = _NO_PRICES) -> Config:
    """The stored values with those of the environment over them, each knowing which came from there."""
    providers = [
        _provider(name, stored.providers.get(name, {}), environment.providers.get(name, {}), prices.get(name, {}))
        for name in _names(stored.providers, environment.providers)
    ]
    return Config(
        # A row without an address only keeps what was learned about a provider of the environment.
        providers={provider.name: provider for provider in providers if provider.base_url},
        routes={
            role: RouteConfig(role=role, **_over(stored.roles.get(role, {}), environment.roles.get(role, {})))
            for role in _names(stored.roles, environment.roles)
        },
        limits=Limits(**_over(stored.defaults, environment.defaults)),
        terminal=TerminalConfig(**_over(stored.terminal, environment.terminal)),
    )


def is_loopback(base_url: str) -> bool:
    """Whether the host is `localhost` or a loopback address written as a number. No name is looked up."""
    try:
        host = urlsplit(base_url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _names(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys([*stored, *given]))


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    return {**below, **above, "from_env": frozenset(above)}


def _provider(
    name: str, stored: Mapping[str, Any], given: Mapping[str, Any], prices: Mapping[str, Price]
) -> ProviderConfig:
    values = _over(stored, given)
    values.setdefault("base_url", "")
    if values.get("private") is None:
        values["private"] = is_loopback(values["base_url"])
    return ProviderConfig(name=name, prices=prices, **values)


def _route_values(row: RoleRoute) -> dict[str, Any]:
    return {
        "provider": row.provider,
        "model": row.model,
        "max_output_tokens": row.max_output_tokens,
        "temperature": row.temperature,
        "system_prompt": row.system_prompt,
    }


def _terminal_value(row: WorkerSettings, name: str) -> Any:
    value = getattr(row, _TERMINAL_COLUMN + name)
    return tuple(map(_allowed, value)) if name == "allowlist" else value


def _allowed(entry: Any) -> AllowedCommand:
    if isinstance(entry, str):
        return AllowedCommand(entry)
    args = entry.get("args")
    return AllowedCommand(entry["path"], None if args is None else tuple(args))


def _listed(models: Iterable[ProviderModel]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for model in models:
        if model.listed:
            found[model.provider.name] = (*found.get(model.provider.name, ()), model.name)
    return found


def _prices(models: Iterable[ProviderModel]) -> dict[str, dict[str, Price]]:
    found: dict[str, dict[str, Price]] = {}
    for model in models:
        if model.input_price is not None or model.output_price is not None:
            price = Price(model.input_price, model.output_price, model.currency)
            found.setdefault(model.provider.name, {})[model.name] = price
    return found


def _key_variables(values: Values) -> list[str]:
    return [provider["api_key_env"] for provider in values.providers.values() if provider.get("api_key_env")]


def _normal_or_as_is(base_url: str) -> str:
    # A bad address in a row is that provider's error when it is called, not everybody's at start.
    try:
        return normal_base(base_url)
    except MeahError:
        return base_url
