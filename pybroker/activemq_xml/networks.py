"""Reads `networkConnectors` into tables of `network`, and refuses bridges to other kinds of servers.

```xml
<networkConnector name="hub" uri="static:(tcp://hub:61616)" networkTTL="2">      [[network]]  name, uri, network_ttl
  <dynamicallyIncludedDestinations>
    <queue physicalName="TO.HUB.&gt;"/>                                          dynamically_included
  </dynamicallyIncludedDestinations>
</networkConnector>
```

Source: activemq-xml.md, section 9; ActiveMQ 5.17, `NetworkBridgeConfiguration`.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from pybroker.activemq_xml import connector_uri, destination_elements
from pybroker.activemq_xml.core_beans import beans_in
from pybroker.activemq_xml.elements import CORE, XmlElement
from pybroker.activemq_xml.reading import (
    Handler,
    Reading,
    Rule,
    Rules,
    ignored,
    ignored_element,
    read_attributes,
    read_properties,
    refused,
    refused_element,
    silent,
)
from pybroker.activemq_xml.values import flag, whole
from pybroker.broker.domain.network.properties import FLAGS, FORCED, LISTS, NUMBERS, is_forced_durable

_ADDRESS: Final = re.compile(r"[A-Za-z0-9+.]+://[^\s,()?;&]+", re.ASCII)
_STATIC: Final = ("static", "masterslave")
_SERVED: Final = ("static", "simple", "masterslave", "failover", "tcp", "nio", "ssl", "nio+ssl", "auto", "auto+ssl")
"""The schemes of a connector's URI that pybroker dials."""
_DEFAULT_NAME: Final = "NC"
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_INCLUDED: Final = ("dynamicallyIncludedDestinations", "staticallyIncludedDestinations", "durableDestinations")
_REMEDY: Final = "start with --without-network if they may"

_NUMBERS: Final = {"networkTTL": "network_ttl", **NUMBERS}
_TEXTS: Final = {
    "destinationFilter": "destination_filter",
    "clientIdToken": "client_id_token",
    "userName": "user_name",
    "remoteUserName": "remote_user_name",
}
_PASSWORDS: Final = {"password": "password", "remotePassword": "remote_password"}
_PREFIX: Final = "network"
"""The first part of the names of connectors' passwords among the secrets: `network/password/NAME`."""

_OWN_CLASS: Final = "an object of its own class is not run"
_SET_BY_BROKER: Final = "the broker sets it itself"
_NO_JMX: Final = "it is for JMX, or for the ids of connections"
_TLS: Final = "TLS of one connector is not read from here: write its settings into a [[network]] table"


def _read_discovery_uri(reading: Reading, element: XmlElement, name: str) -> None:
    if "uri" in element.attributes:
        reading.findings.ignore(element, "the attribute uri is read", name)


ATTRIBUTES: Final[Rules] = {
    **dict.fromkeys(("name", "uri", *FLAGS, *_NUMBERS, *_TEXTS, *_PASSWORDS), silent),  # read by `_read_connector`
    "discoveryURI": _read_discovery_uri,
    "checkDuplicateMessagesOnDuplex": ignored("a message that comes over a bridge again is recognised at all times"),
    "sslContext": refused(_TLS),
    **dict.fromkeys(("bridgeFactory", "connectionFilter", "discoveryAgent"), refused(_OWN_CLASS)),
    **dict.fromkeys(("brokerName", "brokerService", "brokerURL", "localUri"), ignored(_SET_BY_BROKER)),
    **dict.fromkeys(("gcDestinationViews", "gcSweepTime", "objectName", "useBrokerNameAsIdSees"), ignored(_NO_JMX)),
    "dispatchAsync": ignored("a slow remote broker never keeps other consumers waiting"),
}
"""The attributes of a connector."""

PROPERTIES: Final[dict[str, Handler]] = {
    "durableDestinations": ignored_element("the durable subscriptions of a bridge are those that the store has of it"),
    "sslContext": refused_element(_TLS),
    **dict.fromkeys(("bridgeFactory", "connectionFilter", "discoveryAgent"), refused_element(_OWN_CLASS)),
    **dict.fromkeys(("brokerService", "localUri"), ignored_element(_SET_BY_BROKER)),
    "objectName": ignored_element(_NO_JMX),
    **dict.fromkeys(("uri", "discoveryURI"), refused_element("write it as an attribute of the connector")),
}
"""The elements in a connector, besides its lists."""


