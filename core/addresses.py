"""Which network addresses are public, whatever form they are wrapped in, and how a name is looked up just once."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class NotPublicError(Exception):
    """The host leads to an address that is not public."""


async def public_addresses(host: str, port: int) -> list[str]:
    """The addresses of a host, looked up now: connect to one of them, so that no second look-up says otherwise.

    Raises NotPublicError where one of them is not public, OSError where there is none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(info[4][0]).partition("%")[0] for info in found))
    for address in addresses:
        if not is_public(ipaddress.ip_address(address)):
            raise NotPublicError(f"{host} has the address {address}, which is not public")
    return addresses


def is_public(address: Address) -> bool:
    """Whether it is reachable from anywhere: not loopback, not private, not link-local, not multicast."""
    inner = _unwrapped(address)
    return inner.is_global and not inner.is_multicast


def is_local_name(host: str) -> bool:
    """Whether a host name or literal means this very machine by its spelling alone."""
    if host.rstrip(".").lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return _unwrapped(ipaddress.ip_address(host.strip("[]"))).is_loopback
    except ValueError:
        return False


def _unwrapped(address: Address) -> Address:
    """The address, or the IPv4 one that it carries inside."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped:
        return address.ipv4_mapped
    if address.sixtofour:
        return address.sixtofour
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
