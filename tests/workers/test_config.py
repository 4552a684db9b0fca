from __future__ import annotations

import os
from decimal import Decimal
from typing import Any

import pytest

from core.errors import MeahError
from core.secrets import named_secrets
from workers import config_env
from workers.config import effective, is_loopback, stored_values
from workers.config_fields import LIMIT_FIELDS, SECTIONS, TERMINAL_FIELDS
from workers.models import Provider, ProviderModel, RoleRoute, WorkerSettings
from workers.presets import PRESETS
from workers.routing import AllowedCommand, Limits, Price, TerminalConfig, choose

FAKE_KEY = "sk-" + "proj-" + "a1B2c3D4" * 6

VALID = {
    "MEAH_PROVIDER_GLM_BASE_URL": "https://glm.test/v4/chat/completions",
    "MEAH_PROVIDER_GLM_API_KEY_ENV": "MY_GLM_KEY",
    "MEAH_PROVIDER_GLM_MODEL": "glm-4.5-air",
    "MEAH_PROVIDER_GLM_MODELS": "glm-4.6, glm-4.5-air,,",
    "MEAH_PROVIDER_GLM_DESCRIPTION": "Fast.",
    "MEAH_PROVIDER_GLM_PRIVATE": "Yes",
    "MEAH_ROLE_CODER_PROVIDER": "glm",
    "MEAH_ROLE_CODER_MODEL": "glm-4.6",
    "MEAH_ROLE_CODER_MAX_OUTPUT_TOKENS": "900",
    "MEAH_ROLE_CODER_TEMPERATURE": "0",
    "MEAH_MAX_CONCURRENT": " 7 ",
    "MEAH_RETAIN_TRANSCRIPTS": "on",
    "MEAH_ON_CLIENT_EXIT": "FINISH",
    "MEAH_TERMINAL_ENABLED": "true",
    "MEAH_TERMINAL_ALLOWLIST": "/usr/bin/python3,/bin/ls",
}


def refused(environ: dict[str, str], **more: Any) -> MeahError:
    with pytest.raises(MeahError) as caught:
        config_env.read(environ, **more)
    return caught.value


def test_every_variable_sets_its_field() -> None:
    values = config_env.read(VALID)
    assert values.providers == {
        "glm": {
            "base_url": "https://glm.test/v4",
            "api_key_env": "MY_GLM_KEY",
            "model": "glm-4.5-air",
            "models": ("glm-4.6", "glm-4.5-air"),
            "description": "Fast.",
            "private": True,
        }
    }
    assert values.roles == {
        "coder": {"provider": "glm", "model": "glm-4.6", "max_output_tokens": 900, "temperature": 0.0}
    }
    assert values.defaults == {"max_concurrent": 7, "retain_transcripts": True, "on_client_exit": "finish"}
    assert values.terminal == {
        "enabled": True,
        "allowlist": (AllowedCommand("/usr/bin/python3"), AllowedCommand("/bin/ls")),
    }


@pytest.mark.parametrize("blank", ["", "  "])
def test_an_empty_variable_counts_as_not_set(blank: str) -> None:
    assert list(config_env.read(dict.fromkeys(VALID, blank)).leaves()) == []


