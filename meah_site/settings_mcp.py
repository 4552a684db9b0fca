"""Settings of `runmcp`: no admin, no web server, no REST, so that it starts in a fraction of a second."""

from __future__ import annotations

from meah_site.settings import *  # noqa: F403
from meah_site.settings import DATABASES as _DATABASES

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "audit",
    "approvals",
    "gateway",
    "workers",
    "meah_site",
]
MIDDLEWARE = []
DATABASES = {"default": _DATABASES["default"] | {"CONN_MAX_AGE": None}}
