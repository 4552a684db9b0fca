"""The overview, and the frame around everything in the admin."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest
from django.conf import settings
from django.db import transaction
from django.test import Client
from django.utils import timezone

from audit.services import verify_and_record
from core.errors import MeahError
from tests.rows import SHOWN_SPOOF, SPOOF, living_console, make_worker, page, staff_client
from workers.models import Provider

pytestmark = pytest.mark.django_db

INDEX = "/admin/"


def tiles(html: str) -> dict[str, str]:
    """The figures by their labels, each with its note where it has one."""
    found = re.findall(
        r"<li><a href=\"([^\"]*)\"[^>]*><strong>([^<]*)</strong> <span>([^<]*)</span>(?: <small>([^<]*))?", html
    )
    return {label: f"{value} {note}".strip() for _, value, label, note in found}


def links(html: str) -> dict[str, str]:
    found = re.findall(r"<li><a href=\"([^\"]*)\"[^>]*><strong>[^<]*</strong> <span>([^<]*)</span>", html)
    return {label: url.replace("&amp;", "&") for url, label in found}


def test_an_empty_overview_says_what_to_do_first(admin_client: Client) -> None:
    html = page(admin_client, INDEX)
    manage = Path(settings.BASE_DIR) / "manage.py"
    assert "First steps" in html
    assert f"{manage} runmcp" in html
    assert "claude mcp add meah -- /" in html
    assert "/admin/workers/worker/add/" in html
    assert "/admin/workers/provider/add/?preset=glm" in html
    assert tiles(html)["running"] == "0"


def test_figures_of_today_leave_unknown_unknown(admin_client: Client) -> None:
    now, long_ago = timezone.now(), timezone.now() - timezone.timedelta(days=3)
    done = {"state": "succeeded", "finished_at": now, "input_tokens": 1_000, "output_tokens": 500}
    make_worker(state="running", started_at=now)
    make_worker()
    make_worker()
    make_worker(state="failed", finished_at=now)
    make_worker(state="timed_out", finished_at=now)
    make_worker(state="failed", finished_at=long_ago)
    make_worker(**done, cost=Decimal("0.25"), currency="USD")
    make_worker(**done, cost=Decimal("0.5"), currency="USD")
    make_worker(**done)
    make_worker(state="succeeded", finished_at=now)
    make_worker(**(done | {"finished_at": long_ago}), cost=Decimal("100"), currency="USD")
    found = tiles(page(admin_client, INDEX))
    assert found["running"] == "1"
    assert found["queued"] == "2"
    assert found["failed today"] == "2"
    assert found["tokens today"] == "4,500 and 1 unknown"
    assert found["cost today"] == "0.75 USD and 2 unknown"


def test_every_figure_leads_to_the_list_it_counts(admin_client: Client) -> None:
    now = timezone.now()
    make_worker(label="in motion", state="running", started_at=now)
    make_worker(label="went wrong", state="failed", finished_at=now)
    urls = links(page(admin_client, INDEX))
    running, failed = page(admin_client, urls["running"]), page(admin_client, urls["failed today"])
    assert "in motion" in running
    assert "went wrong" not in running
    assert "went wrong" in failed
    assert "in motion" not in failed
    for url in urls.values():
        page(admin_client, url)


def test_the_state_of_the_chain_and_its_last_verification_are_shown(admin_client: Client) -> None:
    assert "never verified" in page(admin_client, INDEX)
    verify_and_record(principal="user:admin")
    found = tiles(page(admin_client, INDEX))
    assert found["audit chain"].startswith("whole verified")


def test_providers_and_living_processes_are_shown_with_their_keys(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", "value-of-some-key-1234")
    Provider.objects.create(name="glm", base_url="https://api.example.com/v1", api_key_env="SOME_KEY")
    page(admin_client, INDEX)
    with living_console():
        html = page(admin_client, INDEX)
    assert "SOME_KEY" in html
    assert "serves this page" in html
    assert "value-of-some-key-1234" not in html


def test_foreign_text_on_the_overview_is_harmless(admin_client: Client) -> None:
    make_worker(label=SPOOF)
    html = page(admin_client, INDEX)
    assert SHOWN_SPOOF in html
    assert "<script>alert" not in html


def test_the_overview_shows_only_what_one_may_see() -> None:
    make_worker(label="secret work")
    html = page(staff_client("workers.view_provider"), INDEX)
    assert "secret work" not in html
    assert "Audit chain" not in html
    assert "Processes alive" not in html
    assert "Providers" in html


def test_the_overview_asks_few_questions_however_much_has_run(
    admin_client: Client, django_assert_max_num_queries: object
) -> None:
    call = make_worker().call
    for number in range(40):
        make_worker(call=call, label=str(number), state="succeeded", finished_at=timezone.now())
    with django_assert_max_num_queries(26):  # type: ignore[operator]
        page(admin_client, INDEX)


def test_what_is_looked_at_most_comes_first(admin_client: Client) -> None:
    html = page(admin_client, INDEX)
    sidebar = html[html.index('id="content-related"') :]
    places = [
        sidebar.index(f">{name}</a>") for name in ("Workers", "Providers", "Role routes", "Limits", "Calls", "Users")
    ]
    assert places == sorted(places)


def test_what_a_service_refuses_is_a_page_with_the_way_out(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MeahError("E_AUDIT", "The chain is <full>.", hint="Make room.")

    monkeypatch.setattr("meah_site.overview.overview", refuse)
    with transaction.atomic():
        response = admin_client.get(INDEX)
    html = response.content.decode()
    assert response.status_code == 503
    assert "The chain is &lt;full&gt;." in html
    assert "Make room." in html


def test_a_stranger_is_sent_to_the_login_with_a_word_about_the_link(client: Client) -> None:
    html = client.get(INDEX, follow=True).content.decode()
    assert "manage.py login_link" in html


def test_the_root_leads_to_the_admin_and_health_needs_nobody(client: Client) -> None:
    assert client.get("/").url == INDEX
    assert client.get("/healthz").json()["status"] == "ok"


def test_pages_of_errors_say_what_happened_and_lead_back(admin_client: Client) -> None:
    for url, status, told in (("/nothing", 404, "There is nothing here"), ("/admin/auth/user/", 403, "not permitted")):
        client = admin_client if status == 404 else staff_client()
        response = client.get(url)
        assert response.status_code == status
        assert told in response.content.decode()
        assert 'href="/admin/"' in response.content.decode()


def test_a_forged_form_is_refused_with_a_word_about_it() -> None:
    response = Client(enforce_csrf_checks=True).post("/admin/login/", {"username": "admin"})
    assert response.status_code == 403
    assert "load the page again" in response.content.decode()


def test_a_failure_inside_shows_no_traceback(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr("meah_site.overview.overview", fail)
    admin_client.raise_request_exception = False
    response = admin_client.get(INDEX)
    assert response.status_code == 500
    assert "MEAH itself failed here" in response.content.decode()
    assert "secret detail" not in response.content.decode()
