"""Role routes and limits in the admin: always there, checked, read-only where the environment rules."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from audit.models import Entry
from tests.rows import page, posted, staff_client
from workers.config import effective
from workers.models import Provider, ProviderModel, RoleRoute, WorkerSettings
from workers.roles import ROLES

pytestmark = pytest.mark.django_db

ROUTES = "/admin/workers/roleroute/"
CODER = "/admin/workers/roleroute/coder/change/"
LIMITS = "/admin/workers/workersettings/1/change/"
LIMIT_VALUES = {
    "max_concurrent": "4",
    "timeout_ms": "120000",
    "max_retries": "2",
    "retry_base_ms": "500",
    "on_client_exit": "cancel",
    "max_output_tokens": "2048",
    "max_context_chars": "60000",
    "max_result_chars": "100000",
    "retention_days": "30",
    "workspace_root": "workspaces/",
    "terminal_allowlist": "[]",
    "terminal_timeout_ms": "30000",
    "terminal_max_output_bytes": "65536",
    "terminal_max_commands_per_worker": "5",
}


def payload(kind: str) -> dict[str, Any]:
    entry = Entry.objects.filter(kind=kind).order_by("-seq").first()
    assert entry is not None
    read: dict[str, Any] = json.loads(bytes(entry.payload))
    return read


# -- routes


def test_every_role_is_in_the_list_before_anybody_has_set_a_route(admin_client: Client) -> None:
    html = page(admin_client, ROUTES)
    for role in ROLES:
        assert f"{ROUTES}{role}/change/" in html
    assert "mock-1" in html
    assert not RoleRoute.objects.exists()


def test_a_role_without_a_way_says_why(admin_client: Client) -> None:
    Provider.objects.create(name="one", base_url="https://one.example.com/v1", model="a")
    Provider.objects.create(name="two", base_url="https://two.example.com/v1", model="b")
    html = page(admin_client, ROUTES)
    assert html.count("</span>no route</span>") == len(ROLES)
    assert "Several providers are configured (one, two)" in html


def test_looking_at_a_role_makes_no_row_and_saving_makes_one_and_is_recorded(admin_client: Client) -> None:
    Provider.objects.create(name="glm", base_url="https://one.example.com/v1", model="a")
    assert "You make one focused change" in page(admin_client, CODER)
    assert not RoleRoute.objects.exists()
    posted(admin_client, CODER, provider="glm", model="glm-5", max_output_tokens="4000", temperature="0.1")
    route = effective().route("coder")
    assert (route.provider, route.model, route.max_output_tokens, route.temperature) == ("glm", "glm-5", 4_000, 0.1)
    entry = payload("route.changed")
    assert (entry["principal"], entry["subject"]) == ("user:admin", "coder")
    assert "provider" in entry["data"]["changed"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"provider": "gone"}, "Select a valid choice"),
        ({"max_output_tokens": "0"}, "from 1 to"),
        ({"temperature": "2.5"}, "from 0.0 to 2.0"),
        ({"provider": "glm", "model": "unlisted"}, "does not list this model"),
        ({"system_prompt": "my key is sk-ant-api03-" + "a1B2" * 24}, "looks like a key"),
    ],
)
def test_a_route_that_can_not_work_is_refused(admin_client: Client, given: dict[str, str], told: str) -> None:
    glm = Provider.objects.create(name="glm", base_url="https://one.example.com/v1")
    ProviderModel.objects.create(provider=glm, name="listed")
    assert told in posted(admin_client, CODER, **given)
    assert effective().route("coder").provider == ""
    assert not RoleRoute.objects.exists() and not Entry.objects.filter(kind__startswith="route.").exists()


def test_a_route_of_the_environment_is_read_only_and_names_its_variable(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEAH_ROLE_CODER_MODEL", "from-variable")
    html = page(admin_client, CODER)
    assert "MEAH_ROLE_CODER_MODEL" in html
    assert "from-variable" in html
    assert 'name="model"' not in html
    assert "MEAH_ROLE_CODER_MODEL" in page(admin_client, ROUTES)


def test_a_route_can_still_be_opened_when_its_provider_has_gone(admin_client: Client) -> None:
    RoleRoute.objects.create(role="coder", provider="gone")
    assert "gone (no longer configured)" in page(admin_client, CODER)
    assert "which is not configured" in page(admin_client, ROUTES)


# -- limits


def test_the_list_of_limits_is_its_one_form(admin_client: Client) -> None:
    response = admin_client.get("/admin/workers/workersettings/")
    assert response.status_code == 302
    assert response.url == LIMITS
    page(admin_client, LIMITS)
    assert not WorkerSettings.objects.exists()


def test_limits_are_saved_recorded_and_in_force(admin_client: Client) -> None:
    posted(admin_client, LIMITS, **(LIMIT_VALUES | {"max_concurrent": "7", "retain_transcripts": "on"}))
    limits = effective().limits
    assert (limits.max_concurrent, limits.retain_transcripts) == (7, True)
    assert payload("limits.changed")["data"]["changed"] == ["max_concurrent", "retain_transcripts"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"max_concurrent": "0"}, "greater than or equal to 1"),
        ({"timeout_ms": "-5"}, "greater than or equal to"),
        ({"max_retries": "11"}, "less than or equal to 10"),
        ({"workspace_root": "../elsewhere"}, "without"),
        ({"terminal_allowlist": '["relative/path"]'}, "no absolute path"),
        ({"terminal_allowlist": "not json"}, "valid JSON"),
        ({"terminal_timeout_ms": "1"}, "greater than or equal to 100"),
    ],
)
def test_a_limit_out_of_its_range_is_refused(admin_client: Client, given: dict[str, str], told: str) -> None:
    assert told in posted(admin_client, LIMITS, **(LIMIT_VALUES | given))
    assert effective().limits.max_concurrent == 4
    assert effective().terminal.allowlist == ()
    assert not WorkerSettings.objects.exists() and not Entry.objects.filter(kind__startswith="limits.").exists()


def test_a_limit_of_the_environment_is_read_only_and_names_its_variable(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEAH_MAX_CONCURRENT", "9")
    monkeypatch.setenv("MEAH_TERMINAL_TIMEOUT_MS", "5000")
    html = page(admin_client, LIMITS)
    assert "MEAH_MAX_CONCURRENT" in html
    assert "MEAH_TERMINAL_TIMEOUT_MS" in html
    assert 'name="max_concurrent"' not in html
    posted(admin_client, LIMITS, **(LIMIT_VALUES | {"max_concurrent": "50"}))
    assert WorkerSettings.objects.get().max_concurrent == 4


def test_limits_are_one_row_that_nobody_adds_or_deletes(admin_client: Client) -> None:
    assert admin_client.get("/admin/workers/workersettings/add/").status_code == 403
    assert admin_client.post("/admin/workers/workersettings/1/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.get("/admin/workers/workersettings/2/change/").status_code == 302


def test_who_may_only_look_can_not_change() -> None:
    client = staff_client("workers.view_workersettings", "workers.view_roleroute")
    assert 'name="_save"' not in page(client, LIMITS)
    assert client.post(LIMITS, LIMIT_VALUES).status_code == 403
    page(client, CODER)
    assert client.post(CODER, {"model": "forged"}).status_code == 403
    assert effective().route("coder").model == ""
