"""Parses the addresses of clients."""

from ipaddress import IPv4Address, IPv6Address, ip_address


def parsed(address: str) -> IPv4Address | IPv6Address | None:
    """Return an address, one of IPv4 in IPv6 form as IPv4; None for a text that is none. A scope is ignored."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped if isinstance(found, IPv6Address) else None) or found
