"""A policy file meets the database: previewed, then written whole with its entry in the chain, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.db import transaction

from audit.services import SETTINGS_CHARACTERS, record
from core.errors import JsonObject
from core.redaction import redact

from . import models
from .conditions import equal
from .policy import Defaults, Policy, Rule
from .policy_file import PolicyFile, loads, to_yaml
from .policy_store import DEFAULT_COLUMNS, columns_of, server_defaults, stored_defaults, stored_rules
from .processes import ring_after_commit

ADDED: Final = "added"
CHANGED: Final = "changed"
REMOVED: Final = "removed"


@dataclass(frozen=True)
class Change:
    """What becomes of one rule, or of the defaults: each field with its value before and after."""

    kind: str
    subject: str
    fields: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Plan:
    """What an import changes, the stored rules that it leaves alone, and both states."""

    changes: tuple[Change, ...]
    untouched: tuple[str, ...]
    before: PolicyFile
    after: PolicyFile

    def policy(self) -> Policy:
        """The policy as it will be."""
        enabled = [rule for rule in self.after.rules.values() if rule.enabled]
        return Policy.of(enabled, Defaults(**self.after.defaults), server_defaults())


def preview(data: bytes, *, replace: bool = False) -> Plan:
    """What importing the file's bytes would change. Raises MeahError E_CONFIG for whatever is wrong with it."""
    return _plan(loads(data), replace=replace)


def import_policy(data: bytes, *, principal: str, replace: bool = False) -> Plan:
    """Write the file's rules and defaults over the stored ones and record it, in one transaction.

    Stored rules that it does not name stay, or with `replace` go. Raises MeahError: E_CONFIG for whatever is wrong
    with the file, E_AUDIT when the chain can not be written. In both cases nothing has changed.
    """
    given = loads(data)
    with transaction.atomic():
        # On PostgreSQL this keeps others from changing what was compared.
        list(models.Rule.objects.select_for_update().values_list("pk"))
        plan = _plan(given, replace=replace)
        if plan.changes:
            _write(plan)
            ring_after_commit()
            record("policy.imported", principal=principal, subject="policy", data=_recorded(plan))
    return plan


def export_policy() -> str:
    """The stored policy as a file's text. Raises MeahError E_CONFIG when a rule can not be understood."""
    return to_yaml(stored_rules(), stored_defaults())


def _plan(given: PolicyFile, *, replace: bool) -> Plan:
    stored = {rule.name: rule for rule in stored_rules()}
    before = PolicyFile(stored, stored_defaults().as_dict())
    untouched = tuple(name for name in stored if name not in given.rules)
    kept = {} if replace else {name: stored[name] for name in untouched}
    after = PolicyFile({**kept, **given.rules}, {**before.defaults, **given.defaults})
    return Plan(tuple(_changes(before, after)), () if replace else untouched, before, after)


def _changes(before: PolicyFile, after: PolicyFile) -> Iterable[Change]:
    if fields := _differing(before.defaults, after.defaults):
        yield Change(CHANGED, "defaults", fields)
    for name in sorted(before.rules.keys() | after.rules.keys()):
        old, new = before.rules.get(name), after.rules.get(name)
        plain = Rule("x", "allow").as_dict() | {"effect": None}
        fields = _differing(old.as_dict() if old else plain, new.as_dict() if new else plain)
        if fields:
            kind = ADDED if old is None else REMOVED if new is None else CHANGED
            yield Change(kind, f"rule {name}", {key: value for key, value in fields.items() if key != "name"})


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {key: (before[key], after[key]) for key in before if not equal(before[key], after[key])}


def _write(plan: Plan) -> None:
    models.Rule.objects.exclude(name__in=list(plan.after.rules)).delete()
    for name, rule in plan.after.rules.items():
        if plan.before.rules.get(name) is not rule:
            models.Rule.objects.update_or_create(name=name, defaults=columns_of(rule))
    if plan.after.defaults != plan.before.defaults:
        columns = {column: plan.after.defaults[column.removesuffix("_default")] for column in DEFAULT_COLUMNS}
        models.ApprovalSettings.objects.update_or_create(pk=1, defaults=columns)


def _recorded(plan: Plan) -> JsonObject:
    return {
        "before": _text(plan.before),
        "after": _text(plan.after),
        "changed": [f"{change.kind} {change.subject}" for change in plan.changes],
        "policy": plan.policy().digest,
    }


def _text(state: PolicyFile) -> str:
    rules = sorted(state.rules.values(), key=lambda rule: (rule.order, rule.name))
    text = redact(to_yaml(rules, Defaults(**state.defaults), header=""))
    return text if len(text) <= SETTINGS_CHARACTERS else f"{text[:SETTINGS_CHARACTERS]}… ({len(text)} characters)"