def read(
    reading: Reading, element: XmlElement, *, is_left_out: bool = False, members: Collection[str] = frozenset()
) -> None:
    """Read `networkConnectors` into the setting `network`.

    Args:
        reading: gets the findings.
        element: the element.
        is_left_out: connectors are warnings, and not refused.
        members: the addresses, `HOST:PORT`, of the members of this pair.
    """
    own = _own_ports(reading)
    names: set[str] = set()
    for each in element:
        reading.followed.update(each.references.values())  # none is needed
    for each in element.children:
        if _is_needless(reading, each, members, own):
            reading.findings.warn(each, "needless: it leads to this broker itself, or to another member of its store")
        elif is_left_out or not _is_served(each):
            _refuse(reading, each, _why(each), is_left_out=is_left_out)
        elif not _has_addresses(each):
            reading.findings.refuse(each, "its uri has no list of addresses, as in static:(tcp://HOST:PORT)")
        elif "@" in _uri(each):
            reading.findings.refuse(each, "the uri has a user: write userName and password", "uri")
        elif (name := each.attributes.get("name", _DEFAULT_NAME)) in names:
            reading.findings.refuse(each, f"another connector is called {name!r} too: give each a name of its own")
        else:
            names.add(name)
            _read_connector(reading, each)


def _is_served(element: XmlElement) -> bool:
    return element.namespace == CORE and element.name == "networkConnector" and _scheme(element) in _SERVED


def _read_connector(reading: Reading, element: XmlElement) -> None:
    """Append the table of a connector."""
    table: dict[str, object] = {"name": element.attributes.get("name", _DEFAULT_NAME), "uri": _uri(element)}
    read_attributes(reading, element, {**ATTRIBUTES, **_table_rules(table)})
    for attribute, setting in _PASSWORDS.items():
        if attribute in element.attributes:
            reading.secrets[f"{_PREFIX}/{setting}/{table['name']}"] = element.attributes[attribute]
    lists = {name: _list_handler(table, setting) for name, setting in LISTS.items()}
    read_properties(reading, element, {**PROPERTIES, **lists})
    reading.append("network", table, element)


def has_passwords(secrets: Mapping[str, str]) -> bool:
    """Return True if there is a connector's password among the secrets."""
    return any(each.startswith(f"{_PREFIX}/") for each in secrets)


def with_passwords(settings: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return settings whose connectors have their passwords, which the settings of a reading are without."""
    found = dict(settings)
    if "network" in found:
        found["network"] = [each | _passwords(str(each["name"]), secrets) for each in found["network"]]
    return found


def _passwords(name: str, secrets: Mapping[str, str]) -> dict[str, str]:
    keys = {setting: f"{_PREFIX}/{setting}/{name}" for setting in _PASSWORDS.values()}
    return {setting: secrets[key] for setting, key in keys.items() if key in secrets}


def _table_rules(table: dict[str, object]) -> Rules:
    """Return the rules of the attributes that are settings of a table."""

    def rule(setting: str, convert: Callable[[str], object]) -> Rule:
        def read_one(_reading: Reading, element: XmlElement, name: str) -> None:
            table[setting] = convert(element.attributes[name])

        return read_one

    return {
        **{name: rule(setting, flag) for name, setting in FLAGS.items()},
        **{name: rule(setting, whole) for name, setting in _NUMBERS.items()},
        **{name: rule(setting, str) for name, setting in _TEXTS.items()},
    }


def _list_handler(table: dict[str, object], setting: str) -> Handler:
    """Return the handler of a list of destinations."""

    def read_list(reading: Reading, element: XmlElement) -> None:
        found: list[str] = []
        for each in beans_in(reading, element, "it is no destination"):
            is_forced = is_forced_durable(each.attributes.get("physicalName", ""))
            option = f"?{FORCED}" if setting != "excluded" and is_forced else ""
            names = destination_elements.destinations_of(reading, each)
            found += [f"{name}{option if name.is_topic else ''}" for name in names]
        if found:
            table[setting] = found

    return read_list


def read_uris(reading: Reading, element: XmlElement, *, is_left_out: bool = False) -> None:
    """Read `networkConnectorURIs`, `jmsBridgeConnectors` or `proxyConnectors`; arguments are those of `read`."""
    why = f"such connections to other brokers are not opened: what would flow stays; {_REMEDY}"
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
    return f"this connector is not opened: {stays}; {_remedy(element)}{hint}"


def _remedy(element: XmlElement) -> str:
    return _REMEDY if _is_served(element) else f"list the addresses, as in static:(tcp://HOST:PORT), or {_REMEDY}"


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


def _places(element: XmlElement) -> list[tuple[str, int | None]] | None:
    """Return the hosts and ports of a connector's addresses; None if one of them is no address."""
    addresses = [urlsplit(str(each)) for each in _ADDRESS.findall(_uri(element))]
    try:
        return [(each.hostname or "", each.port) for each in addresses]
    except ValueError:  # a port that is none
        return None


def _has_addresses(element: XmlElement) -> bool:
    places = _places(element)
    return bool(places) and all(host and port for host, port in places or ())


def _is_needless(reading: Reading, element: XmlElement, members: Collection[str], own: Collection[int]) -> bool:
    """Return True if it is known that all addresses of a connector are those of this broker, or of its members."""
    if element.name != "networkConnector" or _scheme(element) not in _STATIC:
        return False
    places = _places(element)
    others: Collection[str] = () if reading.is_in_memory else members  # whose members have no store in common
    return bool(places) and all(
        f"{host}:{port}" in others or (host in _LOCAL and port in own) for host, port in places or ()
    )


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