BAD = [
    ("MEAH_MAX_CONCURRENT", "-1", "from 1 to 256, and is -1", "between 1 and 256"),
    ("MEAH_MAX_CONCURRENT", "four", 'whole number from 1 to 256, and is "four"', "between 1 and 256"),
    ("MEAH_MAX_CONCURRENT", "2.5", "whole number", "between"),
    ("MEAH_TIMEOUT_MS", "1e400", "whole number", "between"),
    ("MEAH_MAX_RETRIES", "9" * 5000, "whole number", "between"),
    ("MEAH_RETENTION_DAYS", "0", "from 1 to", "between"),
    ("MEAH_RETAIN_TRANSCRIPTS", "maybe", 'true or false, and is "maybe"', "true or false"),
    ("MEAH_ON_CLIENT_EXIT", "stay", 'one of cancel, finish, and is "stay"', "cancel"),
    ("MEAH_WORKSPACE_ROOT", "../elsewhere", "without '..'", "MEAH_HOME"),
    ("MEAH_TERMINAL_ALLOWLIST", "python3", "'python3', which is no absolute path", "from / on"),
    ("MEAH_TERMINAL_ALLOWLIST", '["/bin/ls"', "is no JSON list", "commas"),
    ("MEAH_TERMINAL_ALLOWLIST", '[{"path": "/bin/ls", "args": ["(?=x)"]}]', "'(?=x)'", "RE2"),
    ("MEAH_TERMINAL_TIMEOUTMS", "5", "is no setting", "Did you mean MEAH_TERMINAL_TIMEOUT_MS?"),
    ("MEAH_ROLE_CODR_MODEL", "x", "the role 'codr'", "Did you mean 'coder'?"),
    ("MEAH_ROLE_CODER_TEMPERATUR", "1", "is no setting", "MEAH_ROLE_CODER_TEMPERATURE"),
    ("MEAH_ROLE_CODER_TEMPERATURE", "2.5", "from 0.0 to 2.0, and is 2.5", "between"),
    ("MEAH_ROLE_CODER_TEMPERATURE", "nan", "number from 0.0 to 2.0", "between"),
    ("MEAH_ROLE_CODER_MAX_OUTPUT_TOKENS", "0", "from 1 to 1000000", "between"),
    ("MEAH_PROVIDER_GLM_BASE_URL", "glm.test/v4", "no http:// or https://", "https://glm.test/v4"),
    ("MEAH_PROVIDER_GLM_BASE_URL", "ftp://glm.test", "no http:// or https://", "https://glm.test"),
    ("MEAH_PROVIDER_GLM_BASEURL", "https://x.test", "is no setting", "MEAH_PROVIDER_GLM_BASE_URL"),
    ("MEAH_PROVIDER_GLM_API_KEY", "anything", "is no setting", "MEAH_PROVIDER_GLM_API_KEY_ENV"),
    ("MEAH_PROVIDER_GLM_API_KEY_ENV", FAKE_KEY, "looks like a key", "apiKeyEnv names the variable"),
    ("MEAH_PROVIDER_GLM_API_KEY_ENV", "my-own-key", "must be the NAME", "MY_API_KEY"),
    ("MEAH_PROVIDER_GLM_MODEL", "two models", "without spaces", "list"),
    ("MEAH_PROVIDER_GLM_DESCRIPTION", "a\u202eb", "invisible", "anew"),
    ("MEAH_PROVIDER_GLM_DESCRIPTION", f"use {FAKE_KEY}", "looks like a key", "variables"),
    ("MEAH_PROVIDER_MOCK_BASE_URL", "https://x.test", "built-in provider", "another name"),
    ("MEAH_PROVIDER_9_BASE_URL", "https://x.test", "no valid provider name", "lower-case"),
    ("MEAH_PROVIDER__BASE_URL", "https://x.test", "is no setting", "BASE_URL"),
]


@pytest.mark.parametrize(("name", "text", "problem", "fix"), BAD)
def test_a_wrong_variable_is_named_with_problem_and_fix(name: str, text: str, problem: str, fix: str) -> None:
    error = refused({name: text}, stored=["glm"])
    assert error.code == "E_CONFIG"
    assert f"The environment variable {name} " in error.message
    assert problem in error.message
    assert fix in error.hint
    told = str(error.as_dict())
    assert "a1B2c3D4" not in told
    assert "my-own-key" not in told
    assert len(error.message) < 300


def test_all_wrong_variables_are_told_at_once() -> None:
    error = refused({"MEAH_MAX_RETRIES": "-1", "MEAH_TIMEOUT_MS": "x", "MEAH_MAX_CONCURRENT": "2"})
    assert [problem["variable"] for problem in error.details["problems"]] == [
        "MEAH_MAX_RETRIES",
        "MEAH_TIMEOUT_MS",
    ]
    assert "1 more: MEAH_TIMEOUT_MS." in error.message


def test_a_provider_of_the_environment_alone_needs_an_address() -> None:
    error = refused({"MEAH_PROVIDER_GLM_MODEL": "m"})
    assert "MEAH_PROVIDER_GLM_BASE_URL is not set" in error.message
    assert config_env.read({"MEAH_PROVIDER_GLM_MODEL": "m"}, stored=["glm"]).providers == {"glm": {"model": "m"}}


