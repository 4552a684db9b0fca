"""Providers in the admin: added by preset, checked, shown with their keys' state, tried out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from approvals.models import Process
from audit.models import Entry
from core.secrets import name_secrets
from tests.fake_provider import FakeProvider, json_reply
from tests.rows import SHOWN_SPOOF, SPOOF, living_console, page, posted, staff_client
from workers.models import Provider, ProviderModel
from workers.probe import try_out
from workers.providers.base import Adaptation
from workers.routing import ProviderConfig
from workers.services import learn

LIST = "/admin/workers/provider/"
ADD = "/admin/workers/provider/add/"
KEY = "sk-ant-api03-" + "a1B2" * 24
NO_MODELS = {
    "provider_models-TOTAL_FORMS": "0",
    "provider_models-INITIAL_FORMS": "0",
    "provider_models-MIN_NUM_FORMS": "0",
    "provider_models-MAX_NUM_FORMS": "1000",
}
GOOD = {
    "name": "glm",
    "base_url": "https://api.example.com/v1",
    "api_key_env": "EXAMPLE_API_KEY",
    "model": "glm-4.5-air",
    "description": "",
    "private": "unknown",
    **NO_MODELS,
}


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest) -> None:
    """Either a transaction of the test, or a home with a database of its own."""
    if "home" not in request.fixturenames:
        request.getfixturevalue("db")


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server


def payload(kind: str) -> dict[str, Any]:
    entry = Entry.objects.filter(kind=kind).order_by("-seq").first()
    assert entry is not None
    read: dict[str, Any] = json.loads(bytes(entry.payload))
    return read


# -- the list


def test_an_empty_list_offers_the_presets(admin_client: Client) -> None:
    html = page(admin_client, LIST)
    assert "No provider yet" in html
    assert f"{ADD}?preset=glm" in html
    assert f"{ADD}?preset=aicredits" in html


def test_the_list_says_in_which_processes_a_key_is_set_and_never_shows_it(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_API_KEY", KEY)
    Provider.objects.create(name="glm", base_url="https://api.example.com/v1", api_key_env="EXAMPLE_API_KEY")
    Provider.objects.create(name="bare", base_url="http://127.0.0.1:9/v1")
    Provider.objects.create(name="keyless", base_url="https://b.example.com/v1", api_key_env="OTHER_KEY")
    name_secrets(["EXAMPLE_API_KEY"])
    with living_console() as console:
        html = page(admin_client, LIST)
        assert "no key needed" in html
        assert "not set" in html
        assert "not everywhere" not in html
        # Another process that lacks it: the row of this one, told to be another.
        Process.objects.filter(public_id=console.public_id).update(pid=1, kind="runmcp", key_variables=[])
        html = page(admin_client, LIST)
    assert "not in MCP server 1" in html
    assert KEY not in html


def test_providers_of_the_environment_are_shown_with_their_variables(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEAH_PROVIDER_LOCAL_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEAH_PROVIDER_LOCAL_MODELS", "one,two")
    html = page(admin_client, LIST)
    assert "Only in the environment" in html
    assert "MEAH_PROVIDER_LOCAL_BASE_URL" in html
    assert "No provider yet" not in html
    assert page(admin_client, f"{LIST}local/test/").count("http://127.0.0.1:9/v1") == 1


def test_a_wrong_variable_is_named_instead_of_breaking_the_page(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEAH_PROVIDER_LOCAL_BASE_URL", "no-scheme.example.com")
    for url in (LIST, ADD, "/admin/", "/admin/workers/roleroute/", "/admin/workers/worker/add/"):
        page(admin_client, url)
    assert "MEAH_PROVIDER_LOCAL_BASE_URL" in page(admin_client, LIST)
    assert "MEAH_PROVIDER_LOCAL_BASE_URL" in page(admin_client, "/admin/")


def test_a_row_that_the_environment_overrides_shows_the_value_in_force_read_only(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Provider.objects.create(name="glm", base_url="https://row.example.com/v1", model="from-row")
    monkeypatch.setenv("MEAH_PROVIDER_GLM_MODEL", "from-variable")
    html = page(admin_client, f"{LIST}{row.pk}/change/")
    assert "from-variable" in html
    assert "MEAH_PROVIDER_GLM_MODEL" in html
    assert 'name="model"' not in html
    assert 'name="base_url"' in html
    form = {name: value for name, value in GOOD.items() if name not in {"name", "model"}}
    posted(admin_client, f"{LIST}{row.pk}/change/", **form)
    row.refresh_from_db()
    assert (row.model, row.base_url) == ("from-row", "https://api.example.com/v1")


# -- the form


def test_a_preset_fills_the_form(admin_client: Client) -> None:
    html = page(admin_client, ADD, preset="glm")
    for value in ("https://api.z.ai/api/paas/v4", "MEAH_GLM_API_KEY", "glm-4.5-air"):
        assert f'value="{value}"' in html
    assert "Put the key of Z.AI into MEAH_GLM_API_KEY" in html


def test_a_new_provider_is_recorded_and_leads_to_its_test(admin_client: Client) -> None:
    html = posted(admin_client, ADD, **GOOD)
    assert "Test glm" in html
    assert Provider.objects.get().base_url == "https://api.example.com/v1"
    entry = payload("provider.added")
    assert (entry["principal"], entry["subject"]) == ("user:admin", "glm")


def test_an_address_that_is_a_whole_endpoint_is_cut_with_a_word_about_it(admin_client: Client) -> None:
    html = posted(admin_client, ADD, **(GOOD | {"base_url": "https://api.example.com/v1/chat/completions/"}))
    assert "The base URL is kept as https://api.example.com/v1" in html
    assert Provider.objects.get().base_url == "https://api.example.com/v1"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"base_url": "api.example.com/v1"}, "no http:// or https://"),
        ({"base_url": ""}, "required"),
        ({"base_url": "https://user:pw@api.example.com/v1"}, "user name or password"),
        ({"name": "mock"}, "built-in provider"),
        ({"name": "Has Space"}, "lower-case letters"),
        ({"model": "two models"}, "one model"),
        ({"api_key_env": "lower_case"}, "not the name of a variable"),
    ],
)
def test_what_can_not_work_is_refused_with_the_fix(admin_client: Client, given: dict[str, str], told: str) -> None:
    assert told in posted(admin_client, ADD, **(GOOD | given))
    assert not Provider.objects.exists()


@pytest.mark.parametrize("field", ["api_key_env", "description", "model", "base_url", "name"])
def test_a_pasted_key_is_refused_and_not_shown_again(admin_client: Client, field: str) -> None:
    pasted = f"https://api.example.com/v1?key={KEY}" if field == "base_url" else KEY
    html = posted(admin_client, ADD, **(GOOD | {field: pasted}))
    assert not Provider.objects.exists()
    assert KEY not in html
    assert not any(KEY.encode() in bytes(entry.payload) for entry in Entry.objects.all())


def test_models_get_prices_and_a_negative_one_is_refused(admin_client: Client) -> None:
    models = {
        **NO_MODELS,
        "provider_models-TOTAL_FORMS": "1",
        "provider_models-0-name": "glm-4.5-air",
        "provider_models-0-listed": "on",
        "provider_models-0-input_price": "-1",
        "provider_models-0-output_price": "1.1",
        "provider_models-0-currency": "USD",
    }
    assert "greater than or equal to 0" in posted(admin_client, ADD, **(GOOD | models))
    posted(admin_client, ADD, **(GOOD | models | {"provider_models-0-input_price": "0.2"}))
    model = ProviderModel.objects.get()
    assert (model.listed, model.input_price, model.output_price) == (True, Decimal("0.2"), Decimal("1.1"))


def test_the_name_of_a_provider_stays(admin_client: Client) -> None:
    row = Provider.objects.create(name="glm", base_url="https://api.example.com/v1")
    posted(admin_client, f"{LIST}{row.pk}/change/", **(GOOD | {"name": "other"}))
    row.refresh_from_db()
    assert (row.name, row.model) == ("glm", "glm-4.5-air")


def test_looking_needs_the_right_to_view_and_changing_the_right_to_change() -> None:
    row = Provider.objects.create(name="glm", base_url="https://api.example.com/v1")
    client = staff_client("workers.view_provider")
    assert "glm" in page(client, f"{LIST}{row.pk}/change/")
    assert client.post(f"{LIST}{row.pk}/change/", GOOD).status_code == 403
    assert client.get(ADD).status_code == 403
    assert "Test now" not in page(client, f"{LIST}glm/test/")
    assert client.post(f"{LIST}glm/test/").status_code == 403


# -- what was learned


def test_what_was_learned_is_shown_with_its_evidence_and_can_be_reset(admin_client: Client) -> None:
    row = Provider.objects.create(name="glm", base_url="https://api.example.com/v1")
    learn("glm", "m", [Adaptation("max_tokens", "rename", "max_completion_tokens", SPOOF)])
    model = ProviderModel.objects.get()
    html = page(admin_client, f"{LIST}{row.pk}/change/")
    assert "max_tokens is sent as max_completion_tokens" in html
    assert SHOWN_SPOOF in html
    forget = f"{LIST}models/{model.pk}/forget/"
    assert SHOWN_SPOOF in page(admin_client, forget)
    model.refresh_from_db()
    assert model.adaptations
    assert "is forgotten" in posted(admin_client, forget)
    model.refresh_from_db()
    assert (model.adaptations, model.learned_at) == ([], None)
    assert payload("provider.adaptations_reset")["data"]["fields"] == ["max_tokens"]


def test_resetting_needs_the_right_to_change_providers() -> None:
    Provider.objects.create(name="glm", base_url="https://api.example.com/v1")
    learn("glm", "m", [Adaptation("max_tokens", "drop")])
    model = ProviderModel.objects.get()
    assert staff_client("workers.view_provider").post(f"{LIST}models/{model.pk}/forget/").status_code == 403
    model.refresh_from_db()
    assert model.adaptations


# -- trying one out


def test_the_built_in_mock_can_be_tested_at_once(admin_client: Client) -> None:
    html = posted(admin_client, f"{LIST}mock/test/")
    assert "answered" in html
    assert payload("provider.tested")["data"]["ok"] is True


def test_a_test_lists_the_models_asks_for_one_word_and_shows_what_it_took(
    admin_client: Client, fake: FakeProvider
) -> None:
    Provider.objects.create(name="here", base_url=fake.base_url, private=True)
    html = posted(admin_client, f"{LIST}here/test/", model="fake-model")
    assert "Hello from the fake provider." in html
    asked = [request for request in fake.requests if request.path.endswith("/chat/completions")]
    assert len(asked) == 1
    assert asked[0].json["model"] == "fake-model"
    entry = payload("provider.tested")
    assert (entry["principal"], entry["subject"]) == ("user:admin", "here")
    assert entry["data"]["ok"] is True


def test_a_failed_test_shows_the_code_and_what_to_do_and_is_recorded_without_the_key(
    admin_client: Client, fake: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_API_KEY", KEY)
    fake.reply(json_reply({"error": {"message": f"Incorrect API key provided: {KEY}"}}, status=401))
    Provider.objects.create(name="here", base_url=fake.base_url, api_key_env="EXAMPLE_API_KEY", private=True)
    html = posted(admin_client, f"{LIST}here/test/", model="fake-model")
    assert "E_AUTH" in html
    assert "What to do" in html
    assert KEY not in html
    assert payload("provider.tested")["data"]["error"] == "E_AUTH"
    assert not any(KEY.encode() in bytes(entry.payload) for entry in Entry.objects.all())


def test_a_test_without_a_key_says_where_to_put_it(admin_client: Client, fake: FakeProvider) -> None:
    Provider.objects.create(name="here", base_url=fake.base_url, api_key_env="NOT_SET_KEY", private=True)
    html = posted(admin_client, f"{LIST}here/test/", model="fake-model")
    assert "E_CONFIG" in html
    assert "NOT_SET_KEY" in html
    assert fake.requests == []


def test_a_provider_that_says_nothing_is_given_up_in_time(fake: FakeProvider) -> None:
    fake.delay = 30.0
    config = ProviderConfig("here", fake.base_url, model="fake-model", private=True)
    found = try_out(config, model="", principal="user:admin", within_s=0.5)
    assert found.error is not None
    assert found.error.code == "E_TIMEOUT"


def test_testing_nobody_is_not_found(admin_client: Client) -> None:
    assert admin_client.get(f"{LIST}nobody/test/").status_code == 404
