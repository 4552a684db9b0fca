from __future__ import annotations

from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "workers"
    verbose_name = "Workers"

    def ready(self) -> None:
        from approvals.targets import register
        from workers.target import WorkersTarget

        register(WorkersTarget())
