"""The admin app with our own site class as its default. Apart from `apps`, since `runmcp` has no admin."""

from __future__ import annotations

from django.contrib.admin.apps import AdminConfig


class MeahAdminConfig(AdminConfig):
    default_site = "meah_site.admin.MeahAdminSite"
