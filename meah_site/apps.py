from __future__ import annotations

from django.apps import AppConfig


class SiteConfig(AppConfig):
    name = "meah_site"
    verbose_name = "MEAH"
