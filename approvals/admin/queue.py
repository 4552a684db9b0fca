"""The queue: requests that wait for a person, one page for each, and deciding them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals import endings, services
from approvals.admin.request_page import call_context, request_context
from approvals.display import ago, badge, until
from approvals.models import Approval, ApprovalState, CallState
from approvals.outcomes import status_of
from approvals.queue import MAX_WAITING, asker_of
from approvals.readonly import ReadOnlyAdmin
from core.errors import MeahError
from core.text import visible

DOOR = "admin"
EVERY = "all"
MAX_SELECTED = 200
NOTE_CHARS = endings.MAX_NOTE_CHARS
# Posted where the page's digest is missing: it equals no digest, so nothing can be decided unseen.
NO_DIGEST = "none"

_BY_STATUS: dict[str, dict[str, Any]] = {
    "executing": {"state": ApprovalState.APPROVED, "call__state__in": [CallState.HELD, CallState.SENDING]},
    "done": {"state": ApprovalState.APPROVED, "call__state": CallState.DONE},
    "failed": {"state": ApprovalState.APPROVED, "call__state": CallState.FAILED},
    "unknown": {"state": ApprovalState.APPROVED, "call__state": CallState.UNKNOWN},
    "rejected": {"state": ApprovalState.REJECTED},
    "expired": {"state": ApprovalState.EXPIRED},
    "void": {"state": ApprovalState.VOID},
}


class StatusFilter(admin.SimpleListFilter):
    """What waits is what is looked at, unless somebody asks for the rest or searches."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(status, status) for status in _BY_STATUS]

    def choices(self, changelist: Any) -> Iterator[Any]:
        for value, label in [(None, "pending"), *self.lookup_choices, (EVERY, "all")]:
            query = {self.parameter_name: value} if value else {}
            yield {
                "selected": self.value() == value,
                "query_string": changelist.get_query_string(query, [] if value else [self.parameter_name]),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        wanted = self.value()
        if wanted in _BY_STATUS:
            return queryset.filter(**_BY_STATUS[wanted])
        return queryset.filter(state=ApprovalState.PENDING) if is_pending_only(request) else queryset


def is_pending_only(request: HttpRequest) -> bool:
    return not request.GET.get("status") and not request.GET.get("q")


class QueueColumns:
    """The column of one view of the list that depends on who looks: asked for once, for all rows."""

    def __init__(self, user: Any) -> None:
        self.user = user

    @cached_property
    def reasons(self) -> dict[int, str]:
        pending = Approval.objects.filter(state=ApprovalState.PENDING).order_by("pk")
        return services.may_decide_each(pending[:MAX_WAITING], self.user)

    @admin.display(description="decision")
    def decision(self, approval: Approval) -> SafeString | str:
        if approval.state != ApprovalState.PENDING:
            return ", ".join(f"{vote.vote} by {vote.user.get_username()}" for vote in approval.decisions.all()) or "–"
        why = self.reasons.get(approval.pk, "")
        return format_html('<span class="quiet">{}</span>', why) if why else badge("pending", "yours to decide")


@admin.register(Approval)
class ApprovalAdmin(ReadOnlyAdmin):
    list_display_links = None
    list_filter = (StatusFilter, ("requested_at", admin.DateFieldListFilter))
    search_fields = ("public_id", "call__public_id", "call__server", "call__tool", "principal", "rule")
    search_help_text = "Id, server, tool, rule or who asked"
    change_list_template = "admin/approvals/approval/change_list.html"
    change_form_template = "admin/approvals/approval/change_form.html"
    fields = ("public_id",)
    readonly_fields = fields
    actions = ("reject_selected",)

    # -- the list

    def get_queryset(self, request: HttpRequest) -> QuerySet[Approval]:
        rows: QuerySet[Approval] = super().get_queryset(request)
        return rows.select_related("call", "requested_by").prefetch_related("decisions__user")

    def get_list_display(self, request: HttpRequest) -> Any:
        shown = QueueColumns(request.user)
        return ("shown_status", "what", "asked_by", "shown_rule", "age", "deadline", shown.decision)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("id",) if is_pending_only(request) else ("-id",)

    @admin.display(description="status", ordering="state")
    def shown_status(self, approval: Approval) -> SafeString:
        return badge(status_of(approval))

    @admin.display(description="call", ordering="call__tool")
    def what(self, approval: Approval) -> SafeString:
        url = reverse("admin:approvals_approval_change", args=[approval.public_id])
        call = approval.call
        return format_html(
            '<a href="{}">{}/{}</a> {}<div class="meah-id">{}</div>',
            url,
            visible(call.server),
            visible(call.tool),
            badge(call.effect_class) if call.effect_class == "destructive" else "",
            approval.public_id,
        )

    @admin.display(description="asked by", ordering="principal")
    def asked_by(self, approval: Approval) -> SafeString:
        asker = asker_of(approval.principal, approval.requested_by)
        about = "claimed" if asker.is_claim else asker.person
        return format_html('{}<div class="meah-id">{}</div>', visible(asker.principal), visible(about))

    @admin.display(description="rule", ordering="rule")
    def shown_rule(self, approval: Approval) -> str:
        return visible(approval.rule)

    @admin.display(description="age", ordering="id")
    def age(self, approval: Approval) -> str:
        return ago(approval.requested_at)

    @admin.display(description="deadline", ordering="expires_at")
    def deadline(self, approval: Approval) -> SafeString | str:
        if approval.state == ApprovalState.PENDING:
            return format_html("decide {}", until(approval.expires_at))
        if status_of(approval) == "approved":
            return format_html("start {}", until(approval.execute_by))
        return "–"

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {
            "title": "Requests",
            "is_empty": not Approval.objects.exists(),
            "is_pending_only": is_pending_only(request),
            "nothing_waits": not Approval.objects.filter(state=ApprovalState.PENDING).exists(),
        }
        return super().changelist_view(request, context | (extra_context or {}))

    # -- rights

    def has_decide_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(services.DECIDE)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_decide_permission(request) or super().has_view_permission(request, obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_decide_permission(request) or super().has_module_permission(request)

    # -- one request

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<str:public_id>/approve/", view(self.approve), name="approvals_approval_approve"),
            path("<str:public_id>/reject/", view(self.reject), name="approvals_approval_reject"),
            *super().get_urls(),
        ]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Approval | None:
        """By public id, which is what people and entries have; or by key."""
        field = "pk" if object_id.isdigit() else "public_id"
        return Approval.objects.filter(**{field: object_id}).select_related("call", "requested_by").first()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        approval = self.get_object(request, object_id)
        if approval is None or not self.has_view_permission(request, approval):
            return super().change_view(request, object_id, form_url, extra_context)
        context = request_context(approval, request.user) | {"live": "live" in request.GET}
        # By key: the admin takes `_23` in an id for an escape of its own.
        return super().change_view(request, str(approval.pk), form_url, context | (extra_context or {}))

    def approve(self, request: HttpRequest, public_id: str) -> HttpResponse:
        return self._decide(request, public_id, "approve")

    def reject(self, request: HttpRequest, public_id: str) -> HttpResponse:
        return self._decide(request, public_id, "reject")

    def _decide(self, request: HttpRequest, public_id: str, verb: str) -> HttpResponse:
        """A page that shows exactly what it is about; its button decides."""
        if not self.has_decide_permission(request):
            raise PermissionDenied
        approval = self.get_object(request, public_id)
        if approval is None:
            raise Http404(f"There is no request {public_id}.")
        if request.method == "POST" and self._decided(request, approval, verb):
            return redirect("admin:approvals_approval_change", public_id)
        approval = services.get(public_id)
        if why := services.may_decide(approval, request.user):
            messages.warning(request, visible(why))
            return redirect("admin:approvals_approval_change", public_id)
        context = self.admin_site.each_context(request) | call_context(approval.call)
        context |= {
            "title": f"{verb.capitalize()} {visible(approval.call.server)}/{visible(approval.call.tool)}?",
            "opts": self.opts,
            "approval": approval,
            "verb": verb,
            "asker": asker_of(approval.principal, approval.requested_by),
            "note": request.POST.get("note", ""),
            "note_required": verb == "reject" or approval.note_required,
            "note_chars": NOTE_CHARS,
        }
        return render(request, "admin/approvals/approval/decide.html", context)

    def _decided(self, request: HttpRequest, approval: Approval, verb: str) -> bool:
        decide = services.approve if verb == "approve" else services.reject
        note, digest = request.POST.get("note", ""), request.POST.get("digest") or NO_DIGEST
        try:
            decided = decide(approval, user=request.user, note=note, door=DOOR, digest=digest)
        except MeahError as error:
            messages.error(request, visible(f"{error.message} {error.hint}"))
            return False
        messages.success(request, _outcome(decided))
        if decided.state == ApprovalState.APPROVED and (missing := services.missing_to_run(decided.call)):
            messages.warning(
                request, visible(f"Nothing that runs now can execute it: {', '.join(missing)} is missing.")
            )
        return True

    # -- several at once: rejecting only

    @admin.action(description="Reject the selected requests", permissions=["decide"])
    def reject_selected(self, request: HttpRequest, queryset: QuerySet[Approval]) -> HttpResponse | None:
        """The shape of Django's own delete_selected: a page with one note for all, until it comes back with `post`."""
        pending = list(queryset.filter(state=ApprovalState.PENDING)[:MAX_SELECTED])
        note = request.POST.get("note", "")
        if request.POST.get("post") and note.strip():
            for approval in pending:
                self._reject_one(request, approval, note)
            return None
        if request.POST.get("post"):
            messages.error(request, "A rejection needs a note: the agent reads it.")
        context = self.admin_site.each_context(request) | {
            "title": "Reject several requests",
            "opts": self.opts,
            "approvals": pending,
            "note_chars": NOTE_CHARS,
        }
        return TemplateResponse(request, "admin/approvals/approval/reject_selected.html", context)

    def _reject_one(self, request: HttpRequest, approval: Approval, note: str) -> None:
        try:
            services.reject(approval, user=request.user, note=note, door=DOOR)
        except MeahError as error:
            messages.error(request, visible(f"Request {approval.public_id}: {error.message}"))
        else:
            messages.success(request, f"Request {approval.public_id} is rejected.")


def _outcome(approval: Approval) -> str:
    if approval.state == ApprovalState.PENDING:
        return f"Your approval of {approval.public_id} is recorded; more are needed."
    if approval.state == ApprovalState.APPROVED:
        return f"Request {approval.public_id} is approved: it runs within moments."
    return f"Request {approval.public_id} is rejected; the agent gets your note."
