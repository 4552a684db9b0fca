"""API tokens: made for a user, shown once, revoked. Nothing here can show a token again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals import tokens
from approvals.display import ago, badge, moment, until
from approvals.models import Token
from approvals.readonly import ReadOnlyAdmin
from audit.services import user_principal
from core.errors import MeahError
from core.text import visible

DEFAULT_DAYS = 90
_SCOPES = {
    Token.Scope.AGENT: "agent: call tools, and follow its own requests",
    Token.Scope.APPROVE: "approve: decide requests, as its user",
    Token.Scope.READ: "read: see workers, requests, calls and the chain",
    Token.Scope.OPERATE: "operate: change servers and pins, as its user",
}


class TokenForm(forms.Form):
    required_css_class = "required"

    name = forms.CharField(
        max_length=100,
        widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off", "spellcheck": "false"}),
        help_text="Calls with it are made by token:NAME. A name is never given twice.",
    )
    user: Any = forms.ModelChoiceField(
        queryset=None, help_text="The person behind it. What it asks for, this person can not approve."
    )
    scopes = forms.MultipleChoiceField(
        choices=[(str(scope), text) for scope, text in _SCOPES.items()], widget=forms.CheckboxSelectMultiple
    )
    days = forms.IntegerField(
        label="Days until it expires",
        initial=DEFAULT_DAYS,
        min_value=0,
        max_value=tokens.MAX_DAYS,
        help_text="0: never.",
    )

    def __init__(self, *args: Any, asker: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        users = get_user_model()._default_manager.filter(is_active=True).order_by("username")
        # A token acts as its user: only who may do everything anyway makes one for somebody else.
        user = self.fields["user"]
        assert isinstance(user, forms.ModelChoiceField)
        user.queryset = users if asker.is_superuser else users.filter(pk=asker.pk)
        user.initial = asker.pk

    def expires_at(self) -> datetime | None:
        days = self.cleaned_data["days"]
        return timezone.now() + timedelta(days=days) if days else None


@admin.register(Token)
class TokenAdmin(ReadOnlyAdmin):
    list_display = ("shown_name", "state", "owner", "shown_scopes", "start", "made", "expires", "used", "revoke_link")
    list_display_links = None
    list_filter = (("revoked_at", admin.EmptyFieldListFilter),)
    search_fields = ("name", "public_id", "hint", "user__username")
    search_help_text = "Name, id, first characters or user"
    list_select_related = ("user",)
    change_list_template = "admin/approvals/token/change_list.html"
    fields = ("public_id", "shown_name", "state", "owner", "shown_scopes", "start", "made", "expires", "used")
    readonly_fields = fields

    @admin.display(description="name", ordering="name")
    def shown_name(self, token: Token) -> str:
        return visible(token.name)

    @admin.display(description="state")
    def state(self, token: Token) -> SafeString:
        return badge(state_of(token))

    @admin.display(description="user", ordering="user__username")
    def owner(self, token: Token) -> str:
        return visible(token.user.get_username())

    @admin.display(description="scopes")
    def shown_scopes(self, token: Token) -> str:
        return visible(", ".join(map(str, token.scopes)))

    @admin.display(description="starts with")
    def start(self, token: Token) -> SafeString:
        return format_html("<code>{}…</code>", visible(token.hint))

    @admin.display(description="made", ordering="created_at")
    def made(self, token: Token) -> SafeString | str:
        return moment(token.created_at)

    @admin.display(description="expires", ordering="expires_at")
    def expires(self, token: Token) -> SafeString | str:
        return until(token.expires_at) if token.expires_at else "never"

    @admin.display(description="last used", ordering="last_used_at")
    def used(self, token: Token) -> str:
        return ago(token.last_used_at)

    @admin.display(description="revoke")
    def revoke_link(self, token: Token) -> SafeString | str:
        if token.revoked_at:
            return "–"
        url = reverse("admin:approvals_token_revoke", args=[token.public_id])
        return format_html('<a href="{}">Revoke…<span class="visually-hidden"> {}</span></a>', url, visible(token.name))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"title": "Tokens", "is_empty": not Token.objects.exists()}
        return super().changelist_view(request, context | (extra_context or {}))

    # -- rights

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("approvals.add_token")

    def may_revoke(self, request: HttpRequest, token: Token) -> bool:
        return token.user_id == request.user.pk or request.user.has_perm("approvals.change_token")

    # -- making and revoking

    def get_urls(self) -> list[URLPattern]:
        revoke = path("<str:public_id>/revoke/", self.admin_site.admin_view(self.revoke), name="approvals_token_revoke")
        return [revoke, *super().get_urls()]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The answer to the form holds the secret: it is kept nowhere, so there is no page to come back to."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = TokenForm(request.POST or None, asker=request.user)
        context = self.admin_site.each_context(request) | {"title": "Make a token", "opts": self.opts, "form": form}
        if request.method == "POST" and form.is_valid() and (made := _made(request, form)):
            token, secret = made
            context |= {"title": f"Token {visible(token.name)}", "token": token, "secret": secret}
            response = render(request, "admin/approvals/token/made.html", context)
            response.headers["Cache-Control"] = "no-store"
            return response
        return render(request, "admin/approvals/token/make.html", context)

    def revoke(self, request: HttpRequest, public_id: str) -> HttpResponse:
        token = Token.objects.select_related("user").filter(public_id=public_id).first()
        if token is None:
            raise Http404(f"There is no token {public_id}.")
        if not self.may_revoke(request, token):
            raise PermissionDenied
        if request.method == "POST":
            tokens.revoke(token, principal=user_principal(request.user))
            messages.success(request, visible(f"The token {token.name} is revoked."))
            return redirect("admin:approvals_token_changelist")
        context = self.admin_site.each_context(request) | {
            "title": f"Revoke {visible(token.name)}?",
            "opts": self.opts,
            "token": token,
        }
        return render(request, "admin/approvals/token/revoke.html", context)


def state_of(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= timezone.now() else "valid"


def _made(request: HttpRequest, form: TokenForm) -> tuple[Token, str] | None:
    said = form.cleaned_data
    try:
        return tokens.create(
            name=said["name"],
            user=said["user"],
            scopes=said["scopes"],
            expires_at=form.expires_at(),
            principal=user_principal(request.user),
        )
    except MeahError as error:
        form.add_error("name", visible(f"{error.message} {error.hint}"))
        return None
