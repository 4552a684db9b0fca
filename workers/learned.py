"""What was learned about a model, to be forgotten on a person's order."""

from __future__ import annotations

from django.db import transaction

from audit.services import record
from workers.models import ProviderModel


def forget(model: ProviderModel, *, principal: str) -> bool:
    """Send this model everything as usual again. False when nothing was learned about it."""
    with transaction.atomic():
        row = ProviderModel.objects.select_for_update().filter(pk=model.pk).first()
        if row is None or not row.adaptations:
            return False
        ProviderModel.objects.filter(pk=row.pk).update(adaptations=[], learned_at=None)
        data = {"model": row.name, "fields": sorted(str(item["field"]) for item in row.adaptations)}
        record("provider.adaptations_reset", principal=principal, subject=model.provider.name, data=data)
    return True
