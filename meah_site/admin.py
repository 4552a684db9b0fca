"""The admin site: stock Django admin under our own name."""

from __future__ import annotations

from django.contrib.admin import AdminSite


class MeahAdminSite(AdminSite):
    site_header = "MEAH"
    site_title = "MEAH"
    index_title = "Overview"
