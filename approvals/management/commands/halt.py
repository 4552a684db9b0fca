"""`manage.py halt`: the one switch."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from approvals import services
from approvals.models import Halt


class Command(BaseCommand):
    help = "Stop everything (on), go on (off), or say how it stands (status)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("switch", choices=["on", "off", "status"])
        parser.add_argument("--reason", default="", help="what agents and people read")

    def handle(self, *args: Any, switch: str, reason: str, **options: Any) -> None:
        if switch == "on":
            ended = services.halt(principal="system", reason=reason)
            self.stdout.write(f"Halted: new calls are refused, running ones cancelled, {ended} open requests are void.")
        elif switch == "off":
            services.resume(principal="system")
            self.stdout.write("Running: calls go through the policy again.")
        else:
            halt = Halt.objects.filter(pk=1, engaged=True).first()
            self.stdout.write(f"Halted by {halt.changed_by}: {halt.reason}" if halt else "Running.")
