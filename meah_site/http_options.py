"""What `runmcp` can be told about HTTP; read before anything is imported that serves it."""

from __future__ import annotations

import ipaddress
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from core.errors import MeahError

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8080


@dataclass(frozen=True)
class HttpOptions:
    """As given on the command line; `hosts` and `origins` on top of the settings'."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    authenticate: bool = True
    origins: Sequence[str] = ()
    hosts: Sequence[str] = ()
    allow_writes: bool = False

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def url(self) -> str:
        return f"http://{in_url(self.host)}:{self.port}/mcp"


def add_arguments(parser: ArgumentParser) -> None:
    """Those of `runmcp` that only mean something with `--transport http`."""
    parser.add_argument("--transport", choices=["stdio", "http"], default="stdio", help="default stdio")
    parser.add_argument("--host", type=_address, default=DEFAULT_HOST, help=f"http: address, default {DEFAULT_HOST}")
    parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help=f"http: port, default {DEFAULT_PORT}")
    parser.add_argument("--no-auth", action="store_true", help="http: let anybody on this machine in; loopback only")
    parser.add_argument(
        "--allow-origin", action="append", type=_origin, default=[], metavar="ORIGIN",
        help="http: let pages of this origin in, such as https://app.example.com; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--allow-host", action="append", type=_host, default=[], metavar="HOST",
        help="http: answer to this Host too, with a port or without; repeatable",
    )  # fmt: skip


def options_of(given: dict[str, Any]) -> HttpOptions:
    """Of parsed arguments. Raises MeahError E_CONFIG for what contradicts itself."""
    if given["role"] != "agent":
        raise MeahError(
            "E_CONFIG",
            "--role means nothing with --transport http.",
            hint="There each token's scope says what is served: `agent`, or `approve` for the approver role.",
        )
    return HttpOptions(
        host=given["host"],
        port=given["port"],
        authenticate=not given["no_auth"],
        origins=given["allow_origin"],
        hosts=given["allow_host"],
        allow_writes=given["allow_writes"],
    )


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _address(text: str) -> str:
    if text == "localhost":
        return DEFAULT_HOST
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no IP address: 127.0.0.1 for this machine, 0.0.0.0 for all") from None


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) < 65_536:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is no port: a port is a number from 1 to 65535")


def _origin(text: str) -> str:
    """As browsers write it: scheme, host, and a port only where it is not the scheme's own."""
    parts = urlsplit(text)
    if parts.scheme and parts.netloc and f"{parts.scheme}://{parts.netloc}" == text and text == text.lower():
        return text
    raise ArgumentTypeError(f"{text!r} is no origin: https://app.example.com, in lower case, without a path")


def _host(text: str) -> str:
    parts = urlsplit(f"//{text}")
    if text and parts.netloc == text and parts.hostname and "@" not in text and "*" not in text:
        return text.lower()
    raise ArgumentTypeError(f"{text!r} is no host: meah.example.com or meah.example.com:8443")
