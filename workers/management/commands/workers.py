"""`manage.py workers list | show ID | cancel ID | cleanup | purge`: workers from the terminal of the host."""

from __future__ import annotations

import asyncio
import json
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError

from approvals.governor import decide_now, submit
from approvals.targets import CallRequest
from audit import dbthread
from core.errors import JsonObject, MeahError
from core.text import one_line, visible
from workers import housekeeping, services
from workers.config import effective
from workers.models import Worker, WorkerState
from workers.objects import worker_object, worker_summary
from workers.schemas import MAX_PAGE_CHARS
from workers.target import SERVER

# Nobody is logged in on a command line: whoever runs it is the host itself.
PRINCIPAL: Final = services.SYSTEM
DOOR: Final = "command"
DEFAULT_LIMIT: Final = 20
SHOWN_IDS: Final = 20
MODEL_CHARS: Final = 20
LABEL_CHARS: Final = 24
MAX_DAYS: Final = 36_500


class Command(BaseCommand):
    help = "List, show and cancel workers; delete workspaces and texts of finished ones."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        listing = actions.add_parser("list", help="the workers, newest first")
        listing.add_argument("--state", choices=WorkerState.values)
        listing.add_argument("--limit", type=_count, default=DEFAULT_LIMIT, help=f"default {DEFAULT_LIMIT}")
        show = actions.add_parser("show", help="one worker, whole")
        cancel = actions.add_parser("cancel", help="end a queued or running worker")
        cancel.add_argument("--reason", default="", help="kept with the worker and in the audit chain")
        for action in (show, cancel):
            action.add_argument("id", metavar="ID", help="such as w_0123456789abcdef0123")
        for action in (listing, show):
            action.add_argument("--json", action="store_true", help="print JSON")
        cleanup = actions.add_parser("cleanup", help="delete the workspaces of finished workers; records stay")
        purge = actions.add_parser("purge", help="delete the texts of finished workers; records and the chain stay")
        for action, default in ((cleanup, "0, all of them"), (purge, "the setting retentionDays")):
            action.add_argument(
                "--older-than", type=_days, metavar="DAYS", help=f"ended before that; default {default}"
            )
            action.add_argument("--yes", action="store_true", help="do it; without it, only say what would be done")

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        actions: dict[str, Callable[..., None]] = {
            "list": self.list,
            "show": self.show,
            "cancel": self.cancel,
            "cleanup": self.cleanup,
            "purge": self.purge,
        }
        try:
            actions[action](**options)
        except MeahError as error:
            raise CommandError(f"{error.code}: {error.message}\n{error.hint}") from None
        except DatabaseError as error:
            raise CommandError(f"The database can not be used: {error}".strip() + "\nSee `manage.py doctor`.") from None

    def list(self, *, state: str | None, limit: int, json: bool, **_options: Any) -> None:
        workers = Worker.objects.defer("task", "context", "result", "partial", "transcript")
        found = workers.filter(state=state) if state else workers
        summaries = [worker_summary(worker) for worker in found.order_by("-pk")[:limit]]
        if json:
            self._print_json({"workers": summaries})
            return
        for line in _table(summaries) if summaries else ["There are no workers" + (f" {state}." if state else " yet.")]:
            self.stdout.write(line)

    def show(self, *, id: str, json: bool, **_options: Any) -> None:  # noqa: A002 - the option's own name
        worker = services.get(id)
        # On a terminal there is no page to turn: the whole text at once.
        data = worker_object(worker, limit=max(len(worker.result), MAX_PAGE_CHARS))
        if json:
            self._print_json(data)
            return
        for line in _told(data, task=worker.task):
            self.stdout.write(line)

    def cancel(self, *, id: str, reason: str, **_options: Any) -> None:  # noqa: A002 - the option's own name
        arguments = {"workerId": id} | ({"reason": reason} if reason else {})
        before = services.get(id)
        decide_now(_request("meah_cancel_agent", arguments))
        after = services.get(id)
        if not before.is_active:
            self.stdout.write(f"{id} has ended already: {before.state}. Nothing is changed.")
        elif after.is_active:
            self.stdout.write(f"{id} is told to stop; its process does so within a second.")
        else:
            self.stdout.write(f"{id} is {after.state}.")

    def cleanup(self, *, older_than: float | None, yes: bool, **_options: Any) -> None:
        found = housekeeping.finished_workspaces(older_than_days=older_than or 0)
        size = _size(sum(info.size_bytes for info in found))
        if not found:
            self.stdout.write("Nothing to delete: no finished worker has a workspace.")
        elif not yes:
            self._ids([info.worker_id for info in found])
            self.stdout.write(f"Would delete {_counted(len(found), 'workspace')}, {size}. Run it with --yes to do so.")
        else:
            removed, failures = asyncio.run(_clean_up([info.worker_id for info in found]))
            self.stdout.write(f"Deleted {_counted(removed, 'workspace')} of {len(found)}, {size} in all.")
            if failures:
                raise CommandError("\n".join(failures))

    def purge(self, *, older_than: float | None, yes: bool, **_options: Any) -> None:
        days = effective().limits.retention_days if older_than is None else older_than
        found = list(
            housekeeping.past_retention(older_than_days=days).order_by("pk").values_list("public_id", flat=True)
        )
        told = f"{_counted(len(found), 'worker')} that ended more than {days:g} days ago"
        if not found:
            self.stdout.write(f"Nothing to purge: no texts of workers that ended more than {days:g} days ago.")
        elif not yes:
            self._ids(found)
            self.stdout.write(f"Would delete the texts of {told}. Run it with --yes to do so.")
        else:
            purged = housekeeping.purge_texts(older_than_days=days, principal=PRINCIPAL)
            self.stdout.write(f"Deleted the texts of {_counted(purged, 'worker')}; records and the audit chain stay.")

    def _ids(self, public_ids: Sequence[str]) -> None:
        for public_id in public_ids[:SHOWN_IDS]:
            self.stdout.write(f"  {public_id}")
        if len(public_ids) > SHOWN_IDS:
            self.stdout.write(f"  … and {len(public_ids) - SHOWN_IDS} more")

    def _print_json(self, value: JsonObject) -> None:
        self.stdout.write(json.dumps(value, ensure_ascii=False))


