"""The settings of listeners: their names, and what other settings list of networks and of listeners."""

from collections.abc import Collection
from typing import Final

from pybroker.security.networks import Network, networks

PORTS: Final = ("stomp", "openwire", "auto", "stomp_ssl", "openwire_ssl", "auto_ssl")
"""The settings that are ports of listeners."""

_TLS_SUFFIX = "_ssl"


def is_tls(name: str) -> bool:
    """Return True for the port of a listener with TLS."""
    return name.endswith(_TLS_SUFFIX)


def plain(name: str) -> str:
    """Return the port setting of a protocol without TLS."""
    return name.removesuffix(_TLS_SUFFIX)


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
