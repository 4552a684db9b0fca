"""One console for one installation, in whatever order its processes start: who comes later waits for the port."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Final
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from core.errors import MeahError
from meah_site.installation import installation_id
from meah_site.serve_web import HOST, bound_socket

LOOK_EVERY_S: Final = 1.0
ASK_WITHIN_S: Final = 2.0
MAX_ANSWER_BYTES: Final = 10_000


def bound_or_stand_by(port: int, *, on_standby: Callable[[], None], wanted: Callable[[], bool]) -> socket.socket | None:
    """A listening socket, at once or when this installation's own console has given the port up.

    None once it is not `wanted` any more. Raises MeahError E_CONFIG when somebody else holds the port.
    """
    told = False
    while wanted():
        try:
            return bound_socket(port)
        except MeahError:
            if not is_own_console(port) and not _is_free_by_now(port):
                raise
        if not told:
            on_standby()
            told = True
        time.sleep(LOOK_EVERY_S)
    return None


def is_own_console(port: int) -> bool:
    """Whether what answers there is a console of this very installation."""
    try:
        opener = build_opener(ProxyHandler({}))
        with opener.open(f"http://{HOST}:{port}/healthz", timeout=ASK_WITHIN_S) as answer:
            found = json.loads(answer.read(MAX_ANSWER_BYTES))
    except (OSError, URLError, ValueError):
        return False
    return isinstance(found, dict) and found.get("installation") == installation_id()


def _is_free_by_now(port: int) -> bool:
    """Its holder may have ended between the two questions."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
