"""Which provider, model and options a task gets. Pure: it decides over a `Config` and never guesses."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Final, Literal

from core.errors import MeahError
from workers.roles import DEFAULT_ROLE, ROLES

Range = tuple[int, int]

TIMEOUT_MS_RANGE: Final[Range] = (100, 3_600_000)
MAX_OUTPUT_TOKENS_RANGE: Final[Range] = (1, 1_000_000)
TEMPERATURE_RANGE: Final[tuple[float, float]] = (0.0, 2.0)

LIMIT_RANGES: Final[Mapping[str, Range]] = MappingProxyType(
    {
        "max_concurrent": (1, 256),
        "timeout_ms": TIMEOUT_MS_RANGE,
        "max_output_tokens": MAX_OUTPUT_TOKENS_RANGE,
        "max_context_chars": (100, 2_000_000),
        "max_result_chars": (100, 10_000_000),
        "max_retries": (0, 10),
        "retry_base_ms": (1, 60_000),
        "retention_days": (1, 3_650),
    }
)
TERMINAL_RANGES: Final[Mapping[str, Range]] = MappingProxyType(
    {
        "timeout_ms": (100, 600_000),
        "max_output_bytes": (1_024, 16 * 1024 * 1024),
        "max_commands_per_worker": (1, 100),
    }
)

OnClientExit = Literal["cancel", "finish"]
ON_CLIENT_EXIT: Final[tuple[OnClientExit, ...]] = ("cancel", "finish")

MOCK: Final = "mock"
PROVIDER_NAME_PATTERN: Final = r"^[a-z][a-z0-9_-]{0,31}\Z"
VARIABLE_NAME_PATTERN: Final = r"^[A-Z_][A-Z0-9_]{0,127}\Z"


@dataclass(frozen=True)
class Price:
    """Per million tokens; None where that direction's price is unknown."""

    input_per_million: Decimal | None
    output_per_million: Decimal | None
    currency: str = "USD"


@dataclass(frozen=True)
class ProviderConfig:
    """One endpoint. `from_env` holds the names of the fields whose value came from the environment."""

    name: str
    base_url: str
    api_key_env: str = ""
    model: str = ""
    models: tuple[str, ...] = ()
    description: str = ""
    private: bool = False
    kind: Literal["openai", "mock"] = "openai"
    from_env: frozenset[str] = frozenset()
    prices: Mapping[str, Price] = field(default_factory=dict)

    @property
    def known_models(self) -> tuple[str, ...]:
        """The default model first, then the others it lists; empty when nothing is known."""
        return tuple(dict.fromkeys(model for model in (self.model, *self.models) if model))

    def accepts(self, model: str) -> bool:
        """Whether the model may be asked for here: any one, unless the provider lists its models."""
        return not self.models or model in self.known_models


@dataclass(frozen=True)
class RouteConfig:
    role: str
    provider: str = ""
    model: str = ""
    max_output_tokens: int | None = None
    temperature: float | None = None
    system_prompt: str = ""
    from_env: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Limits:
    max_concurrent: int = 4
    timeout_ms: int = 120_000
    max_output_tokens: int = 2_048
    max_context_chars: int = 60_000
    max_result_chars: int = 100_000
    max_retries: int = 2
    retry_base_ms: int = 500
    retain_transcripts: bool = False
    cleanup_workspace_on_finish: bool = False
    on_client_exit: OnClientExit = "cancel"
    workspace_root: str = "workspaces/"
    retention_days: int = 30
    from_env: frozenset[str] = frozenset()


@dataclass(frozen=True)
class AllowedCommand:
    """An executable by absolute path. `args`: one RE2 pattern per argument, or None for any arguments."""

    path: str
    args: tuple[str, ...] | None = None


@dataclass(frozen=True)
class TerminalConfig:
    enabled: bool = False
    allowlist: tuple[AllowedCommand, ...] = ()
    timeout_ms: int = 30_000
    max_output_bytes: int = 65_536
    max_commands_per_worker: int = 5
    from_env: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Config:
    """Everything that decides how a worker runs. `providers` holds the configured ones, never the mock."""

    providers: Mapping[str, ProviderConfig] = field(default_factory=dict)
    routes: Mapping[str, RouteConfig] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    terminal: TerminalConfig = field(default_factory=TerminalConfig)

    def provider(self, name: str) -> ProviderConfig | None:
        """The provider of that name; `mock` is always there by name."""
        return MOCK_PROVIDER if name == MOCK else self.providers.get(name)

    def route(self, role: str) -> RouteConfig:
        return self.routes.get(role) or RouteConfig(role=role)

    @property
    def offered(self) -> tuple[ProviderConfig, ...]:
        """The providers a caller may count on: the configured ones, or the mock while there are none."""
        return tuple(self.providers[name] for name in sorted(self.providers)) or (MOCK_PROVIDER,)


@dataclass(frozen=True)
class Choice:
    provider: ProviderConfig
    model: str
    max_output_tokens: int
    temperature: float | None
    system_prompt: str


MOCK_PROVIDER: Final = ProviderConfig(
    name=MOCK,
    base_url="",
    model="mock-1",
    models=("mock-1",),
    description="Built in, deterministic, offline; needs no key.",
    private=True,
    kind="mock",
    prices=MappingProxyType({"mock-1": Price(Decimal(0), Decimal(0))}),
)


