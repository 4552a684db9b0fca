"""Where a request may go: a provider that is not private is reached at public addresses only, and over TLS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from core.addresses import NotPublicError, public_addresses
from core.errors import MeahError
from workers.providers.base import Endpoint
from workers.providers.url import shown

_MAX_ADDRESSES: Final = 4


@dataclass(frozen=True)
class Target:
    """The URL to connect to, and the name that the server is called by (Host header, TLS)."""

    url: str
    host_header: str
    server_name: str


async def targets_of(url: str, endpoint: Endpoint) -> list[Target]:
    """The places to try, in order. A private endpoint is resolved by the HTTP library as usual.

    Raises MeahError E_CONFIG where the endpoint is not private and the URL is plain HTTP or leads inside,
    and OSError where the name has no address.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if endpoint.private:
        return [Target(url, parts.netloc, host)]
    if parts.scheme != "https":
        raise _refused(endpoint, f"{shown(url)} is not https")
    try:
        addresses = await public_addresses(host, parts.port or 443)
    except NotPublicError as error:
        raise _refused(endpoint, str(error)) from error
    return [Target(_at(parts, address), parts.netloc, host) for address in addresses[:_MAX_ADDRESSES]]


def _at(parts: SplitResult, address: str) -> str:
    host = f"[{address}]" if ":" in address else address
    netloc = f"{host}:{parts.port}" if parts.port else host
    return urlunsplit(parts._replace(netloc=netloc))


def _refused(endpoint: Endpoint, why: str) -> MeahError:
    variable = f"MEAH_PROVIDER_{endpoint.name.upper()}_PRIVATE=true"
    return MeahError(
        "E_CONFIG",
        f"The provider {endpoint.name} is not marked private, but {why}.",
        hint=f"Correct the base URL; if the server really stands in your own network, mark it private ({variable}).",
        reason="private_address",
    )
