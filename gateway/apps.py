from __future__ import annotations

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    name = "gateway"
    verbose_name = "Gateway"

    def ready(self) -> None:
        from approvals.policy_store import register_server_defaults
        from approvals.targets import register_resolver
        from gateway.services import server_defaults
        from gateway.target import resolve, server_names

        register_resolver(resolve, server_names)
        register_server_defaults(server_defaults)
