from __future__ import annotations

from typing import Any

import pytest

from core.errors import MeahError
from workers.routing import (
    Config,
    Limits,
    ProviderConfig,
    RouteConfig,
    choose,
    timeout_ms,
)

GLM = ProviderConfig(name="glm", base_url="https://glm.test/v4", model="glm-4.5-air", models=("glm-4.6", "glm-4.5"))
OPEN = ProviderConfig(name="open", base_url="https://open.test/v1", model="vendor/any")
BARE = ProviderConfig(name="bare", base_url="https://bare.test/v1")


def config(*providers: ProviderConfig, routes: tuple[RouteConfig, ...] = (), **limits: Any) -> Config:
    return Config(
        providers={provider.name: provider for provider in providers},
        routes={route.role: route for route in routes},
        limits=Limits(**limits),
    )


def refused(config: Config, **wishes: Any) -> MeahError:
    with pytest.raises(MeahError) as caught:
        choose(config, **wishes)
    return caught.value


@pytest.mark.parametrize(
    ("providers", "route", "wishes", "provider", "model"),
    [
        ([], None, {}, "mock", "mock-1"),
        ([], None, {"provider": "mock"}, "mock", "mock-1"),
        ([GLM], None, {}, "glm", "glm-4.5-air"),
        ([GLM], None, {"model": "glm-4.6"}, "glm", "glm-4.6"),
        ([GLM], None, {"model": "glm-4.5-air"}, "glm", "glm-4.5-air"),
        ([GLM], None, {"provider": "mock"}, "mock", "mock-1"),
        ([GLM, OPEN], None, {"provider": "open"}, "open", "vendor/any"),
        ([GLM, OPEN], None, {"provider": "open", "model": "whatever"}, "open", "whatever"),
        ([GLM, OPEN], RouteConfig("coder", "open"), {"role": "coder"}, "open", "vendor/any"),
        ([GLM, OPEN], RouteConfig("coder", "open", "x/y"), {"role": "coder"}, "open", "x/y"),
        ([GLM, OPEN], RouteConfig("coder", "open", "x/y"), {"role": "coder", "model": "z"}, "open", "z"),
        # A route's model stays with the route's provider.
        (
            [GLM, OPEN],
            RouteConfig("coder", "open", "x/y"),
            {"role": "coder", "provider": "glm"},
            "glm",
            "glm-4.5-air",
        ),
        ([GLM, OPEN], RouteConfig("coder", "mock"), {"role": "coder"}, "mock", "mock-1"),
        # A route without a provider means the only one, and nothing else.
        ([GLM], RouteConfig("coder", "", "glm-4.6"), {"role": "coder"}, "glm", "glm-4.6"),
        (
            [GLM],
            RouteConfig("coder", "", "glm-4.6"),
            {"role": "coder", "provider": "mock"},
            "mock",
            "mock-1",
        ),
        ([], RouteConfig("coder", "", "glm-4.6"), {"role": "coder"}, "mock", "mock-1"),
        ([BARE], None, {"model": "m"}, "bare", "m"),
    ],
)
def test_the_call_then_the_route_then_the_only_provider(
    providers: list[ProviderConfig],
    route: RouteConfig | None,
    wishes: dict[str, str],
    provider: str,
    model: str,
) -> None:
    choice = choose(config(*providers, routes=(route,) if route else ()), **wishes)
    assert (choice.provider.name, choice.model) == (provider, model)


def test_two_providers_without_a_route_are_never_guessed_between() -> None:
    error = refused(config(OPEN, GLM))
    assert (error.code, error.reason) == ("E_INVALID_REQUEST", "provider_needed")
    assert error.details["providers"] == ["glm", "open"]
    assert "glm, open" in error.message


def test_a_model_alone_chooses_no_provider_even_if_only_one_lists_it() -> None:
    assert refused(config(GLM, OPEN), model="glm-4.6").reason == "provider_needed"


def test_a_route_without_provider_does_not_decide_between_two() -> None:
    routes = (RouteConfig("coder", "", "glm-4.6"),)
    assert refused(config(GLM, OPEN, routes=routes), role="coder").reason == "provider_needed"
    choice = choose(config(GLM, OPEN, routes=routes), role="coder", provider="open")
    assert choice.model == "vendor/any"


