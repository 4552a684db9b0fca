"""`manage.py approvals`: what waits for a person, and deciding it on the command line."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from approvals import endings, services
from approvals.approver import approving_user
from approvals.holds import load_settings
from approvals.models import Approval, ApprovalState
from approvals.outcomes import status_of
from core.errors import MeahError
from core.text import one_line, visible


class Command(BaseCommand):
    help = "List open requests, and approve or reject one as the user of MEAH_TOKEN (or with their password)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("pending", help="what waits for a person, oldest first")
        show = actions.add_parser("show", help="one request, with exactly what will be sent")
        show.add_argument("id")
        for name in ("approve", "reject"):
            decide = actions.add_parser(name, help=f"{name} a request")
            decide.add_argument("id")
            decide.add_argument("--note", required=True, help="kept, and read by the agent")
            decide.add_argument("--user", default="", help="whose password to ask for on a terminal")

        purge = actions.add_parser("purge", help="delete arguments and results of ended calls; the chain stays")
        purge.add_argument("--older-than", type=float, metavar="DAYS", help="default: the setting")
        purge.add_argument("--yes", action="store_true", help="do it; without, only say what it would be")

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        endings.expire_due()
        try:
            if action == "pending":
                self._pending()
            elif action == "purge":
                self._purge(options["older_than"], yes=options["yes"])
            elif action == "show":
                self._show(services.get(options["id"]))
            else:
                self._decide(action, services.get(options["id"]), options["note"], options["user"])
        except MeahError as error:
            raise CommandError(f"{error.message} {error.hint}") from error

    def _pending(self) -> None:
        pending = list(Approval.objects.filter(state=ApprovalState.PENDING).select_related("call").order_by("pk"))
        if not pending:
            self.stdout.write("Nothing waits for a person.")
        for approval in pending:
            left = round((approval.expires_at - timezone.now()).total_seconds() / 60)
            call = approval.call
            self.stdout.write(
                f"{approval.public_id}  {call.server}/{call.tool}  by {one_line(visible(approval.principal), 60)}  "
                f"({approval.rule}; {left} min left)\n    {one_line(visible(call.arguments), 160)}"
            )

    def _show(self, approval: Approval) -> None:
        call = approval.call
        rows = {
            "status": status_of(approval),
            "call": f"{call.server}/{call.tool} ({call.effect_class})",
            "asked by": approval.principal,
            "rule": f"{approval.rule} {approval.reason}".strip(),
            "digest": approval.digest,
            "arguments": call.arguments,
            "note": approval.outcome_note,
        }
        for name, value in rows.items():
            if value:
                self.stdout.write(f"{name:<10} {visible(value)}")

    def _purge(self, older_than: float | None, *, yes: bool) -> None:
        days = load_settings().result_days if older_than is None else older_than
        if days < 0:
            raise CommandError("--older-than takes a number of days from 0 on.")
        if not yes:
            count = services.purgeable(older_than_days=days).count()
            self.stdout.write(f"The texts of {count} calls that ended more than {days:g} days ago; --yes deletes them.")
            return
        count = services.purge_texts(older_than_days=days, principal="system")
        self.stdout.write(f"Deleted the texts of {count} calls; their records and the audit chain stay.")

    def _decide(self, action: str, approval: Approval, note: str, username: str) -> None:
        self._show(approval)
        user = approving_user(scope="approve", username=username)
        decide = services.approve if action == "approve" else services.reject
        decided = decide(approval, user=user, note=note, door="command")
        self.stdout.write(f"{decided.public_id} is {status_of(decided)} (by {user.get_username()}).")
        if status_of(decided) == "approved" and (missing := services.missing_to_run(decided.call)):
            self.stdout.write(f"No running MEAH process can execute it yet: {', '.join(missing)} is missing.")
