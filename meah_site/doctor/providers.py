"""The configuration of workers: providers, where their keys are, routes, variables that set nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Final

from approvals.models import Process
from approvals.processes import living
from core.errors import MeahError
from meah_site.doctor.findings import Finding, Group, examined, info, ok, problem, warning
from meah_site.doctor.processes import process_name
from workers.config import effective
from workers.config_env import family, near_misses, variables
from workers.key_state import KeyState, key_state
from workers.probe import Probe, try_out
from workers.providers.url import normal_base, shown
from workers.roles import ROLES
from workers.routing import MOCK, Config, ProviderConfig, did_you_mean, route_problems
from workers.services import SYSTEM

_FAMILIES: Final = frozenset(variable.name for variable in variables())
PUT_KEY: Final = (
    "Put it into .env beside manage.py, then restart the processes (or into `env` of the client's MCP entry)."
)


def configuration() -> tuple[Group, Config | None]:
    """Whether the configuration in force can be used at all, and what it is."""
    read: list[Config] = []

    def can_be_read() -> Iterator[Finding]:
        read.append(effective())
        mine = [name for name in sorted(os.environ) if name.startswith("MEAH_") and family(name) in _FAMILIES]
        yield ok("settings", f"valid, {len(mine)} of them from the environment" if mine else "valid")

    group = examined("Configuration", ("settings", can_be_read), ("environment", environment))
    return group, next(iter(read), None)


def environment() -> Iterator[Finding]:
    for name, meant in sorted(near_misses(os.environ).items()):
        yield warning("environment", f"{name} sets nothing", f"Did you mean {meant}?")


def examine(config: Config) -> Group:
    return examined(
        "Providers",
        ("providers", partial(configured, config)),
        ("routes", partial(routes, config)),
    )


def configured(config: Config) -> Iterator[Finding]:
    if not config.providers:
        yield info("providers", "none: the built-in mock answers", "Add one in the admin, or in .env.")
    processes = living()
    for name in sorted(config.providers):
        yield from _provider(config.providers[name])
        yield from _key(config.providers[name], processes)


def _provider(provider: ProviderConfig) -> Iterator[Finding]:
    try:
        url = normal_base(provider.base_url)
    except MeahError as error:
        yield problem(provider.name, error.message, error.hint)
        return
    if not provider.private and not url.startswith("https:"):
        fix = "Use https://, or mark it private when it stands in your own network."
        yield problem(provider.name, f"{shown(url)} is not https, so calls are refused", fix)
    elif not provider.model:
        fix = "Set its default model; `manage.py doctor --probe` shows whether it lists its models."
        yield warning(provider.name, f"{shown(url)} has no default model: calls must name one", fix)
    else:
        others = len(provider.known_models) - 1
        more = f" and {others} more" if others else ""
        place = "private" if provider.private else "public"
        origin = ", from the environment" if "base_url" in provider.from_env else ""
        yield ok(provider.name, f"{shown(url)}, {provider.model}{more}, {place}{origin}")


def _key(provider: ProviderConfig, processes: list[Process]) -> Iterator[Finding]:
    key = key_state(provider.api_key_env, processes)
    subject = f"{provider.name} key"
    if key.state == "none":
        yield ok(subject, "none is sent")
    elif key.state == "not_set":
        yield problem(subject, f"{key.variable} is set in no process: calls fail with E_CONFIG", PUT_KEY)
    elif key.lacking or not key.here:
        yield warning(subject, f"{key.variable} is set in {_having(key)}; not in {_lacking(key)}", PUT_KEY)
    else:
        yield ok(subject, f"{key.variable} is set in {_having(key)}")


def _having(key: KeyState) -> str:
    return ", ".join([*(["this process"] if key.here else []), *map(process_name, key.having)])


def _lacking(key: KeyState) -> str:
    return ", ".join([*([] if key.here else ["this process"]), *map(process_name, key.lacking)])


def routes(config: Config) -> Iterator[Finding]:
    wrong = route_problems(config, ROLES)
    for sentence in wrong:
        role, _, text = sentence.partition(": ")
        yield problem(
            f"route {role}", text, "Change the route in the admin (role routes), or its MEAH_ROLE_ variables."
        )
    routed = [role for role in ROLES if config.route(role).provider]
    unrouted = [role for role in ROLES if role not in routed]
    if len(config.providers) > 1 and unrouted:
        yield info("routes", f"Calls must name a provider in these roles: {', '.join(unrouted)}")
    elif not wrong:
        yield ok("routes", f"{len(routed)} of {len(ROLES)} roles have a route of their own")


def probes(config: Config, wanted: str) -> Group:
    """Real calls to the named provider, or to all of them. They cost a few tokens, and are recorded."""
    names = [wanted] if wanted else [provider.name for provider in config.offered]
    return examined("Probe", *((name, partial(_probed, config, name)) for name in names))


def _probed(config: Config, name: str) -> Iterator[Finding]:
    provider = config.provider(name)
    if provider is None:
        known = [*config.providers, MOCK]
        fix = f"Configured are: {', '.join(known)}.{did_you_mean(name, known)}"
        yield problem(name, "there is no such provider", fix)
        return
    found = try_out(provider, model="", principal=SYSTEM)
    yield _models(found)
    yield _completion(found)


def _models(found: Probe) -> Finding:
    subject = f"{found.provider.name} models"
    if found.models_error is not None:
        return problem(subject, f"{found.models_error.code}: {found.models_error.message}", found.models_error.hint)
    if found.models is None or not found.models.listed:
        return info(subject, "It has no list of models; that is no fault")
    text = f"{len(found.models.ids)} listed"
    if found.model and found.models.ids and found.model not in found.models.ids:
        fix = "Check its spelling; some servers accept names that they do not list."
        return warning(subject, f"{text}, {found.model} is not among them", fix)
    return ok(subject, text)


def _completion(found: Probe) -> Finding:
    subject = f"{found.provider.name} answer"
    if found.error is not None:
        took = "" if found.took_ms is None else f" (after {found.took_ms:,} ms)"
        return problem(subject, f"{found.error.code}: {found.error.message}{took}", found.error.hint)
    if found.completion is None:
        ids = found.models.ids if found.models else ()
        known = f"Set its default model, such as {ids[0]}." if ids else "Set its default model."
        return warning(subject, "not asked: no model is known", known)
    usage = found.completion.usage
    tokens = "usage unknown" if usage is None else f"{_count(usage.input_tokens)} in, {_count(usage.output_tokens)} out"
    return ok(subject, f"{found.model} in {found.took_ms or 0:,} ms, tokens: {tokens}")


def _count(tokens: int | None) -> str:
    return "unknown" if tokens is None else f"{tokens:,}"