def test_an_unknown_provider_is_refused_with_the_configured_ones() -> None:
    error = refused(config(GLM, OPEN), provider="glmm")
    assert (error.code, error.reason) == ("E_INVALID_REQUEST", "unknown_provider")
    assert "Did you mean 'glm'?" in error.message
    assert "glm, open" in error.hint
    assert "mock" not in error.hint


def test_an_unknown_provider_with_none_configured_is_told_of_the_mock() -> None:
    assert "Configured providers: mock." in refused(config(), provider="glm").hint


def test_an_unknown_role_is_refused_with_all_roles() -> None:
    error = refused(config(GLM), role="codr")
    assert (error.code, error.reason) == ("E_INVALID_REQUEST", "unknown_role")
    assert "Did you mean 'coder'?" in error.message
    assert "researcher, builder, coder, debugger, reviewer, summarizer" in error.hint


def test_a_model_outside_a_list_is_refused_for_that_provider_only() -> None:
    error = refused(config(GLM, OPEN), provider="glm", model="vendor/any")
    assert (error.code, error.reason) == ("E_INVALID_REQUEST", "unknown_model")
    assert "glm-4.5-air, glm-4.6, glm-4.5" in error.hint
    assert choose(config(GLM, OPEN), provider="open", model="vendor/any").model == "vendor/any"


def test_a_provider_without_a_default_model_asks_for_one() -> None:
    assert "Give `model`" in refused(config(BARE)).hint
    listing = ProviderConfig(name="listing", base_url="https://l.test/v1", models=("a", "b"))
    error = refused(config(listing))
    assert error.reason == "model_needed"
    assert "Models of listing: a, b." in error.hint


def test_a_route_to_a_provider_that_is_gone_is_a_configuration_error() -> None:
    error = refused(config(GLM, routes=(RouteConfig("coder", "gone", "m"),)), role="coder")
    assert (error.code, error.reason) == ("E_CONFIG", "route_without_provider")
    assert "'gone'" in error.message
    assert choose(config(GLM, routes=(RouteConfig("coder", "gone", "m"),)), role="coder", provider="glm").model


def test_tokens_and_temperature_come_from_call_then_role_then_default() -> None:
    routes = (RouteConfig("coder", "glm", "", 900, 0.0, "Be brief."),)
    both = config(GLM, OPEN, routes=routes, max_output_tokens=777)
    call = choose(both, role="coder", max_output_tokens=5, temperature=1)
    assert (call.max_output_tokens, call.temperature, call.system_prompt) == (5, 1.0, "Be brief.")
    role = choose(both, role="coder")
    assert (role.max_output_tokens, role.temperature) == (900, 0.0)
    default = choose(both, role="builder", provider="glm")
    assert (default.max_output_tokens, default.temperature, default.system_prompt) == (777, None, "")


@pytest.mark.parametrize(
    "wishes",
    [
        {"max_output_tokens": 0},
        {"max_output_tokens": -1},
        {"max_output_tokens": 1_000_001},
        {"max_output_tokens": 1.5},
        {"max_output_tokens": True},
        {"temperature": -0.1},
        {"temperature": 2.1},
        {"temperature": float("nan")},
        {"temperature": "hot"},
    ],
)
def test_options_out_of_bounds_are_refused_by_name(wishes: dict[str, Any]) -> None:
    error = refused(config(GLM), **wishes)
    assert (error.code, error.reason) == ("E_INVALID_REQUEST", "out_of_bounds")
    name = "maxOutputTokens" if "max_output_tokens" in wishes else "temperature"
    assert name in error.message


def test_the_time_budget_is_the_calls_or_the_default() -> None:
    assert timeout_ms(Limits(timeout_ms=7_000), None) == 7_000
    assert timeout_ms(Limits(), 500) == 500
    with pytest.raises(MeahError, match="timeoutMs must be a whole number from 100 to 3600000"):
        timeout_ms(Limits(), -5)
