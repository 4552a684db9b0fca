"""Where a request may go: a provider that is not private is reached at public addresses only, and over TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from core.errors import MeahError
from workers.providers.base import Endpoint
from workers.providers.url import shown

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
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
    addresses = await _addresses(host, parts.port or 443)
    for address in addresses:
        if not _is_public(ipaddress.ip_address(address)):
            raise _refused(endpoint, f"{host} has the address {address}, which is not public")
    return [Target(_at(parts, address), parts.netloc, host) for address in addresses[:_MAX_ADDRESSES]]


async def _addresses(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]).partition("%")[0] for info in found))


def _is_public(address: _Address) -> bool:
    return all(inner.is_global and not inner.is_multicast for inner in _unwrapped(address))


def _unwrapped(address: _Address) -> list[_Address]:
    """The address, or the IPv4 ones that it carries inside."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped:
        return [address.ipv4_mapped]
    if address.sixtofour:
        return [address.sixtofour]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address]


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
