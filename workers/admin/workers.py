"""Workers: what was asked of whom, how it went, and the few things a person can do about it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.display import badge, duration, moment
from approvals.governor import decide_now, submit
from approvals.processes import living
from approvals.readonly import ReadOnlyAdmin
from approvals.targets import CallRequest
from audit.models import Entry
from audit.services import user_principal
from core.errors import JsonObject, MeahError
from core.text import has_hidden, visible
from workers.admin.environment import configuration
from workers.admin.run_form import (
    ContextFormSet,
    RunForm,
    context_arguments,
    initial_context,
    initial_of,
)
from workers.listing import listed, title_of
from workers.models import Provider, Worker, WorkerState
from workers.objects import cost_text
from workers.roles import ROLES
from workers.routing import MOCK
from workers.starts import rerun, start
from workers.target import SERVER

DOOR = "admin"
MAX_ENTRIES = 50
MAX_SELECTED = 200


class ProviderFilter(admin.SimpleListFilter):
    """Names from the configuration: asking the workers for theirs would read every row."""

    title = "provider"
    parameter_name = "provider"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = {*configuration()[0].providers, *Provider.objects.values_list("name", flat=True)}
        return [(name, name) for name in [*sorted(names), MOCK]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Worker]) -> QuerySet[Worker]:
        return queryset.filter(provider=self.value()) if self.value() else queryset


class RoleFilter(admin.SimpleListFilter):
    title = "role"
    parameter_name = "role"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(role, role) for role in ROLES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Worker]) -> QuerySet[Worker]:
        return queryset.filter(role=self.value()) if self.value() else queryset


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_state",
        "name",
        "role",
        "where",
        "created",
        "took",
        "usage",
        "shown_principal",
    )
    list_display_links = None
    list_filter = ("state", RoleFilter, ProviderFilter, ("created_at", admin.DateFieldListFilter))
    search_fields = ("public_id", "label", "task")
    search_help_text = "Id, label or words of the task"
    change_list_template = "admin/workers/worker/change_list.html"
    change_form_template = "admin/workers/worker/change_form.html"
    fields = ("public_id",)
    readonly_fields = fields
    actions = ("cancel_selected", "clean_up_selected")

    # -- the list -----------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        return listed(super().get_queryset(request))

    @admin.display(description="state", ordering="state")
    def shown_state(self, worker: Worker) -> SafeString:
        return badge(worker.state, worker.get_state_display())

    @admin.display(description="worker", ordering="label")
    def name(self, worker: Worker) -> SafeString:
        url = reverse("admin:workers_worker_change", args=[worker.public_id])
        title = title_of(worker)
        below = "" if title == worker.public_id else worker.public_id
        return format_html('<a href="{}">{}</a><div class="meah-id">{}</div>', url, title, below)

    @admin.display(description="model", ordering="provider")
    def where(self, worker: Worker) -> SafeString:
        provider, model = visible(worker.provider), visible(worker.model)
        return format_html('{}<div class="meah-id">{}</div>', model, provider)

    @admin.display(description="created", ordering="id")
    def created(self, worker: Worker) -> SafeString | str:
        return moment(worker.created_at)

    @admin.display(description="took")
    def took(self, worker: Worker) -> str:
        return duration(worker.duration_ms)

    @admin.display(description="tokens, cost", ordering="cost")
    def usage(self, worker: Worker) -> SafeString | str:
        if worker.is_active:
            return "–"
        tokens, cost = shown_tokens(worker), shown_cost(worker)
        return tokens if tokens == cost else format_html('{}<div class="meah-id">{}</div>', tokens, cost)

    @admin.display(description="principal", ordering="principal")
    def shown_principal(self, worker: Worker) -> str:
        return visible(worker.principal)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {"title": "Workers", "is_empty": not Worker.objects.exists(), "may_run": self.may_run(request)}
        return super().changelist_view(request, context | (extra_context or {}))

    # -- rights -------------------------------------------------------------------------------------------------

    def may_run(self, request: HttpRequest) -> bool:
        return request.user.has_perm("workers.add_worker")

    def may_act(self, request: HttpRequest) -> bool:
        return request.user.has_perm("workers.change_worker")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.may_run(request)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self.may_act(request)

    # -- actions on several -------------------------------------------------------------------------------------

    @admin.action(description="Cancel the selected workers", permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Worker]) -> HttpResponse | None:
        return self._confirm_or_do(request, queryset.active(), "cancel_selected", "Cancel", self._cancel)  # type: ignore[attr-defined]

    @admin.action(description="Clean up the workspaces of the selected workers", permissions=["cancel"])
    def clean_up_selected(self, request: HttpRequest, queryset: QuerySet[Worker]) -> HttpResponse | None:
        finished = queryset.finished().exclude(workspace="")  # type: ignore[attr-defined]
        return self._confirm_or_do(request, finished, "clean_up_selected", "Clean up", self._clean_up)

    def _confirm_or_do(
        self,
        request: HttpRequest,
        queryset: QuerySet[Worker],
        action: str,
        verb: str,
        act: Callable[[HttpRequest, Worker], str],
    ) -> HttpResponse | None:
        """The shape of Django's own delete_selected: a page until it comes back with `post`."""
        workers = list(queryset[:MAX_SELECTED])
        if request.POST.get("post"):
            for worker in workers:
                self._told(request, act, worker)
            return None
        context = self.admin_site.each_context(request) | {
            "title": f"{verb}: are you sure?",
            "opts": self.opts,
            "workers": workers,
            "action": action,
            "verb": verb,
            "limit": MAX_SELECTED,
        }
        return TemplateResponse(request, "admin/workers/worker/confirm.html", context)

    def _told(self, request: HttpRequest, act: Callable[[HttpRequest, Worker], str], worker: Worker) -> None:
        try:
            messages.success(request, act(request, worker))
        except MeahError as error:
            messages.error(request, visible(f"Worker {worker.public_id}: {error.message} {error.hint}"))

    def _cancel(self, request: HttpRequest, worker: Worker) -> str:
        arguments = {"workerId": worker.public_id, "reason": "by hand"}
        outcome = decide_now(self._call(request, "meah_cancel_agent", arguments))
        if outcome.approval is not None:
            return f"Cancelling {worker.public_id} waits for a decision: {outcome.approval['approvalId']}."
        worker.refresh_from_db(fields=["state"])
        return f"Worker {worker.public_id} is {'told to stop' if worker.is_active else 'cancelled'}."

    def _clean_up(self, request: HttpRequest, worker: Worker) -> str:
        call = self._call(request, "meah_cleanup_workspace", {"workerId": worker.public_id})
        outcome = async_to_sync(submit)(call)
        if outcome.approval is not None:
            return f"Cleaning up {worker.public_id} waits for a decision: {outcome.approval['approvalId']}."
        return (
            f"The workspace of {worker.public_id} {'is removed' if outcome.result['removed'] else 'was gone already'}."
        )

    def _call(self, request: HttpRequest, tool: str, arguments: JsonObject) -> CallRequest:
        return CallRequest(
            principal=user_principal(request.user), server=SERVER, tool=tool, arguments=arguments, door=DOOR
        )

    # -- one worker ---------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<str:public_id>/cancel/", view(self.cancel), name="workers_worker_cancel"),
            path("<str:public_id>/rerun/", view(self.rerun), name="workers_worker_rerun"),
            path("<str:public_id>/clean-up/", view(self.clean_up), name="workers_worker_clean_up"),
            *super().get_urls(),
        ]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Worker | None:
        """By public id, which is what people and entries have; or by key."""
        field = "pk" if object_id.isdigit() else "public_id"
        return Worker.objects.filter(**{field: object_id}).select_related("call", "rerun_of").first()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        worker = self.get_object(request, object_id)
        if worker is None or not self.has_view_permission(request, worker):
            return super().change_view(request, object_id, form_url, extra_context)
        # A page that looks again while the worker runs leaves out what can not have changed.
        context = detail(worker) | {
            "may_run": self.may_run(request),
            "may_act": self.may_act(request),
            "live": "live" in request.GET,
        }
        # By key: the admin takes `_23` in an id for an escape of its own.
        return super().change_view(request, str(worker.pk), form_url, context | (extra_context or {}))

    def cancel(self, request: HttpRequest, public_id: str) -> HttpResponse:
        return self._act(request, public_id, self._cancel)

    def clean_up(self, request: HttpRequest, public_id: str) -> HttpResponse:
        return self._act(request, public_id, self._clean_up)

    def _act(self, request: HttpRequest, public_id: str, act: Callable[[HttpRequest, Worker], str]) -> HttpResponse:
        if not self.may_act(request):
            raise PermissionDenied
        worker = self._posted(request, public_id)
        self._told(request, act, worker)
        return redirect("admin:workers_worker_change", public_id)

    def rerun(self, request: HttpRequest, public_id: str) -> HttpResponse:
        if not self.may_run(request):
            raise PermissionDenied
        worker = self._posted(request, public_id)
        try:
            again = rerun(worker, principal=user_principal(request.user), door=DOOR)
        except MeahError as error:
            messages.error(request, visible(f"{error.message} {error.hint}"))
            return redirect("admin:workers_worker_change", public_id)
        messages.success(request, f"Worker {public_id} runs again as {again.public_id}.")
        return redirect("admin:workers_worker_change", again.public_id)

    def _posted(self, request: HttpRequest, public_id: str) -> Worker:
        worker = self.get_object(request, public_id)
        if worker is None or request.method != "POST":
            raise Http404("There is nothing to see here: it is a button of a worker's page.")
        return worker

    # -- a new one ----------------------------------------------------------------------------------------------

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The form that hands over a task; `?from=w_…` fills it with another worker's."""
        if not self.may_run(request):
            raise PermissionDenied
        model = self.get_object(request, request.GET.get("from", "")) if "from" in request.GET else None
        form = RunForm(request.POST or None, initial=initial_of(model))
        items = ContextFormSet(request.POST or None, initial=initial_context(model), prefix="context")
        if request.method == "POST" and form.is_valid() and items.is_valid():
            try:
                arguments = form.arguments() | context_arguments(items)
                worker = start(arguments, principal=user_principal(request.user), door=DOOR)
            except MeahError as error:
                form.add_meah_error(error)
            else:
                return _after_start(request, worker)
        context = self.admin_site.each_context(request) | {
            "title": "Run a worker",
            "opts": self.opts,
            "model": model,
            "has_hidden": model is not None
            and has_hidden(json.dumps([form.initial, model.context], ensure_ascii=False)),
            "form": form,
            "items": items,
            "roles": list(ROLES.values()),
            "offered": configuration()[0].offered,
        }
        return render(request, "admin/workers/worker/run.html", context)


