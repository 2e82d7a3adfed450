"""The addresses of clients: parsed, as limits count them, and as logs show them."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, cast

_IPV6_PREFIX: Final = 64


def parsed(address: str) -> IPv4Address | IPv6Address | None:
    """Return an address, one of IPv4 in IPv6 form as IPv4; None for a text that is none. A scope is ignored."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped if isinstance(found, IPv6Address) else None) or found


def peer_name(address: object) -> str:
    """Return the other end of a TCP connection as `HOST:PORT` or `[IPv6]:PORT`; of others what Python says.

    Args:
        address: from `socket.getpeername`, or asyncio's `peername`.
    """
    if not isinstance(address, tuple):
        return str(address)
    host, port = cast("tuple[object, ...]", address)[:2]
    return f"{in_url(str(host))}:{port}"


def in_url(host: str) -> str:
    """Return an address in the form of URLs: one of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def network(address: str) -> str:
    """Return what limits count as one address: an IPv4 address, or the first half of an IPv6 address.

    One host has that half for itself. An IPv4 address in IPv6 form is an IPv4 address.
    """
    found = parsed(address)
    if found is None:
        return address
    if isinstance(found, IPv6Address):
        return str(IPv6Network((found, _IPV6_PREFIX), strict=False).network_address)
    return str(found)


def is_loopback(address: str) -> bool:
    """Return True for an address that only programs of the same host reach and have."""
    found = parsed(address)
    return address == "localhost" if found is None else found.is_loopback


def host_of(peer: str) -> str:
    """Return the address of a connection's other end, which is written `10.0.0.7:50312` or `[fd00::7]:50312`."""
    return peer.rpartition(":")[0].strip("[]") or peer
