"""The rules of the policy: a list in their order, a form, and a page that tries a call against them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from approvals.admin.rule_form import RuleForm
from approvals.admin.try_policy import TryForm, initial_of, tried
from approvals.conditions import Condition
from approvals.display import badge
from approvals.known_tools import approvers_in, known_tools
from approvals.models import Rule
from approvals.policy_check import Finding, check
from approvals.policy_store import current
from approvals.processes import ring_after_commit
from audit.audited import AuditedModelAdmin
from core.errors import MeahError
from core.text import visible


@admin.register(Rule)
class RuleAdmin(AuditedModelAdmin):
    form = RuleForm
    audit_noun: ClassVar[str] = "rule"
    list_display = ("order", "shown_name", "shown_effect", "about", "conditions_in_words", "demands", "owner", "is_on")
    list_display_links = ("shown_name",)
    list_filter = ("enabled", "effect")
    search_fields = ("name", "server", "tool", "reason", "owner")
    search_help_text = "Name, server, tool, reason or owner"
    ordering = ("order", "name")
    sortable_by = ()
    list_per_page = 200
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    change_list_template = "admin/approvals/rule/change_list.html"
    empty_value_display = "–"
    fieldsets = (
        (None, {"fields": ("name", "effect", "reason", "owner", "order", "enabled")}),
        ("Which calls", {"fields": ("server", "tool", "except_tools", "principal", "conditions")}),
        ("Approvals", {"fields": ("approvals", "group", "ttl_s")}),
        ("Read after write", {"fields": ("verification",)}),
    )

    # -- the list

    @admin.display(description="name")
    def shown_name(self, rule: Rule) -> str:
        return visible(rule.name)

    @admin.display(description="effect")
    def shown_effect(self, rule: Rule) -> SafeString:
        return badge(rule.effect)

    @admin.display(description="tools and callers")
    def about(self, rule: Rule) -> SafeString:
        excepted = rule.except_tools if isinstance(rule.except_tools, list) else []
        but = format_html('<div class="meah-id">but not {}</div>', visible(", ".join(map(str, excepted))))
        who = format_html('<div class="meah-id">for {}</div>', visible(rule.principal))
        name = visible(f"{rule.server}/{rule.tool}")
        return format_html("<code>{}</code>{}{}", name, but if excepted else "", who if rule.principal != "*" else "")

    @admin.display(description="if")
    def conditions_in_words(self, rule: Rule) -> SafeString | str:
        if not rule.conditions:
            return "always"
        return format_html_join("", "<div>{}</div>", ((visible(text),) for text in _words(rule.conditions)))

    @admin.display(description="asks for")
    def demands(self, rule: Rule) -> str:
        if rule.effect != "require_approval":
            return "–"
        return visible(f"{rule.approvals} of {rule.group or 'anybody'}")

    @admin.display(description="on", boolean=True)
    def is_on(self, rule: Rule) -> bool:
        return rule.enabled

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context: dict[str, Any] = {"title": "Rules", "is_empty": not Rule.objects.exists()} | _checked()
        return super().changelist_view(request, context | (extra_context or {}))

    # -- changes: the next call in any process is judged by them, and what lists tools hears of them

    def save_model(self, request: HttpRequest, obj: Rule, form: ModelForm[Any], change: bool) -> None:
        super().save_model(request, obj, form, change)
        ring_after_commit()

    def delete_model(self, request: HttpRequest, obj: Rule) -> None:
        super().delete_model(request, obj)
        ring_after_commit()

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Rule]) -> None:
        super().delete_queryset(request, queryset)
        ring_after_commit()

    # -- trying

    def get_urls(self) -> list[URLPattern]:
        return [path("try/", self.admin_site.admin_view(self.try_call), name="approvals_rule_try"), *super().get_urls()]

    def try_call(self, request: HttpRequest) -> HttpResponse:
        """What the policy says of a call; nothing is executed, held or recorded."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = TryForm(request.POST or None, initial=initial_of(request.GET.get("call", "")))
        context = self.admin_site.each_context(request) | {"title": "Try a call", "opts": self.opts, "form": form}
        if request.method == "POST" and form.is_valid():
            context |= tried(form)
        context["tools"] = known_tools()
        return render(request, "admin/approvals/rule/try.html", context)


def _words(conditions: Any) -> list[str]:
    try:
        return [Condition.from_dict(condition).as_text() for condition in conditions]
    except (MeahError, TypeError) as error:
        return [f"can not be understood: {error}"]


def _checked() -> dict[str, Any]:
    """What `policy check` finds, or why the policy can not be used at all."""
    try:
        found = check(current(), known_tools(), approvers_in)
    except MeahError as error:
        return {"policy_error": error}
    return {
        "findings": [_shown(item) for item in found if not item.is_note],
        "notes": [_shown(item) for item in found if item.is_note],
    }


def _shown(finding: Finding) -> tuple[str, str]:
    return visible(finding.rule), visible(finding.message)
