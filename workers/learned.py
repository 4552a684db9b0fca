"""What was learned about a model, to be forgotten on a person's order."""

from __future__ import annotations

from django.db import transaction

from audit.services import record
from workers.models import ProviderModel


def forget(model: ProviderModel, *, principal: str) -> bool:
    """Send this model everything as usual again. False when nothing was learned about it."""
    fields = sorted(str(item["field"]) for item in model.adaptations)
    with transaction.atomic():
        learned = ProviderModel.objects.filter(pk=model.pk).exclude(adaptations=[])
        if not learned.update(adaptations=[], learned_at=None):
            return False
        data = {"model": model.name, "fields": fields}
        record("provider.adaptations_reset", principal=principal, subject=model.provider.name, data=data)
    return True
