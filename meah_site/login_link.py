"""The one-time login link: how a person gets into a fresh installation, and back into an old one, from its terminal.

A link is a signed user id and a digest of that user's last login and password, good for ten minutes. Both change with
a login, so that using a link kills it, and every other one. Who can run `manage.py` can read the database anyway.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from django.contrib.auth import get_user_model, login
from django.contrib.auth.models import User
from django.core import signing
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from audit.services import record
from core.errors import MeahError

ADMIN: Final = "admin"
MAX_AGE_S: Final = 600
SALT: Final = "meah_site.login_link"
BACKEND: Final = "django.contrib.auth.backends.ModelBackend"
_SIGNER: Final = signing.TimestampSigner(salt=SALT)


def make_link(base_url: str) -> str:
    """A link such as http://127.0.0.1:7817/login/…, good for one login within ten minutes.

    Raises MeahError E_CONFIG when there is nobody whom it could log in.
    """
    user = link_user()
    token = _SIGNER.sign(f"{user.pk}.{_state(user)}")
    return base_url.rstrip("/") + reverse("login-link", args=[token])


def link_user() -> User:
    """Whom a link logs in: `admin`, made on first use; where it is gone or barred, the superuser seen last.

    Raises MeahError E_CONFIG when `admin` is barred and there is no other: a link must not undo that.
    """
    superusers = get_user_model().objects.filter(is_active=True, is_staff=True, is_superuser=True)
    found = superusers.filter(username=ADMIN).first() or superusers.order_by("-last_login", "pk").first()
    if found is not None:
        return found
    if get_user_model().objects.filter(username=ADMIN).exists():
        raise MeahError(
            "E_CONFIG",
            "The user admin is no active superuser any more, and there is no other one to log in.",
            hint="Make one with `manage.py createsuperuser`, then log in with its password.",
        )
    return ensure_admin()


def ensure_admin() -> User:
    """The superuser `admin`, without a usable password until a person sets one."""
    with transaction.atomic():
        user, created = get_user_model().objects.get_or_create(
            username=ADMIN, defaults={"is_staff": True, "is_superuser": True}
        )
        if created:
            user.set_unusable_password()
            user.save(update_fields=["password"])
            record(
                "user.added", principal="system", subject=f"user:{ADMIN}", data={"superuser": True, "by": "first start"}
            )
    return user


def user_of(token: str) -> User | None:
    """Whom this token can still log in; None when it is forged, expired or used."""
    try:
        pk, _, state = _SIGNER.unsign(token, max_age=MAX_AGE_S).partition(".")
    except signing.BadSignature:
        return None
    user = get_user_model().objects.filter(pk=pk, is_active=True, is_staff=True).first()
    return user if user is not None and constant_time_compare(state, _state(user)) else None


def consume(token: str) -> User | None:
    """Use the token up. Of two at once, one gets the user and the other None: the row decides."""
    user = user_of(token)
    if user is None:
        return None
    unchanged = get_user_model().objects.filter(pk=user.pk, password=user.password, last_login=user.last_login)
    now = timezone.now()
    return user if unchanged.update(last_login=now) == 1 else None


def _state(user: User) -> str:
    seen = "" if user.last_login is None else user.last_login.isoformat()
    return salted_hmac(SALT, f"{user.pk}|{user.password}|{seen}", algorithm="sha256").hexdigest()[:32]


@never_cache
@require_http_methods(["GET", "POST"])
def login_link(request: HttpRequest, token: str) -> HttpResponse:
    """GET only shows a button, so that a preview of the link does not use it up; POST logs in."""
    if request.method == "POST":
        with transaction.atomic():
            # A login that can not be recorded leaves the link as it was.
            user = consume(token)
            if user is not None:
                login(request, user, backend=BACKEND)
        if user is not None:
            return redirect("admin:index" if user.has_usable_password() else "admin:set_password")
    elif user := user_of(token):
        return _page(request, {"link_user": user})
    return _page(request, {"link_user": None}, status=HTTPStatus.GONE)


def _page(request: HttpRequest, context: dict[str, object], status: int = HTTPStatus.OK) -> HttpResponse:
    from django.contrib.admin import site

    title = "Log in" if context["link_user"] else "This link does not work any more"
    response = render(
        request, "meah/login_link.html", site.each_context(request) | context | {"title": title}, status=status
    )
    # The address holds the token. Not `no-referrer`: browsers then send `Origin: null`, which the CSRF check refuses.
    response.headers["Referrer-Policy"] = "same-origin"
    return response