def test_a_key_may_stand_in_a_variable_that_looks_like_a_setting() -> None:
    name = "MEAH_PROVIDER_GLM_API_KEY"
    environ = {name: FAKE_KEY, "MEAH_PROVIDER_GLM_BASE_URL": "https://x.test", f"{name}_ENV": name}
    assert config_env.read(environ).providers["glm"]["api_key_env"] == name
    assert config_env.read({name: FAKE_KEY}, keys=[name]).providers == {}


def test_other_variables_of_the_product_are_left_alone() -> None:
    others = {"MEAH_HOME": "/x", "MEAH_GLM_API_KEY": FAKE_KEY, "MEAH_LOG_LEVEL": "debug", "PATH": "/bin"}
    assert list(config_env.read(others).leaves()) == []


def test_a_misspelled_limit_is_found_for_the_doctor() -> None:
    assert config_env.near_misses({"MEAH_MAX_CONCURENT": "5", "MEAH_HOME": "x", "MEAH_GLM_API_KEY": "k"}) == {
        "MEAH_MAX_CONCURENT": "MEAH_MAX_CONCURRENT"
    }
    assert config_env.near_misses({variable.name: "1" for variable in config_env.variables()}) == {}


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://localhost:8000/v1", True),
        ("http://LOCALHOST/v1", True),
        ("http://127.0.0.1:1234", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:8000/v1", True),
        ("http://localhost.evil.test/v1", False),
        ("http://127.0.0.1.evil.test", False),
        ("http://10.0.0.1", False),
        ("https://api.test", False),
        ("", False),
    ],
)
def test_only_localhost_and_loopback_literals_are_loopback(url: str, loopback: bool) -> None:
    assert is_loopback(url) is loopback


def test_the_fields_are_those_of_the_dataclasses() -> None:
    for instance, fields in ((Limits(), LIMIT_FIELDS), (TerminalConfig(), TERMINAL_FIELDS)):
        assert [field.name for field in fields] == [name for name in vars(instance) if name != "from_env"]
        for field in fields:
            default = getattr(instance, field.name)
            assert field.check(list(default) if isinstance(default, tuple) else default) == default
    assert all(field.about for fields in SECTIONS.values() for field in fields)


def test_the_presets_share_neither_key_nor_model_and_are_valid() -> None:
    glm, aicredits = PRESETS["glm"], PRESETS["aicredits"]
    assert glm.api_key_env != aicredits.api_key_env
    assert glm.model != aicredits.model
    for preset in (glm, aicredits):
        for field in SECTIONS["providers"]:
            if hasattr(preset, field.name):
                assert field.check(getattr(preset, field.name)) == getattr(preset, field.name)


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith(("MEAH_PROVIDER_", "MEAH_ROLE_"))]:
        monkeypatch.delenv(name)
    return monkeypatch


def make_provider(name: str = "glm", **values: Any) -> Provider:
    values.setdefault("base_url", "https://glm.test/v4/")
    return Provider.objects.create(name=name, **values)


@pytest.mark.django_db
def test_an_empty_database_gives_the_defaults_and_the_mock(environ: pytest.MonkeyPatch) -> None:
    config = effective()
    assert (config.providers, config.routes) == ({}, {})
    assert (config.limits, config.terminal) == (Limits(), TerminalConfig())
    assert choose(config).provider.name == "mock"


@pytest.mark.django_db
def test_rows_become_the_configuration(environ: pytest.MonkeyPatch) -> None:
    provider = make_provider(api_key_env="SOME_KEY_OF_A_TEST", model="a", description="d")
    ProviderModel.objects.create(provider=provider, name="b", input_price=Decimal("0.5"), currency="EUR")
    ProviderModel.objects.create(provider=provider, name="learned", listed=False)
    RoleRoute.objects.create(role="coder", provider="glm", model="b", max_output_tokens=9, temperature=0.5)
    allowlist = ["/bin/ls", {"path": "/bin/cat", "args": ["[a-z]+"]}]
    WorkerSettings.objects.create(pk=1, max_retries=0, terminal_allowlist=allowlist)
    config = effective()
    glm = config.providers["glm"]
    assert (glm.base_url, glm.model, glm.models, glm.private) == ("https://glm.test/v4", "a", ("b",), False)
    assert glm.prices == {"b": Price(Decimal("0.5"), None, "EUR")}
    assert glm.from_env == frozenset()
    assert (config.routes["coder"].model, config.routes["coder"].temperature) == ("b", 0.5)
    assert config.limits.max_retries == 0
    assert config.terminal.allowlist == (AllowedCommand("/bin/ls"), AllowedCommand("/bin/cat", ("[a-z]+",)))
    assert "SOME_KEY_OF_A_TEST" in named_secrets()


