"""The networks from which clients may connect, by the lists `deny` and `allow`."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from pybroker.broker.domain.addresses import parsed

Network = IPv4Network | IPv6Network


class Networks:
    """Decides if an address may connect: not from a denied network, and from an allowed one if any are listed."""

    def __init__(self, *, allow: Sequence[Network], deny: Sequence[Network]) -> None:
        self._allow: Final = tuple(allow)
        self._deny: Final = tuple(deny)

    def allows(self, address: str) -> bool:
        """Return True if a client at this address may connect. An address of IPv4 in IPv6 form counts as IPv4."""
        found = parsed(address)
        if found is None:
            return not self._allow and not self._deny
        if any([found in network for network in self._deny]):
            return False
        return not self._allow or any([found in network for network in self._allow])


def networks(text: str) -> list[Network]:
    """Return the networks of a list, such as `10.0.0.0/8, 192.168.1.7, fd00::/8`.

    Raises:
        ValueError: one is no network, such as an address with a mask that cuts off a part of it.
    """
    return [ip_network(each.strip()) for each in text.split(",") if each.strip()]
