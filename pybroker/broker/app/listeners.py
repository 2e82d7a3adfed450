"""The settings of listeners: one value for each, and what other settings list of networks and of listeners."""

import enum
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from pybroker.security.networks import Network, networks


class ListenerKind(enum.Enum):
    """The protocol that a listener serves."""

    STOMP = "stomp"
    OPENWIRE = "openwire"
    AUTO = "auto"
    """Detected by the first bytes of each client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The settings of one listener.

    Attributes:
        name: the name in errors and warnings: that of the setting which opens it.
        kind: the protocol that it serves.
        is_tls: its connections are encrypted.
        host: the address that it binds to.
        port: the port; 0: any free one.
        frame_max: most bytes of a frame or a body.
        max_inactivity: seconds of silence that an OpenWire client is offered.
        initial_delay: seconds before an OpenWire client's silence is measured.
        is_for_proxies: it serves proxies only, whose connections begin with a header of the PROXY protocol.
    """

    name: str
    kind: ListenerKind
    is_tls: bool
    host: str
    port: int
    frame_max: int
    max_inactivity: float
    initial_delay: float
    is_for_proxies: bool


PORTS: Final = {
    "stomp": (ListenerKind.STOMP, False),
    "openwire": (ListenerKind.OPENWIRE, False),
    "auto": (ListenerKind.AUTO, False),
    "stomp_ssl": (ListenerKind.STOMP, True),
    "openwire_ssl": (ListenerKind.OPENWIRE, True),
    "auto_ssl": (ListenerKind.AUTO, True),
}
"""The settings that are ports of listeners: the protocol of each, and True for one with TLS."""


def networks_of(setting: str, text: str | None) -> list[Network]:
    """Return the networks of a setting.

    Raises:
        ValueError: one is no network.
    """
    try:
        return networks(text or "")
    except ValueError as error:
        raise ValueError(f"{setting}: {error}; write for example 10.0.0.0/8, 192.168.1.7") from error


def proxied_of(proxy_protocol: str, proxy_networks: str | None, ports: Collection[str]) -> frozenset[str]:
    """Return the listeners that serve proxies.

    Raises:
        ValueError: a name is not that of an open port, or it is not set which proxies are trusted.
    """
    names = frozenset(each.strip() for each in proxy_protocol.split(",") if each.strip())
    for name in sorted(names.difference(ports)):
        raise ValueError(f"proxy_protocol: {name!r} is not an open port; open are {', '.join(ports) or 'none'}")
    if bool(names) != bool(networks_of("proxy_networks", proxy_networks)):
        raise ValueError(
            "proxy_protocol and proxy_networks go together: the listeners for proxies, and the addresses of those that "
            "are trusted"
        )
    return names