def _request(tool: str, arguments: JsonObject) -> CallRequest:
    return CallRequest(principal=PRINCIPAL, server=SERVER, tool=tool, arguments=arguments, door=DOOR)


async def _clean_up(public_ids: Sequence[str]) -> tuple[int, list[str]]:
    """Through the gate, as any other deletion: how many there still were, and what went wrong with which."""
    removed = 0
    failures: list[str] = []
    try:
        for name in public_ids:
            try:
                outcome = await submit(_request("meah_cleanup_workspace", {"workerId": name}))
                if outcome.approval is not None:
                    failures.append(f"{name}: waits for approval {outcome.approval['approvalId']}")
                else:
                    removed += outcome.result["removed"]
            except MeahError as error:
                failures.append(f"{name}: {error.code}: {error.message}")
    finally:
        await asyncio.to_thread(dbthread.shutdown)
    return removed, failures


def _table(summaries: Sequence[JsonObject]) -> Iterator[str]:
    rows = [("id", "state", "role", "provider/model", "created", "label")]
    rows += [
        (
            item["workerId"],
            item["state"],
            item["role"],
            one_line(f"{item['provider']}/{item['model']}", MODEL_CHARS),
            item["createdAt"][5:16].replace("T", " "),
            one_line(item["label"] or "", LABEL_CHARS),
        )
        for item in summaries
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _told(data: JsonObject, *, task: str) -> Iterator[str]:
    """Every field that is known, the texts last."""
    fields = {name: value for name, value in data.items() if name not in ("result", "error", "usage")}
    usage = {name: value for name, value in data["usage"].items() if value is not None}
    for name, value in (fields | usage).items():
        if value not in (None, [], ""):
            yield f"{name:<18} {one_line(str(value), 400)}"
    if error := data["error"]:
        yield f"{'error':<18} {error['code']}: {one_line(error['message'], 1_000)}"
        yield f"{'':<18} {one_line(error.get('hint', ''), 1_000)}".rstrip()
    yield from _text("task", task)
    if result := data["result"]:
        yield from _text("result, cut" if result["truncated"] else "result", result["text"])


def _text(title: str, text: str) -> Iterator[str]:
    yield ""
    yield f"{title}:"
    yield visible(text) or "(purged or empty)"


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= 10_000:
        raise ArgumentTypeError(f"{text!r} is not a number from 1 to 10000")
    return int(text)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days <= MAX_DAYS:
        raise ArgumentTypeError(f"{text!r} is not a number of days from 0 to {MAX_DAYS}")
    return days


def _size(size_bytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes} bytes"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
