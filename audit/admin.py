"""The chain in the admin: to be read and verified, never changed. And the audited admins of users and groups."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.functional import cached_property
from django.utils.html import format_html

from audit.audited import AuditedGroupAdmin, AuditedUserAdmin
from audit.audited import AuditedModelAdmin as AuditedModelAdmin
from audit.models import Entry, Head
from audit.services import user_principal, verify_and_record
from audit.store import as_bytes
from core.errors import MeahError
from core.text import visible

if TYPE_CHECKING:
    EntryModelAdmin = admin.ModelAdmin[Entry]
    EntryPaginator = Paginator[Entry]
else:
    EntryModelAdmin = admin.ModelAdmin
    EntryPaginator = Paginator


class ChainPaginator(EntryPaginator):
    """Counts the unfiltered chain by its head: a count of all rows would read them all."""

    @cached_property
    def count(self) -> int:
        queryset = self.object_list
        filtered = not isinstance(queryset, QuerySet) or queryset.query.where
        size = None if filtered else Head.objects.values_list("size", flat=True).first()
        return super().count if size is None else size


class KindFilter(admin.SimpleListFilter):
    """The kinds that occur, found by hopping over the index instead of reading all entries."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        kinds: list[str] = []
        by_kind = Entry.objects.order_by("kind").values_list("kind", flat=True)
        while kind := by_kind.filter(kind__gt=kinds[-1] if kinds else "").first():
            kinds.append(kind)
        return [(kind, kind) for kind in kinds]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Entry]) -> QuerySet[Entry]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


@admin.register(Entry)
class EntryAdmin(EntryModelAdmin):
    list_display = ("seq", "at", "kind", "shown_principal", "shown_subject")
    list_filter = (KindFilter, ("at", admin.DateFieldListFilter))
    search_fields = ("principal", "subject")
    search_help_text = "Principal or subject, or the number of an entry"
    ordering = ("-seq",)
    list_per_page = 50
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = ChainPaginator
    change_list_template = "admin/audit/entry/change_list.html"
    fields = ("seq", "at", "kind", "shown_principal", "shown_subject", "shown_payload", "hash", "previous")
    readonly_fields = fields

    @admin.display(description="principal", ordering="principal")
    def shown_principal(self, entry: Entry) -> str:
        return visible(entry.principal)

    @admin.display(description="subject")
    def shown_subject(self, entry: Entry) -> str:
        return visible(entry.subject)

    @admin.display(description="payload")
    def shown_payload(self, entry: Entry) -> str:
        return format_html('<pre class="audit-payload">{}</pre>', visible(_pretty(as_bytes(entry.payload))))

    @admin.display(description="hash of the entry before")
    def previous(self, entry: Entry) -> str:
        try:
            return str(json.loads(as_bytes(entry.payload))["prev"])
        except (ValueError, LookupError, TypeError):
            return "unreadable"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Entry], search_term: str
    ) -> tuple[QuerySet[Entry], bool]:
        if search_term.isascii() and search_term.isdigit():
            return queryset.filter(seq=min(int(search_term[:19]), 2**63 - 1)), False
        return super().get_search_results(request, queryset, search_term)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Entry | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Entry | None = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.verify)
        return [path("verify/", view, name="audit_entry_verify"), *super().get_urls()]

    def verify(self, request: HttpRequest) -> HttpResponse:
        """Verify the whole chain now, record that, and say what was found."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        try:
            verdict = verify_and_record(principal=user_principal(request.user))
        except MeahError as error:
            self.message_user(request, f"The chain could not be verified: {error.message}", messages.ERROR)
        else:
            finding, *meaning = (visible(line) for line in verdict.lines())
            self.message_user(request, finding, messages.SUCCESS if verdict.whole else messages.ERROR)
            self.message_user(request, " ".join(meaning), messages.INFO)
        return HttpResponseRedirect(reverse("admin:audit_entry_changelist"))


def _pretty(payload: bytes) -> str:
    try:
        return json.dumps(json.loads(payload), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return payload.decode(errors="backslashreplace")


admin.site.unregister([User, Group])
admin.site.register(User, AuditedUserAdmin)
admin.site.register(Group, AuditedGroupAdmin)
