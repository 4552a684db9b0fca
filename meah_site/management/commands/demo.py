"""`manage.py demo`: a coordinator, a triage and an executor at work under approval, in a throw-away home."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from core.errors import JsonObject
from meah_site.lab.bench import Lab, LabError


class Command(BaseCommand):
    help = "Show the life of a governed call on real processes; a deterministic stub stands in for the model."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="meah-demo-") as directory:
            try:
                asyncio.run(self._play(Path(directory)))
            except* LabError as errors:
                raise CommandError("; ".join(map(str, errors.exceptions))) from errors

    def _say(self, who: str, what: str) -> None:
        self.stdout.write(f"{who:<12} {what}")
        self.stdout.flush()

    async def _play(self, directory: Path) -> None:
        self._say("lab", "starting a throw-away MEAH with the CRM behind it …")
        async with Lab(directory) as lab, lab.agent("triage") as triage, lab.agent("executor") as executor:
            ticket = await triage.call("get_ticket", ticket_id="T-1001")
            self._say("triage", f"reads T-1001: {ticket['subject']} ({ticket['status']}, {ticket['priority']})")
            await executor.call("add_comment", ticket_id="T-1001", body="We are on it.")
            self._say("executor", "add_comment: policy allows it, it goes through")
            change = {"ticket_id": "T-1001", "status": "closed"}
            held = (await executor.call("update_ticket", **change))["data"]
            self._say("executor", f"update_ticket: {held['status']}, request {held['approvalId']}")
            self._say("crm", f"T-1001 is still {await self._status(lab)}")
            again = (await executor.call("update_ticket", **change))["data"]
            self._say(
                "executor", f"tries again and finds the same request: {again['approvalId'] == held['approvalId']}"
            )
            await lab.manage("approvals", "approve", held["approvalId"], "--note", "agreed", token_of="ann")  # noqa: S106
            self._say("ann", "approves it, with a note")
            ended = await executor.settled(held["approvalId"])
            self._say("meah", f"ran it with the held arguments: {ended['status']}, {ended['verification']}")
            self._say(
                "crm", f"T-1001 is now {await self._status(lab)}; writes done: {len(lab.effects('update_ticket'))}"
            )
            self._say("audit", (await lab.manage("audit", "verify")).strip().splitlines()[0])

    async def _status(self, lab: Lab) -> str:
        tickets: JsonObject | list[JsonObject] = lab.crm()["tickets"]
        found = tickets["T-1001"] if isinstance(tickets, dict) else tickets[0]
        return str(found["status"])
