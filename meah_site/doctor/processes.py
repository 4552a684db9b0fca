"""The processes that run here: who lives, who died, who has the port, whether the bell rings."""

from __future__ import annotations

import errno
import http.client
import json
import os
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from django.conf import settings

from approvals.models import Process
from approvals.processes import dead_among, is_alive
from core.bell import Bell, ring
from core.ids import PROCESS, new_id
from meah_site.doctor.findings import Check, Finding, Group, examined, info, ok, problem, warning
from meah_site.installation import installation_id
from meah_site.serve_web import HOST
from meah_site.version import version
from workers.models import Worker

WITHIN_S: Final = 3.0
MAX_ANSWER_BYTES: Final = 65_536


def examine(port: int, *, usable: bool) -> Group:
    """`usable`: whether the database can be asked."""
    about_rows: list[tuple[str, Check]] = [("processes", living), ("dead processes", dead)] if usable else []
    about_port = partial(held_port, port, console_lives=usable and _console_lives())
    return examined("Processes", *about_rows, (f"port {port}", about_port), ("bell", bell))


def living() -> Iterator[Finding]:
    rows = [process for process in Process.objects.order_by("started_at") if is_alive(process)]
    if not rows:
        yield info("processes", "none runs", "`make run` starts the console; MCP clients start `manage.py runmcp`.")
    for process in rows:
        name = process_name(process)
        principal = f" for {process.principal}" if process.principal else ""
        yield ok(name, f"{process.public_id}{principal}, since {process.started_at:%Y-%m-%d %H:%M} UTC")
        if process.version != version():
            yield warning(name, f"It runs MEAH {process.version}, this checkout is {version()}", "Restart it.")


def dead() -> Iterator[Finding]:
    """What processes left behind that ended without a goodbye; the next living one settles it."""
    rows = [process for process in Process.objects.all() if not is_alive(process)]
    owners = set(Worker.objects.active().order_by().values_list("owner", flat=True).distinct())
    orphans = Worker.objects.active().filter(owner__in=dead_among(owners)).count()
    if not rows and not orphans:
        yield ok("dead processes", "none left anything behind")
        return
    names = ", ".join(process_name(process) for process in rows[:5]) + (" …" if len(rows) > 5 else "")
    text = f"{len(rows)} left a row ({names}), " if rows else ""
    fix = "Any running MEAH process settles this within 10 s: start one, such as `make run`."
    yield warning("dead processes", f"{text}{orphans} workers are unfinished without a process", fix)


def process_name(process: Process) -> str:
    """Such as `runmcp 4711`, with its host where that is another one."""
    host = "" if process.host == socket.gethostname() else f"@{process.host}"
    return f"{process.kind} {process.pid}{host}"


def held_port(port: int, *, console_lives: bool) -> Iterator[Finding]:
    subject = f"port {port}"
    holder = _holder(port)
    if holder.who == "nobody":
        yield ok(subject, "free")
    elif holder.who == "us":
        yield ok(subject, f"this installation's console answers at http://{HOST}:{port}")
    elif holder.who == "refused":
        yield problem(subject, holder.what, f"Use a port above 1023: `make run PORT={max(port, 1023) + 1}`.")
    elif console_lives:
        text = f"held by {holder.what}; this installation's console runs on another port"
        yield info(subject, text, "`manage.py doctor --port` looks at that one.")
    else:
        fix = f"End that program, or take another port: `make run PORT={port + 1}` (`manage.py up --port {port + 1}`)."
        yield problem(subject, f"held by {holder.what}", fix)


@dataclass(frozen=True)
class Holder:
    """`who`: nobody, us, stranger, refused (the system does not give us this port)."""

    who: str
    what: str = ""


def _holder(port: int) -> Holder:
    try:
        answer = _healthz(port)
    except ConnectionRefusedError:
        return _bindable(port)
    except (OSError, http.client.HTTPException):
        return Holder("stranger", "a program that does not answer as MEAH does")
    if answer.get("status") != "ok":
        return Holder("stranger", "a web server that is not MEAH")
    if answer.get("installation") == installation_id():
        return Holder("us")
    return Holder("stranger", "the console of another MEAH installation")


def _healthz(port: int) -> dict[str, object]:
    """What the holder says about itself, {} where that is nothing we know.

    Raises OSError or HTTPException when it does not speak HTTP.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=WITHIN_S)
    try:
        connection.request("GET", "/healthz")
        answer = json.loads(connection.getresponse().read(MAX_ANSWER_BYTES))
    except ValueError:
        return {}
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else {}


def _bindable(port: int) -> Holder:
    """Nobody listens; whether we could."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return Holder("stranger", "a program that does not accept connections")
            return Holder("refused", f"can not be used: {error.strerror}")
    return Holder("nobody")


def bell() -> Iterator[Finding]:
    """Ring it for ourselves: over the same path and rights as every process."""
    own = Bell(Path(settings.MEAH_HOME), new_id(PROCESS))
    fix = "Check the rights of its directory. Without the bell everything works, up to a second later."
    try:
        own.open()
        ring(Path(settings.MEAH_HOME))
        heard, _, _ = select.select([own], [], [], 1.0)
        rung = bool(heard) and own.drain()
    except OSError as error:
        yield problem("bell", f"{own.path.parent}: {error.strerror or error}", fix)
        return
    finally:
        own.close()
    if rung:
        yield ok("bell", f"rings, in {own.path.parent}")
    else:
        yield problem("bell", f"not heard within a second, in {own.path.parent}", fix)


def _console_lives() -> bool:
    return any(is_alive(row) for row in Process.objects.filter(kind=Process.Kind.CONSOLE))


def this_user() -> str:
    """Whom this process runs as, by name where it has one."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"