def choose(
    config: Config,
    *,
    role: str = "",
    provider: str = "",
    model: str = "",
    max_output_tokens: int | None = None,
    temperature: float | None = None,
) -> Choice:
    """Where a task goes: the call's own wish, then its role's route, then the only provider there is.

    `Choice.system_prompt` is the route's override, empty where the role's own prompt applies.
    Raises MeahError: E_INVALID_REQUEST for what the caller can put right, E_CONFIG for a route that
    names a provider which is gone.
    """
    role = role or DEFAULT_ROLE
    check_role(role)
    route = config.route(role)
    chosen = _provider(config, route, provider)
    limit = _first(max_output_tokens, route.max_output_tokens, config.limits.max_output_tokens)
    heat = route.temperature if temperature is None else temperature
    return Choice(
        provider=chosen,
        model=_model(config, route, chosen, model),
        max_output_tokens=int(_within("maxOutputTokens", limit, MAX_OUTPUT_TOKENS_RANGE)),
        temperature=None if heat is None else float(_within("temperature", heat, TEMPERATURE_RANGE)),
        system_prompt=route.system_prompt,
    )


def check_role(role: str) -> None:
    """Raises MeahError E_INVALID_REQUEST when there is no such role."""
    if role not in ROLES:
        raise MeahError(
            "E_INVALID_REQUEST",
            f"There is no role {role[:64]!r}.{did_you_mean(role, ROLES)}",
            hint=f"Use one of: {', '.join(ROLES)}.",
            reason="unknown_role",
            details={"roles": list(ROLES)},
        )


def timeout_ms(limits: Limits, wanted: int | None) -> int:
    """The worker's whole time budget. Raises MeahError E_INVALID_REQUEST when `wanted` is out of bounds."""
    return int(_within("timeoutMs", _first(wanted, limits.timeout_ms), TIMEOUT_MS_RANGE))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` when something known is near, else an empty string."""
    near = difflib.get_close_matches(word[:64].lower(), list(known), n=1, cutoff=0.7)
    return f" Did you mean {near[0]!r}?" if near else ""


def _provider(config: Config, route: RouteConfig, wanted: str) -> ProviderConfig:
    if wanted:
        return config.provider(wanted) or _refuse_provider(config, wanted)
    if route.provider:
        return config.provider(route.provider) or _refuse_route(config, route)
    if len(config.offered) == 1:
        return config.offered[0]
    names = ", ".join(provider.name for provider in config.offered)
    raise MeahError(
        "E_INVALID_REQUEST",
        f"Several providers are configured ({names}) and the role {route.role!r} has no route.",
        hint=f"Give `provider` (one of: {names}), or set a route for the role in the admin.",
        reason="provider_needed",
        details={"providers": [provider.name for provider in config.offered]},
    )


def _refuse_provider(config: Config, wanted: str) -> ProviderConfig:
    names = [provider.name for provider in config.offered]
    raise MeahError(
        "E_INVALID_REQUEST",
        f"There is no provider {wanted[:64]!r}.{did_you_mean(wanted, names)}",
        hint=f"Configured providers: {', '.join(names)}. Another one is added in the admin, under Providers.",
        reason="unknown_provider",
        details={"providers": names},
    )


def _refuse_route(config: Config, route: RouteConfig) -> ProviderConfig:
    names = [provider.name for provider in config.offered]
    raise MeahError(
        "E_CONFIG",
        f"The route of role {route.role!r} names the provider {route.provider!r}, which is not configured.",
        hint=f"Change the route in the admin, or give `provider` (one of: {', '.join(names)}).",
        reason="route_without_provider",
        details={"providers": names},
    )


def _model(config: Config, route: RouteConfig, provider: ProviderConfig, wanted: str) -> str:
    model = wanted or _routed_model(config, route, provider) or provider.model
    if not model:
        raise _model_error(provider, f"The provider {provider.name!r} has no default model.", "model_needed")
    if not provider.accepts(model):
        raise _model_error(
            provider,
            f"The provider {provider.name!r} does not list the model {model[:128]!r}.",
            "unknown_model",
        )
    return model


def _routed_model(config: Config, route: RouteConfig, provider: ProviderConfig) -> str:
    """A route's model belongs to the route's provider; without one, to the only provider configured."""
    home = route.provider or (next(iter(config.providers)) if len(config.providers) == 1 else "")
    return route.model if home == provider.name else ""


def _model_error(provider: ProviderConfig, message: str, reason: str) -> MeahError:
    models = provider.known_models
    hint = (
        f"Models of {provider.name}: {', '.join(models)}."
        if models
        else "Give `model`, or set the provider's default model in the admin."
    )
    return MeahError(
        "E_INVALID_REQUEST",
        message,
        hint=hint,
        reason=reason,
        details={"provider": provider.name, "models": list(models)},
    )


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _within(name: str, value: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    wanted = float if isinstance(high, float) else int
    if isinstance(value, int | wanted) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise MeahError(
        "E_INVALID_REQUEST",
        f"{name} must be {'a' if wanted is float else 'a whole'} number from {low} to {high}.",
        hint=f"Correct {name} and call again.",
        reason="out_of_bounds",
    )


def route_problems(config: Config, roles: Iterable[str]) -> list[str]:
    """What keeps these roles' routes from working, each as a sentence that starts with the role."""
    return [f"{role}: {problem}" for role in roles if (problem := _route_problem(config, config.route(role)))]


def _route_problem(config: Config, route: RouteConfig) -> str:
    if not route.provider:
        return ""
    provider = config.provider(route.provider)
    if provider is None:
        names = ", ".join(offered.name for offered in config.offered)
        return f"the provider {route.provider!r} is not configured (there are: {names})."
    if route.model and not provider.accepts(route.model):
        return f"the provider {provider.name!r} does not list the model {route.model!r}."
    if not route.model and not provider.model:
        return f"the provider {provider.name!r} has no default model, and the route names none."
    return ""