def _after_start(request: HttpRequest, worker: Worker) -> HttpResponse:
    """Back to the console, where the form was opened from there; else to the worker's own page."""
    if request.GET.get("next") == "console":
        return redirect(reverse("admin:console", query={"selected": worker.public_id}))
    return redirect("admin:workers_worker_change", worker.public_id)


def _command_lines(worker: Worker) -> list[JsonObject]:
    """Each command with how it went, once it has run."""
    results = [*worker.command_results, *[None] * len(worker.commands)]
    return [
        {"words": shlex.join(argv), "result": result} for argv, result in zip(worker.commands, results, strict=False)
    ]


def shown_tokens(worker: Worker) -> str:
    if worker.input_tokens is None or worker.output_tokens is None:
        return "unknown"
    return f"{worker.input_tokens + worker.output_tokens:,}"


def shown_cost(worker: Worker) -> str:
    text = cost_text(worker.cost)
    return "unknown" if text is None else visible(f"{text} {worker.currency}".strip())


def detail(worker: Worker) -> dict[str, Any]:
    """What the page of one worker shows beside its fields."""
    owner = next((process for process in living() if process.public_id == worker.owner), None)
    return {
        "title": title_of(worker),
        "subtitle": None,
        "command_lines": _command_lines(worker),
        "worker": worker,
        "owner": owner,
        "cost": shown_cost(worker),
        "tokens": f"{_number(worker.input_tokens)} in, {_number(worker.output_tokens)} out",
        "reasoning_tokens": _number(worker.reasoning_tokens),
        "max_output_tokens": _number(worker.max_output_tokens),
        "error": worker.error,
        "error_details": _pretty((worker.error or {}).get("details")),
        "context_items": worker.context,
        "transcript": _pretty(worker.transcript),
        "reruns": list(worker.reruns.order_by("id").values_list("public_id", flat=True)[:20]),
        "entries": list(Entry.objects.filter(subject=worker.public_id).order_by("seq")[:MAX_ENTRIES]),
        "is_cancellable": worker.is_active and worker.cancel_requested_at is None,
        "is_stopping": worker.state == WorkerState.RUNNING and worker.cancel_requested_at is not None,
    }


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _pretty(value: Any) -> str:
    return visible(json.dumps(value, indent=2, ensure_ascii=False)) if value else ""
