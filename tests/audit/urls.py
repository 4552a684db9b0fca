"""A site with an audited admin that has inlines and editable lists, for tests."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.urls import path

from audit.audited import AuditedModelAdmin, AuditedUserAdmin


class PermissionInline(admin.TabularInline):
    model = Permission
    extra = 0


class ContentTypeAdmin(AuditedModelAdmin):
    audit_noun = "shelf"
    inlines = [PermissionInline]
    list_display = ["app_label", "model"]
    list_editable = ["model"]

    def audit_subject(self, obj: ContentType) -> str:
        return f"shelf {obj.model}"


site = admin.AdminSite(name="admin")
site.register(ContentType, ContentTypeAdmin)
site.register(User, AuditedUserAdmin)

urlpatterns = [path("admin/", site.urls)]
