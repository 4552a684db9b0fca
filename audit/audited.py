"""Admin classes whose changes go into the chain, in the transaction of the change."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Permission
from django.db import models, transaction
from django.forms import ModelForm
from django.forms.models import _get_foreign_key
from django.http import HttpRequest, HttpResponse

from audit.services import NewEntry, change, record_many, user_principal
from core.canonical import MAX_INTEGER, utc_text

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
    DjangoUserAdmin = UserAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin
    DjangoUserAdmin = UserAdmin

State = dict[str, Any]

_BEFORE = "_audit_before"


class AuditedModelAdmin(ModelAdmin):
    """Records what is added, changed and deleted, with the state before and after, inlines and relations included.

    The kinds are `<noun>.added`, `.changed`, `.deleted`; `audit_noun` is the model's name unless set. What fields
    in `audit_hidden` hold is never recorded, only that it changed.
    """

    audit_noun: ClassVar[str] = ""
    audit_hidden: ClassVar[tuple[str, ...]] = ("password",)

    def audit_subject(self, obj: Any) -> str:
        """How entries name the object."""
        return str(obj)

    def audit_state(self, obj: Any) -> State:
        """What is recorded of an object: its fields, its many-to-many relations, its inlines' rows."""
        state = row_state(obj)
        for field in obj._meta.many_to_many:
            related = getattr(obj, field.name).all()
            if field.related_model is Permission:
                related = related.select_related("content_type")
            state[field.name] = sorted(map(_name, related))
        for inline in self.inlines:
            key = _get_foreign_key(self.model, inline.model, fk_name=inline.fk_name)
            rows = inline.model._base_manager.filter(**{key.name: obj}).order_by("pk")
            state[str(inline.model._meta.verbose_name_plural)] = [row_state(row) for row in rows]
        return state

    def save_form(self, request: HttpRequest, form: ModelForm[Any], change: bool) -> Any:
        # Validation has already put the new values on the instance; the old ones are in the database alone.
        before = self._state_before(form.instance) if change else None
        obj = super().save_form(request, form, change)
        setattr(obj, _BEFORE, before)
        return obj

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        entry = super().log_addition(request, obj, message)
        self._record(request, "added", obj, before=None)
        return entry

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        entry = super().log_change(request, obj, message)
        self._record(request, "changed", obj, before=obj.__dict__.pop(_BEFORE, None))
        return entry

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        news = [self._deletion(request, obj)]
        super().delete_model(request, obj)
        record_many(news)

    def delete_queryset(self, request: HttpRequest, queryset: models.QuerySet[Any]) -> None:
        with transaction.atomic():
            news = [self._deletion(request, obj) for obj in queryset]
            super().delete_queryset(request, queryset)
            record_many(news)

    def _state_before(self, obj: Any) -> State:
        """As stored; of a page whose row only saving makes, the defaults that were in force until then."""
        stored = self.model._base_manager.filter(pk=obj.pk).first()
        return row_state(self.model(pk=obj.pk)) if stored is None else self.audit_state(stored)

    def _stored_state(self, pk: Any) -> State:
        return self.audit_state(self.model._base_manager.get(pk=pk))

    def _record(self, request: HttpRequest, verb: str, obj: Any, *, before: State | None) -> None:
        new = self._change(request, verb, obj, before=before, after=self._stored_state(obj.pk))
        record_many([new] if new else [])

    def _deletion(self, request: HttpRequest, obj: Any) -> NewEntry:
        new = self._change(request, "deleted", obj, before=self._stored_state(obj.pk), after=None)
        assert new is not None
        return new

    def _change(
        self, request: HttpRequest, verb: str, obj: Any, *, before: State | None, after: State | None
    ) -> NewEntry | None:
        return change(
            f"{self.audit_noun or self.opts.model_name}.{verb}",
            principal=user_principal(request.user),
            subject=self.audit_subject(obj),
            before=before,
            after=after,
            hidden=self.audit_hidden,
        )


class AuditedUserAdmin(AuditedModelAdmin, DjangoUserAdmin):
    """Users: also their groups and permissions, and that a password changed."""

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002
        with transaction.atomic():
            return super().user_change_password(request, id, form_url)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        obj = super().get_object(request, object_id, from_field)
        if obj is not None and request.method == "POST":
            # The page that sets a password saves without `save_form`.
            setattr(obj, _BEFORE, self.audit_state(obj))
        return obj


class AuditedGroupAdmin(AuditedModelAdmin, GroupAdmin):
    """Groups and their permissions."""


def row_state(obj: models.Model) -> State:
    """The values of one row, by field, as JSON can hold them."""
    return {field.name: _plain(field, obj) for field in obj._meta.concrete_fields}


def _plain(field: models.Field[Any, Any], obj: models.Model) -> Any:
    value = getattr(obj, field.name) if field.is_relation else field.value_from_object(obj)
    if isinstance(value, models.Model):
        return _name(value)
    if isinstance(value, datetime):
        return utc_text(value)
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return str(value)
    return value if value is None or isinstance(value, str | int | float | list | dict) else str(value)


def _name(obj: Any) -> str:
    """The object as people know it: `app.codename` for a permission, its text otherwise."""
    if isinstance(obj, Permission):
        return f"{obj.content_type.app_label}.{obj.codename}"
    return str(obj)
