"""Reads `networkConnectors`, and the bridges to other JMS servers: what would not flow without them.

Source: activemq-xml.md, section 9.
"""

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from pybroker.activemq_xml import connector_uri
from pybroker.activemq_xml.elements import CORE, XmlElement
from pybroker.activemq_xml.reading import Reading
from pybroker.activemq_xml.values import flag

_ADDRESS: Final = re.compile(r"[A-Za-z0-9+.]+://[^\s,()?;&]+", re.ASCII)
_STATIC: Final = ("static", "masterslave")
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_INCLUDED: Final = ("dynamicallyIncludedDestinations", "staticallyIncludedDestinations", "durableDestinations")
_REMEDY: Final = "start with --without-network if they may"


def read(
    reading: Reading, element: XmlElement, *, is_left_out: bool = False, members: Collection[str] = frozenset()
) -> None:
    """Read `networkConnectors`; it sets nothing.

    Args:
        reading: gets the findings.
        element: the element.
        is_left_out: connectors are warnings, and not refused.
        members: the addresses, `HOST:PORT`, of the members of this pair.
    """
    own = _own_ports(reading)
    for each in element:
        reading.followed.update(each.references.values())  # none is needed
    for each in element.children:
        if _is_needless(reading, each, members, own):
            reading.findings.warn(each, "needless: it leads to this broker itself, or to another member of its store")
        else:
            _refuse(reading, each, _why(each), is_left_out=is_left_out)


def read_uris(reading: Reading, element: XmlElement, *, is_left_out: bool = False) -> None:
    """Read `networkConnectorURIs`, `jmsBridgeConnectors` or `proxyConnectors`; arguments are those of `read`."""
    why = f"there are no connections to other brokers: what would flow stays; {_REMEDY}"
    _refuse(reading, element, why, is_left_out=is_left_out)


def _refuse(reading: Reading, element: XmlElement, why: str, *, is_left_out: bool) -> None:
    if is_left_out:
        reading.findings.warn(element, why)
    else:
        reading.findings.refuse(element, why)


def _why(element: XmlElement) -> str:
    """Return the sentence about a connector: the destinations whose messages would stay here."""
    names = sorted(set(_destinations(element)))
    stays = (
        f"messages for {', '.join(names)} would stay here" if names else "messages of all destinations would stay here"
    )
    if flag(element.attributes.get("duplex", "false")):
        stays += ", and those of the other broker there"
    hint = ""
    if _scheme(element) in _STATIC:
        hint = "; a connector to the other member of one shared store is needless, and may be removed"
    return f"there is no network of brokers: {stays}; {_REMEDY}{hint}"


def _destinations(element: XmlElement) -> list[str]:
    return [
        each.attributes.get("physicalName", "") or each.attributes.get("name", "")
        for held in element.children
        if held.namespace == CORE and held.name in _INCLUDED
        for each in held.children
        if each.attributes.get("physicalName") or each.attributes.get("name")
    ]


def _uri(element: XmlElement) -> str:
    return element.attributes.get("uri", element.attributes.get("discoveryURI", "")).strip()


def _scheme(element: XmlElement) -> str:
    return connector_uri.scheme_of(_uri(element))


def _is_needless(reading: Reading, element: XmlElement, members: Collection[str], own: Collection[int]) -> bool:
    """Return True if it is known that all addresses of a connector are those of this broker, or of its members."""
    if element.name != "networkConnector" or _scheme(element) not in _STATIC:
        return False
    addresses = [urlsplit(str(each)) for each in _ADDRESS.findall(_uri(element))]
    try:
        places = [(each.hostname or "", each.port) for each in addresses]
    except ValueError:  # a port that is none, so nothing is known
        return False
    others: Collection[str] = () if reading.is_in_memory else members  # whose members have no store in common
    return bool(places) and all(f"{host}:{port}" in others or (host in _LOCAL and port in own) for host, port in places)


def _own_ports(reading: Reading) -> frozenset[int]:
    """Return the ports on which this broker listens."""
    found: set[int] = set()
    for each in reading.file.broker:
        if each.name == "transportConnector" and each.namespace == CORE:
            try:
                uri = connector_uri.parse(each.attributes.get("uri", ""))
            except ValueError:  # it is refused where connectors are read
                continue
            found.add(uri.port if uri.port is not None else connector_uri.DEFAULT_PORTS["openwire"])
    return frozenset(found)
