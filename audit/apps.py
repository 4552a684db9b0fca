"""The audit app: one hash chain of everything decided and done."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate


class AuditConfig(AppConfig):
    name = "audit"
    verbose_name = "Audit"

    def ready(self) -> None:
        from audit import checks, triggers

        assert checks
        post_migrate.connect(triggers.restore, sender=self, dispatch_uid="audit.triggers")
        if apps.is_installed("django.contrib.sessions"):
            # Where nobody can log in (`runmcp`), there are no logins to record.
            from audit import signals

            signals.connect()
