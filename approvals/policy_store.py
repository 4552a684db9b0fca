"""The policy as it stands in the database now: rows in, a compiled `Policy` out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from django.db import connection

from core.errors import MeahError

from . import models
from .conditions import Condition
from .policy import Defaults, EffectName, Policy, Rule, Verification

# {server: {class: effect}}; nothing, or an empty text, leaves that class to the general default.
ServerDefaults = Mapping[str, Mapping[str, Any]]

RULE_COLUMNS: Final = (
    "name",
    "effect",
    "order",
    "server",
    "tool",
    "except_tools",
    "principal",
    "conditions",
    "reason",
    "owner",
    "ttl_s",
    "approvals",
    "group",
    "verification",
    "enabled",
)
DEFAULT_COLUMNS: Final = ("read_default", "write_default", "destructive_default")

_JSON_COLUMNS: Final = ("except_tools", "conditions", "verification")

_sources: list[Callable[[], ServerDefaults]] = []
# The last policy that was compiled, and the rows that it was made of, as text: in Python 1 equals True.
_compiled: tuple[str, Policy] | None = None


def register_server_defaults(source: Callable[[], ServerDefaults]) -> None:
    """Add a source of what servers override; it is asked for every verdict, so it reads its rows each time."""
    _sources.append(source)


def current() -> Policy:
    """The policy in force: whatever changed a row, and in whichever process, the next call is judged by it.

    Raises MeahError E_CONFIG when a rule that is enabled can not be understood: then nothing can be judged.
    """
    global _compiled
    rules, defaults, overrides = *_rows(), server_defaults()
    key = repr((rules, defaults, overrides))
    compiled = _compiled
    if compiled is None or compiled[0] != key:
        policy = Policy.of(map(_rule_of_row, rules), Defaults(*defaults[0]) if defaults else None, overrides)
        compiled = _compiled = (key, policy)
    return compiled[1]


def _rows() -> list[list[tuple[Any, ...]]]:
    """The rows of the enabled rules and of the defaults as the database gives them, JSON as text."""
    found = []
    with connection.cursor() as cursor:
        for statement, parameters in _statements():
            cursor.execute(statement, parameters)
            found.append(cursor.fetchall())
    return found


@cache
def _statements() -> list[tuple[str, tuple[Any, ...]]]:
    """Built once: every call asks them, and building them takes ten times as long as asking."""
    rules = models.Rule.objects.filter(enabled=True).order_by("order", "name").values_list(*RULE_COLUMNS)
    defaults = models.ApprovalSettings.objects.filter(pk=1).values_list(*DEFAULT_COLUMNS)
    return [queryset.query.sql_with_params() for queryset in (rules, defaults)]


def _rule_of_row(row: tuple[Any, ...]) -> Rule:
    columns = dict(zip(RULE_COLUMNS, row, strict=True))
    for name in _JSON_COLUMNS:
        if isinstance(columns[name], str):
            columns[name] = json.loads(columns[name])
    return rule_of(columns | {"enabled": True})


def stored_rules() -> list[Rule]:
    """All rules, also those that are switched off. Raises MeahError E_CONFIG as `current` does."""
    return [rule_of(row) for row in models.Rule.objects.order_by("order", "name").values(*RULE_COLUMNS)]


def stored_defaults() -> Defaults:
    row = models.ApprovalSettings.objects.filter(pk=1).values_list(*DEFAULT_COLUMNS).first()
    return Defaults(*row) if row else Defaults()


def server_defaults() -> dict[str, dict[str, EffectName]]:
    """What servers say in place of the general defaults, from all sources."""
    merged: dict[str, dict[str, EffectName]] = {}
    for source in _sources:
        for server, effects in source().items():
            merged.setdefault(server, {}).update({name: effect for name, effect in effects.items() if effect})
    return merged


def rule_of(row: Mapping[str, Any]) -> Rule:
    """A row's columns as a rule. Raises MeahError E_CONFIG naming the rule."""
    excepted, conditions, verification = row["except_tools"], row["conditions"], row["verification"]
    try:
        if not isinstance(excepted, list) or not isinstance(conditions, list):
            raise MeahError("E_CONFIG", "Its exceptions and its conditions must be lists.", reason="bad_rule")
        parsed = {
            "except_tools": tuple(excepted),
            "conditions": tuple(map(Condition.from_dict, conditions)),
            "verification": None if verification is None else Verification.from_dict(verification),
        }
        return Rule(**{**row, **parsed})
    except MeahError as error:
        raise MeahError(
            "E_CONFIG",
            f"The policy can not be used. Rule {row['name']!r}: {error.message}",
            hint="Correct that rule in the admin, or switch it off there.",
            reason="bad_rule",
            details={"rule": row["name"]},
        ) from error


def columns_of(rule: Rule) -> dict[str, Any]:
    """The inverse of `rule_of`."""
    columns: dict[str, Any] = {name: getattr(rule, name) for name in RULE_COLUMNS}
    return columns | {
        "except_tools": list(rule.except_tools),
        "conditions": [condition.as_dict() for condition in rule.conditions],
        "verification": rule.verification.as_dict() if rule.verification else None,
    }
