"""`manage.py servers`: downstream servers, imported, exported, listed, refreshed, their tools accepted."""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import Error as DatabaseError

from approvals.approver import approving_user
from approvals.models import EffectClass
from approvals.policy_store import current
from approvals.processes import run_directory
from core.errors import MeahError
from core.redaction import redact
from core.text import visible
from gateway import mcpfile, presentation, services
from gateway.models import Exposure, GatewaySettings, PinState, Server, Tool
from gateway.probing import Probe, probe_all
from gateway.runtime import Gateway

# Nobody is logged in on a command line.
PRINCIPAL = "system"


class Command(BaseCommand):
    help = "Downstream MCP servers: import, export, list, refresh; their tools: list, accept, mark."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        found = actions.add_parser("import", help="start the servers of an .mcp.json file and show what they offer")
        found.add_argument("file", type=Path, metavar="FILE.mcp.json")
        found.add_argument("--yes", action="store_true", help="apply what is shown")
        found.add_argument("--exposure", choices=Exposure.values, help="for servers whose entry does not say")
        export = actions.add_parser("export", help="print all servers as an .mcp.json file, without secrets")
        export.add_argument("server", nargs="*")
        listing = actions.add_parser("list", help="list the servers")
        refresh = actions.add_parser("refresh", help="start a server, list its tools, compare them with their pins")
        refresh.add_argument("server")
        tools = actions.add_parser("tools", help="list every tool: posture, rule, class, hints, pin, exposure")
        tools.add_argument("server", nargs="?")
        for action in (listing, tools):
            action.add_argument("--json", action="store_true", help="print JSON")
        accept = actions.add_parser("accept", help="accept new and changed tools, after showing the difference")
        accept.add_argument("server")
        accept.add_argument("tool", nargs="*", help="all that can be accepted, where none is named")
        accept.add_argument("--class", dest="effect_class", choices=EffectClass.values, help="mark them as that")
        accept.add_argument("--show", action="store_true", help="only show the difference")
        accept.add_argument("--user", default="", help="whose password is asked, where MEAH_TOKEN is not set")
        mark = actions.add_parser("mark", help="say what a tool does to the world")
        mark.add_argument("server")
        mark.add_argument("tool")
        mark.add_argument("effect_class", choices=EffectClass.values)

    def handle(self, *, action: str, **options: Any) -> None:
        actions: dict[str, Callable[..., bool]] = {
            "import": self.import_file,
            "export": self.export,
            "list": self.list_servers,
            "refresh": self.refresh,
            "tools": self.tools,
            "accept": self.accept,
            "mark": self.mark,
        }
        try:
            fine = actions[action](**options)
        except MeahError as error:
            self.stderr.write(visible(redact(f"{error.message} {error.hint}".strip())))
            sys.exit(1)
        except DatabaseError as error:
            self.stderr.write(f"The database does not answer: {error}".strip())
            sys.exit(1)
        if not fine:
            sys.exit(1)

    def import_file(self, *, file: Path, yes: bool, exposure: str | None, **_options: Any) -> bool:
        entries = mcpfile.parse(_read(file), directory=file.resolve().parent)
        if not entries:
            raise MeahError("E_CONFIG", f"{file} names no server.", hint="Add one under mcpServers.")
        startable = [entry.launch for entry in entries if not entry.check(entry.exposure or exposure or Exposure.OFF)]
        probes = _run(self._probed(startable, GatewaySettings.load()))
        previews = services.preview(entries, probes, exposure=exposure)
        for shown in previews:
            self._write(presentation.preview_lines(shown))
        if yes:
            added = services.apply(previews, principal=PRINCIPAL)
            self.stdout.write(f"Applied: {', '.join(visible(server.name) for server in added) or 'nothing'}.")
        else:
            self.stdout.write("Nothing was changed. Apply it with --yes (and --exposure direct|lazy|off).")
        if yes and any(server.exposure == Exposure.OFF for server in added):
            self.stdout.write(
                "What is off is not offered to agents: import with --exposure, or change it in the admin."
            )
        return all(not shown.problems and shown.probe.worked for shown in previews)

    def export(self, *, server: list[str], **_options: Any) -> bool:
        chosen = [services.server_named(name) for name in server] or list(Server.objects.all())
        text = mcpfile.render((one.launch(), _own(one)) for one in chosen)
        self.stdout.write(redact(text), ending="")
        return True

    def list_servers(self, *, json: bool, **_options: Any) -> bool:
        servers = list(Server.objects.all())
        if json:
            return self._print_json([presentation.server_object(server) for server in servers])
        rows = [presentation.server_row(server) for server in servers]
        return self._write_table(presentation.SERVER_HEADINGS, rows, "There are no servers: `servers import FILE`.")

    def refresh(self, *, server: str, **_options: Any) -> bool:
        launch = services.server_named(server).launch()
        _run(_refreshed(launch))
        row = services.server_named(server)
        counts = {state: row.tools.filter(pin_state=state).count() for state in PinState.values}
        self.stdout.write(
            f"{row.name}: {', '.join(f'{count} {state}' for state, count in counts.items() if count) or 'no tools'}."
        )
        waiting = services.acceptable(row)
        if waiting:
            self.stdout.write(f"To be accepted: {', '.join(map(visible, waiting))}. `servers accept {row.name} --show`")
        return not counts[PinState.QUARANTINED]

    def tools(self, *, server: str | None, json: bool, **_options: Any) -> bool:
        rows = Tool.objects.select_related("server").order_by("server__name", "name")
        if server is not None:
            rows = rows.filter(server=services.server_named(server))
        policy = current()
        found = [presentation.tool_object(tool, policy) for tool in rows]
        if json:
            return self._print_json(found)
        table = [presentation.tool_row(tool) for tool in found]
        return self._write_table(presentation.TOOL_HEADINGS, table, "There are no tools.")

    def accept(
        self, *, server: str, tool: list[str], effect_class: str | None, show: bool, user: str, **_options: Any
    ) -> bool:
        row = services.server_named(server)
        waiting = services.acceptable(row)
        self._say_what_can_not_be(row, tool, waiting)
        choices = {name: waiting[name] for name in (tool or waiting) if name in waiting}
        for found in row.tools.filter(name__in=list(choices)):
            self.stdout.write(f"{visible(str(found))}  ({found.quarantine_reason})")
            self._write(f"  {line}" for line in services.changes_of(found))
        if not choices:
            self.stdout.write("There is nothing to accept.")
            return not tool
        if show:
            return True
        person = approving_user(scope="operate", username=user)
        classes = dict.fromkeys(choices, effect_class) if effect_class else {}
        accepted = services.accept(row, choices, user=person, classes=classes)
        for found in accepted:
            self.stdout.write(f"Accepted {visible(str(found))} as {found.effect_class}, pin {found.pin[:12]}.")
        return len(choices) == len(tool or choices)

    def mark(self, *, server: str, tool: str, effect_class: str, **_options: Any) -> bool:
        row = services.server_named(server).tools.filter(name=tool).first()
        if row is None:
            raise MeahError("E_NOT_FOUND", f"The server {server} has no tool named {tool!r}.")
        services.mark(row, effect_class, principal=PRINCIPAL)
        self.stdout.write(f"{visible(str(row))} is a {effect_class} tool now.")
        return True

    async def _probed(self, launches: list[Any], chosen: GatewaySettings) -> dict[str, Probe]:
        def told(probe: Probe) -> None:
            if self.stderr.isatty():
                self.stderr.write(f"{visible(probe.server)}: {'listed' if probe.worked else 'failed'}")

        return await probe_all(
            launches,
            directory=run_directory(),
            home=Path(settings.MEAH_HOME),
            at_once=chosen.starts_at_once,
            limit_s=float(chosen.start_timeout_s),
            told=told,
        )

    def _say_what_can_not_be(self, row: Server, names: list[str], waiting: dict[str, str]) -> None:
        for tool in row.tools.filter(name__in=names) if names else row.tools.filter(pin_state=PinState.QUARANTINED):
            if tool.name not in waiting:
                why = services.why_not_acceptable(tool)
                self.stderr.write(visible(f"{tool} can not be accepted: {why}."))
        missing = set(names) - set(row.tools.values_list("name", flat=True))
        if missing:
            raise MeahError("E_NOT_FOUND", f"The server {row.name} has no tool named {', '.join(sorted(missing))}.")

    def _write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.stdout.write(line)

    def _write_table(self, headings: list[str], rows: list[list[str]], empty: str) -> bool:
        self._write(presentation.table([headings, *rows]) if rows else [empty])
        return True

    def _print_json(self, value: Any) -> bool:
        # ASCII: whatever servers wrote, nothing of it can do anything to a terminal.
        self.stdout.write(json.dumps(value, indent=2))
        return True


async def _refreshed(launch: Any) -> None:
    running = Gateway()
    await running.start()
    try:
        await running.pool.connection(launch).open()
    finally:
        await running.stop()


def _run(work: Any) -> Any:
    from audit import dbthread

    try:
        return asyncio.run(work)
    finally:
        dbthread.shutdown()


def _own(server: Server) -> dict[str, Any]:
    """What belongs under `meah` in an exported file."""
    own: dict[str, Any] = {"exposure": server.exposure, "prefix": server.prefix, "private": server.private or None}
    own["concurrent"] = server.concurrent or None
    own |= {"pinScope": server.pin_scope if server.pin_scope != "all" else None}
    for kind in ("read", "write", "destructive"):
        own[f"{kind}Default"] = getattr(server, f"{kind}_default")
    return {key: value for key, value in own.items() if value is not None}


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise MeahError("E_CONFIG", f"{file} can not be read: {error.strerror}.", hint="Check the path.") from error