@pytest.mark.django_db
def test_the_environment_wins_field_by_field_and_is_remembered(environ: pytest.MonkeyPatch) -> None:
    make_provider(model="stored", description="stays", private=True)
    RoleRoute.objects.create(role="coder", provider="glm", system_prompt="stays")
    WorkerSettings.objects.create(pk=1, max_concurrent=2, max_retries=1)
    environ.setenv("MEAH_PROVIDER_GLM_MODEL", "given")
    environ.setenv("MEAH_PROVIDER_GLM_API_KEY_ENV", "KEY_GIVEN_BY_A_TEST")
    environ.setenv("MEAH_ROLE_CODER_TEMPERATURE", "0.25")
    environ.setenv("MEAH_MAX_CONCURRENT", "9")
    environ.setenv("MEAH_TERMINAL_ENABLED", "1")
    config = effective()
    glm, coder = config.providers["glm"], config.routes["coder"]
    assert (glm.model, glm.description, glm.private) == ("given", "stays", True)
    assert glm.from_env == {"model", "api_key_env"}
    assert (coder.provider, coder.system_prompt, coder.temperature) == ("glm", "stays", 0.25)
    assert coder.from_env == {"temperature"}
    assert (config.limits.max_concurrent, config.limits.max_retries) == (9, 1)
    assert config.limits.from_env == {"max_concurrent"}
    assert config.terminal.from_env == {"enabled"}
    assert "KEY_GIVEN_BY_A_TEST" in named_secrets()
    assert stored_values().providers["glm"]["model"] == "stored"


@pytest.mark.django_db
def test_a_provider_of_the_environment_exists_without_a_row(environ: pytest.MonkeyPatch) -> None:
    environ.setenv("MEAH_PROVIDER_LOCAL_BASE_URL", "http://127.0.0.1:9/v1")
    environ.setenv("MEAH_PROVIDER_LOCAL_MODEL", "m")
    config = effective()
    assert choose(config).provider.name == "local"
    assert config.providers["local"].private is True
    environ.setenv("MEAH_PROVIDER_LOCAL_PRIVATE", "false")
    assert effective().providers["local"].private is False


@pytest.mark.django_db
def test_a_row_without_an_address_is_no_provider_until_the_environment_gives_one(
    environ: pytest.MonkeyPatch,
) -> None:
    placeholder = make_provider("local", base_url="")
    ProviderModel.objects.create(provider=placeholder, name="m", listed=False, output_price=Decimal(2))
    assert effective().providers == {}
    environ.setenv("MEAH_PROVIDER_LOCAL_BASE_URL", "http://localhost:9/v1")
    local = effective().providers["local"]
    assert (local.base_url, local.prices["m"].output_per_million) == ("http://localhost:9/v1", Decimal(2))


@pytest.mark.django_db
def test_a_name_with_a_hyphen_is_reached_by_an_underscore(environ: pytest.MonkeyPatch) -> None:
    make_provider("my-own")
    environ.setenv("MEAH_PROVIDER_MY_OWN_MODEL", "m")
    assert [(name, provider.model) for name, provider in effective().providers.items()] == [("my-own", "m")]


@pytest.mark.django_db
def test_a_row_named_mock_or_with_a_bad_address_breaks_nothing(environ: pytest.MonkeyPatch) -> None:
    make_provider("mock")
    make_provider("odd", base_url="no-scheme")
    config = effective()
    assert list(config.providers) == ["odd"]
    assert config.providers["odd"].base_url == "no-scheme"


@pytest.mark.django_db
def test_a_wrong_variable_stops_with_its_name(environ: pytest.MonkeyPatch) -> None:
    environ.setenv("MEAH_MAX_CONCURRENT", "-4")
    with pytest.raises(MeahError, match="MEAH_MAX_CONCURRENT"):
        effective()


@pytest.mark.django_db
def test_reading_it_takes_four_queries(environ: pytest.MonkeyPatch, django_assert_max_num_queries: Any) -> None:
    provider = make_provider()
    for number in range(5):
        ProviderModel.objects.create(provider=provider, name=f"m{number}")
    with django_assert_max_num_queries(4):
        effective()
