"""Logins, logouts and failed logins, heard from Django's signals and put on the chain."""

from __future__ import annotations

import logging
from typing import Any

from django.contrib.auth import signals
from django.contrib.auth.base_user import AbstractBaseUser
from django.db import Error as DatabaseError
from django.db import transaction
from django.http import HttpRequest

from audit import logins
from audit.services import record, user_principal
from core.errors import MeahError
from core.logs import event

log = logging.getLogger("meah.audit.logins")


def connect() -> None:
    """Start to listen; calling it again changes nothing."""
    signals.user_logged_in.connect(on_login, dispatch_uid="audit.login")
    signals.user_logged_out.connect(on_logout, dispatch_uid="audit.logout")
    signals.user_login_failed.connect(on_failure, dispatch_uid="audit.login_failed")


def on_login(request: HttpRequest, user: AbstractBaseUser, **_signal: Any) -> None:
    """A login that can not be recorded does not happen: its session is emptied, and the error goes on."""
    try:
        _record("user.logged_in", request, user)
        logins.record_due()
    except (MeahError, DatabaseError):
        request.session.flush()
        raise


def on_logout(request: HttpRequest, user: AbstractBaseUser | None, **_signal: Any) -> None:
    """Nobody is kept logged in because the chain can not be written: that is logged instead."""
    if user is None:
        return
    try:
        _record("user.logged_out", request, user)
    except (MeahError, DatabaseError) as error:
        event(log, "audit_logout_not_recorded", level="error", exc_info=error)


def on_failure(request: HttpRequest | None = None, **_signal: Any) -> None:
    """Count it. It had no effect that could be held back, so a failure to do so is logged."""
    try:
        logins.count_failure(_source(request))
    except (MeahError, DatabaseError) as error:
        event(log, "audit_login_failure_not_counted", level="error", exc_info=error)


def _record(kind: str, request: HttpRequest, user: AbstractBaseUser) -> None:
    with transaction.atomic():
        record(kind, principal=user_principal(user), subject=user.get_username(), data={"source": _source(request)})


def _source(request: HttpRequest | None) -> str:
    return logins.source_of(request.META.get("REMOTE_ADDR") if request else None)
