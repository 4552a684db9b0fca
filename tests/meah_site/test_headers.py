"""What every response says to the browser, and that no page holds a script or a style of its own."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from meah_site.login_link import make_link
from tests.rows import living_console, make_worker
from workers.models import Provider

pytestmark = pytest.mark.django_db

PAGES = [
    "/admin/",
    "/admin/login/",
    "/admin/set-password/",
    "/admin/password_change/",
    "/admin/console/",
    "/admin/workers/",
    "/admin/workers/worker/",
    "/admin/workers/worker/add/",
    "/admin/workers/provider/",
    "/admin/workers/provider/add/?preset=glm",
    "/admin/workers/provider/mock/test/",
    "/admin/workers/roleroute/",
    "/admin/workers/roleroute/coder/change/",
    "/admin/workers/workersettings/1/change/",
    "/admin/approvals/call/",
    "/admin/approvals/process/",
    "/admin/audit/entry/",
    "/admin/auth/user/",
    "/admin/auth/user/add/",
    "/login/x/",
    "/admin/nothing/",
    "/nothing",
]
# Scripts and styles have to be files of ours, and handlers and style attributes have to be none at all.
INLINE = re.compile(
    r"<style|<script(?![^>]*\btype=\"application/json\"|[^>]*\bsrc=\"/static/|[^>]*\bsrc=\"/admin/jsi18n/)|\son[a-z]+\s*=\s*[\"']|\sstyle\s*=\s*[\"']"
    r"|href=[\"']javascript:",
    re.IGNORECASE,
)


@pytest.fixture
def filled() -> None:
    """Something of everything, so that no page is shown in its empty state only."""
    make_worker(state="succeeded", result="x", workspace="w", transcript={"a": 1}, finished_at=timezone.now())
    make_worker(state="running", started_at=timezone.now())
    Provider.objects.create(name="glm", base_url="https://api.example.com/v1", api_key_env="SOME_KEY")


@pytest.mark.parametrize("url", PAGES)
def test_every_page_has_the_strict_headers_and_nothing_inline(admin_client: Client, filled: None, url: str) -> None:
    with living_console():
        response = admin_client.get(url, follow=True)
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "same-origin"
    assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    found = INLINE.search(response.content.decode())
    assert found is None, found


def test_pages_of_a_person_are_kept_in_no_cache(admin_client: Client) -> None:
    for url in ("/admin/", "/admin/workers/worker/", "/admin/nothing/"):
        assert "no-store" in admin_client.get(url).headers["Cache-Control"]


def test_the_detail_of_a_worker_holds_nothing_inline(admin_client: Client) -> None:
    for state in ("queued", "running", "succeeded", "failed"):
        error = {"code": "E_PROVIDER", "message": "m", "hint": "h"} if state == "failed" else None
        worker = make_worker(state=state, error=error, context=[{"name": "n", "content": "c"}], notes=["n"])
        html = admin_client.get(f"/admin/workers/worker/{worker.public_id}/change/").content.decode()
        assert INLINE.search(html) is None


def test_cookies_are_named_and_kept_from_scripts_and_other_sites(client: Client) -> None:
    url = make_link("http://127.0.0.1").removeprefix("http://127.0.0.1")
    client.get(url)
    client.post(url)
    session, csrf = client.cookies["meah_session"], client.cookies["meah_csrf"]
    assert session["httponly"]
    assert (session["samesite"], csrf["samesite"]) == ("Strict", "Strict")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1:7817.evil.example"])
def test_a_foreign_host_name_is_refused(client: Client, host: str) -> None:
    assert client.get("/admin/login/", headers={"host": host}).status_code == 400
