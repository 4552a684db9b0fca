"""The rules that a new installation starts with: MEAH's own tools are allowed, workers that run commands are not."""

from __future__ import annotations

from typing import Any, Final

_EXEC_REASON: Final = "A worker with workspace-exec runs commands on this machine."


def _exec_rule(name: str, tool: str, path: str) -> dict[str, Any]:
    return {
        "name": name,
        "order": 50,
        "server": "meah",
        "tool": tool,
        "conditions": [{"path": path, "op": "eq", "value": "workspace-exec"}],
        "effect": "require_approval",
        "reason": _EXEC_REASON,
        "owner": "shipped with MEAH",
    }


# Columns of approvals.Rule; what is left out has its default.
SHIPPED_RULES: Final[tuple[dict[str, Any], ...]] = (
    _exec_rule("meah-exec-run", "meah_run_agent", "permissionProfile"),
    _exec_rule("meah-exec-delegate", "meah_delegate_task", "permissionProfile"),
    _exec_rule("meah-exec-parallel", "meah_parallel_agents", "workers[*].permissionProfile"),
    {
        "name": "meah-tools",
        "order": 100,
        "server": "meah",
        "tool": "meah_*",
        "effect": "allow",
        "reason": "MEAH's own tools are bounded by its configuration.",
        "owner": "shipped with MEAH",
    },
)


def add_shipped_rules(rule_model: Any) -> None:
    """Add the rules that are not there; an operator's rule of the same name stays as it is."""
    for columns in SHIPPED_RULES:
        rule_model.objects.get_or_create(name=columns["name"], defaults=columns)
