from __future__ import annotations

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    name = "gateway"
    verbose_name = "Gateway"

    def ready(self) -> None:
        from approvals.targets import register_resolver
        from gateway.target import resolve

        register_resolver(resolve)
