"""Webhooks, and the messages that wait for them or were sent."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals import webhooks
from approvals.display import badge, moment
from approvals.models import Delivery, Webhook
from approvals.readonly import ReadOnlyAdmin
from audit.audited import AuditedModelAdmin
from audit.services import user_principal
from core.errors import MeahError
from core.redaction import looks_like_key, redact
from core.secrets import read_secret
from core.text import one_line, visible

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[Webhook]
else:
    ModelForm = forms.ModelForm

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class WebhookForm(ModelForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "url" in self.fields:
            self.fields["url"].required = False  # the variable may hold it

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"].strip()
        if not url:
            return url
        if redact(url) != url:
            raise forms.ValidationError(
                "This URL is a secret itself. Put it into a variable, and name that under URL variable."
            )
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise forms.ValidationError("It starts with https:// (or http:// for a private address) and names a host.")
        if parts.username is not None or parts.password is not None:
            raise forms.ValidationError("No user name and no password in it.")
        return url

    def clean_url_env(self) -> str:
        return _variable(self.cleaned_data["url_env"])

    def clean_secret_env(self) -> str:
        return _variable(self.cleaned_data["secret_env"])

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or {}
        url = cleaned.get("url", "")
        if "url" in cleaned and not url and not cleaned.get("url_env"):
            self.add_error("url", "Say where to: a URL, or the variable that holds it.")
        if url.startswith("http://") and not cleaned.get("private"):
            self.add_error("url", "https only, unless the address is marked private.")
        return cleaned


def _variable(name: str) -> str:
    if not name:
        return ""
    if not _VARIABLE.fullmatch(name) or looks_like_key(name):
        raise forms.ValidationError("The name of an environment variable, never what it holds.")
    return name


@admin.register(Webhook)
class WebhookAdmin(AuditedModelAdmin):
    form = WebhookForm
    audit_noun: ClassVar[str] = "webhook"
    list_display = ("shown_name", "where", "format", "signed", "enabled", "deliveries")
    list_display_links = ("shown_name",)
    search_fields = ("name",)
    change_list_template = "admin/approvals/webhook/change_list.html"
    fieldsets = (
        (None, {"fields": ("name", "format", "enabled")}),
        ("Where to", {"fields": ("url", "url_env", "private")}),
        (
            "Signature",
            {
                "description": "With a secret, each message has the header X-Meah-Signature: t=TIME,v1=HMAC-SHA256 of "
                "TIME.BODY.",
                "fields": ("secret_env",),
            },
        ),
    )

    @admin.display(description="name", ordering="name")
    def shown_name(self, webhook: Webhook) -> str:
        return visible(webhook.name)

    @admin.display(description="where")
    def where(self, webhook: Webhook) -> SafeString | str:
        if webhook.url_env:
            return _shown_variable(webhook.url_env)
        return one_line(redact(webhook.url), 100)

    @admin.display(description="signed")
    def signed(self, webhook: Webhook) -> SafeString | str:
        return _shown_variable(webhook.secret_env) if webhook.secret_env else "no"

    @admin.display(description="messages")
    def deliveries(self, webhook: Webhook) -> SafeString:
        url = reverse("admin:approvals_delivery_changelist", query={"webhook__id__exact": webhook.pk})
        given_up = webhook.deliveries.filter(state=Delivery.State.GIVEN_UP).count()
        mark = badge("given_up", f"{given_up} given up") if given_up else ""
        return format_html('<a href="{}">messages</a> {}', url, mark)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"title": "Webhooks", "is_empty": not Webhook.objects.exists()}
        return super().changelist_view(request, context | (extra_context or {}))


def _shown_variable(name: str) -> SafeString:
    """A variable by name, and whether the process that serves this page has it; never what it holds."""
    is_set = bool(read_secret(name))
    return format_html(
        "<code>{}</code> {}", visible(name), badge("set" if is_set else "not_set", "" if is_set else "not set here")
    )


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_state",
        "event",
        "shown_webhook",
        "shown_request",
        "tries",
        "made",
        "next_try",
        "problem",
        "again",
    )
    list_display_links = ("event",)
    list_filter = ("state", "event", "webhook")
    list_select_related = ("webhook", "approval")
    fields = (
        "shown_state",
        "event",
        "shown_webhook",
        "shown_request",
        "tries",
        "made",
        "next_try",
        "problem",
        "body_text",
    )
    readonly_fields = fields

    @admin.display(description="state", ordering="state")
    def shown_state(self, delivery: Delivery) -> SafeString:
        return badge(delivery.state)

    @admin.display(description="webhook", ordering="webhook__name")
    def shown_webhook(self, delivery: Delivery) -> str:
        return visible(delivery.webhook.name)

    @admin.display(description="request")
    def shown_request(self, delivery: Delivery) -> SafeString:
        public_id = delivery.approval.public_id
        return format_html(
            '<a href="{}">{}</a>', reverse("admin:approvals_approval_change", args=[public_id]), public_id
        )

    @admin.display(description="made", ordering="id")
    def made(self, delivery: Delivery) -> SafeString | str:
        return moment(delivery.created_at)

    @admin.display(description="next try", ordering="next_try_at")
    def next_try(self, delivery: Delivery) -> SafeString | str:
        return moment(delivery.next_try_at) if delivery.state == Delivery.State.WAITING else "–"

    @admin.display(description="last error")
    def problem(self, delivery: Delivery) -> str:
        return visible(delivery.last_error) or "–"

    @admin.display(description="body")
    def body_text(self, delivery: Delivery) -> SafeString:
        text = json.dumps(delivery.body, indent=2, ensure_ascii=False)
        return format_html('<pre class="meah-text">{}</pre>', visible(redact(text)))

    @admin.display(description="retry")
    def again(self, delivery: Delivery) -> SafeString | str:
        """A button of a form that stands beside the list's own: forms do not nest."""
        if delivery.state == Delivery.State.SENT:
            return "–"
        url = reverse("admin:approvals_delivery_retry", args=[delivery.pk])
        return format_html('<button type="submit" form="retry-form" formaction="{}" class="button">Retry</button>', url)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": "Messages to webhooks"} | (extra_context or {}))

    def get_urls(self) -> list[URLPattern]:
        retry = path("<int:pk>/retry/", self.admin_site.admin_view(self.retry), name="approvals_delivery_retry")
        return [retry, *super().get_urls()]

    def retry(self, request: HttpRequest, pk: int) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not request.user.has_perm("approvals.change_webhook"):
            raise PermissionDenied
        delivery = Delivery.objects.select_related("webhook", "approval").filter(pk=pk).first()
        if delivery is None:
            raise Http404("There is no such message.")
        try:
            webhooks.retry(delivery, principal=user_principal(request.user))
        except MeahError as error:
            messages.error(request, f"{error.message} {error.hint}")
        else:
            messages.success(request, "It is sent again within seconds.")
        return redirect("admin:approvals_delivery_changelist")

    change_list_template = "admin/approvals/delivery/change_list.html"
