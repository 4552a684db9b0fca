"""The chain's two tables. Rows are only ever added, and only by `audit.services`."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models

from audit.chain import GENESIS


class AppendOnlyError(TypeError):
    """Code tried to write the chain in another way than through `audit.services.record`."""


def _refuse(*_args: Any, **_options: Any) -> NoReturn:
    raise AppendOnlyError("The audit chain is append-only, and only audit.services.record adds to it.")


async def _arefuse(*_args: Any, **_options: Any) -> NoReturn:
    _refuse()


class AppendOnlyQuerySet(models.QuerySet[Any, Any]):
    """Reads as usual; every way to write is refused, the asynchronous twins too."""

    create = get_or_create = update_or_create = bulk_create = bulk_update = update = delete = _refuse
    acreate = aget_or_create = aupdate_or_create = abulk_create = abulk_update = aupdate = adelete = _arefuse
    _raw_delete = _refuse


class AppendOnlyModel(models.Model):
    """Neither `save` nor `delete` does anything but refuse."""

    class Meta:
        abstract = True

    save = save_base = delete = _refuse
    asave = adelete = _arefuse


class Entry(AppendOnlyModel):
    """One entry. `payload` is what is hashed, byte for byte; the columns after `hash` are projections of it."""

    seq = models.BigIntegerField(primary_key=True)
    payload = models.BinaryField()
    hash = models.CharField(max_length=64)
    kind = models.CharField(max_length=64)
    principal = models.CharField(max_length=200)
    subject = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField("time")

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        base_manager_name = "objects"
        ordering = ["seq"]
        verbose_name_plural = "entries"
        indexes = [
            models.Index(fields=["kind", "seq"], name="audit_entry_kind"),
            models.Index(fields=["subject", "seq"], name="audit_entry_subject"),
            models.Index(fields=["at"], name="audit_entry_at"),
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.kind} {self.subject}".rstrip()


class Head(AppendOnlyModel):
    """The chain's end: a single row, locked by each append. `log` is this installation's id."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    log = models.CharField(max_length=40)
    size = models.BigIntegerField(default=0)
    last_hash = models.CharField(max_length=64, default=GENESIS)

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        base_manager_name = "objects"
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="audit_head_is_single")]

    def __str__(self) -> str:
        return f"{self.log}: {self.size} entries, {self.last_hash}"


class LoginFailure(models.Model):
    """Failed logins from one address that are not in the chain yet; see `audit.logins`."""

    source = models.CharField(max_length=64, primary_key=True)
    unrecorded = models.PositiveIntegerField(default=0)
    first_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    recorded_in = models.DateTimeField("minute of the last entry", null=True)

    def __str__(self) -> str:
        return f"{self.source}: {self.unrecorded}"
