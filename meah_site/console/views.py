"""The console's pages: the list, what it asks for, cancelling several, and two results side by side."""

from __future__ import annotations

import difflib
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from approvals.governor import decide_now
from approvals.targets import CallRequest
from audit.services import user_principal
from core.errors import MeahError
from core.text import visible
from workers.config import effective
from workers.listing import title_of
from workers.models import Worker
from workers.roles import ROLES
from workers.routing import MOCK
from workers.target import SERVER

from . import rows
from .routing import SOCKET_PATH
from .socket import VIEW_REQUESTS, VIEW_SERVERS, VIEW_WORKERS

DOOR: Final = "admin"
MAX_SELECTED: Final = 200
MAX_COMPARED_LINES: Final = 2_000


def console(request: HttpRequest) -> HttpResponse:
    """The list as it stands; a script keeps it current, and without one the page is right when it is loaded."""
    _only_with(request, VIEW_WORKERS)
    filters = rows.Filters.of(request.GET)
    page = rows.page_of(filters, before=_key(request.GET.get("before")))
    user: Any = request.user
    context = admin.site.each_context(request) | {
        "title": "Console",
        "filters": filters,
        "page": page,
        "older": _query(filters, page.before),
        "data": page.as_dict() | {"socket": f"/{SOCKET_PATH}", "rowsUrl": reverse("admin:console_rows")},
        "held": rows.held() if user.has_perm(VIEW_REQUESTS) else None,
        "servers": rows.servers() if user.has_perm(VIEW_SERVERS) else None,
        "states": ("active", *rows.STATES),
        "roles": list(ROLES),
        "providers": _providers(),
        "may_run": user.has_perm("workers.add_worker"),
        "may_act": user.has_perm("workers.change_worker"),
    }
    return render(request, "meah/console.html", context)


def rows_page(request: HttpRequest) -> JsonResponse:
    """`?state=&role=&provider=&label=&before=KEY`: one page of lines."""
    _only_with(request, VIEW_WORKERS)
    page = rows.page_of(rows.Filters.of(request.GET), before=_key(request.GET.get("before")))
    return JsonResponse(page.as_dict())


def worker_text(request: HttpRequest, public_id: str) -> JsonResponse:
    """The task and the answer of one worker, for the pane beside the list."""
    _only_with(request, VIEW_WORKERS)
    worker = Worker.objects.filter(public_id=public_id).first()
    if worker is None:
        return JsonResponse({"error": f"There is no worker {visible(public_id)[:100]}."}, status=404)
    return JsonResponse(rows.row_of(worker) | rows.text_of(worker))


def cancel(request: HttpRequest) -> HttpResponse:
    """Cancel the workers that were ticked: a page that asks, until it comes back with `post`."""
    _only_with(request, "workers.change_worker")
    if request.method != "POST":
        return redirect("admin:console")
    chosen = Worker.objects.active().filter(public_id__in=request.POST.getlist("worker")[:MAX_SELECTED])
    workers = list(chosen.order_by("pk"))
    if request.POST.get("post") or not workers:
        for worker in workers:
            _cancel_one(request, worker)
        if not workers:
            messages.info(request, "None of the workers that were ticked is queued or running.")
        return redirect("admin:console")
    context = admin.site.each_context(request) | {"title": "Cancel: are you sure?", "workers": workers}
    return render(request, "meah/console_cancel.html", context)


def _cancel_one(request: HttpRequest, worker: Worker) -> None:
    call = CallRequest(
        principal=user_principal(request.user),
        server=SERVER,
        tool="meah_cancel_agent",
        arguments={"workerId": worker.public_id, "reason": "by hand"},
        door=DOOR,
        user_id=request.user.pk,
    )
    try:
        outcome = decide_now(call)
    except MeahError as error:
        messages.error(request, visible(f"Worker {worker.public_id}: {error.message} {error.hint}"))
        return
    if outcome.approval is not None:
        messages.info(request, f"Cancelling {worker.public_id} waits for a decision: {outcome.approval['approvalId']}.")
        return
    messages.success(request, f"Worker {worker.public_id} is told to stop.")


def compare(request: HttpRequest) -> HttpResponse:
    """`?worker=w_…&worker=w_…`: what two workers were asked and what they answered, side by side."""
    _only_with(request, VIEW_WORKERS)
    ids = list(dict.fromkeys(request.GET.getlist("worker")))
    found = {worker.public_id: worker for worker in Worker.objects.filter(public_id__in=ids[:MAX_SELECTED])}
    if len(ids) != 2 or len(found) != 2:
        messages.info(request, "Tick exactly two workers to compare them.")
        return redirect("admin:console")
    left, right = (found[public_id] for public_id in ids)
    context = admin.site.each_context(request) | {
        "title": "Two workers side by side",
        "pair": [(worker, title_of(worker), rows.row_of(worker)) for worker in (left, right)],
        "difference": _difference(left.result or left.partial, right.result or right.partial),
    }
    return render(request, "meah/console_compare.html", context)


def _difference(left: str, right: str) -> list[tuple[str, str]] | None:
    """Line by line, as (mark, text): `-` only left, `+` only right; None where the texts are equal or too long."""
    before, after = visible(left).splitlines(), visible(right).splitlines()
    if before == after or max(len(before), len(after)) > MAX_COMPARED_LINES:
        return None
    return [(line[:1], line[2:]) for line in difflib.ndiff(before, after) if line[0] != "?"]


def _only_with(request: HttpRequest, right: str) -> None:
    user: Any = request.user
    if not user.has_perm(right):
        raise PermissionDenied


def _key(text: str | None) -> int | None:
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise Http404("`before` is the number that a page ends with.")


def _query(filters: rows.Filters, before: int | None) -> str:
    """The query of the next page; empty where this is the last."""
    return "" if before is None else urlencode(filters.as_dict() | {"before": before})


def _providers() -> list[str]:
    try:
        return [*sorted(effective().providers), MOCK]
    except MeahError:
        return [MOCK]
