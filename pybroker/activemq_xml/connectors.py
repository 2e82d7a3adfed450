"""Reads `transportConnectors`: the listeners.

Where the settings for one listener of a kind say the same, they are used, as a person would write them; otherwise there
is an entry of `[[listeners]]` for each connector.

Source: activemq-xml.md, section 4.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pybroker.activemq_xml import connector_uri
from pybroker.activemq_xml.connector_uri import SCHEMES, ConnectorScheme
from pybroker.activemq_xml.elements import CORE, XmlElement
from pybroker.activemq_xml.reading import Reading, Rules, ignored, read_attributes, silent, warned
from pybroker.activemq_xml.values import duration, flag, is_member_name
from pybroker.broker.domain.network.cluster import ClusterFilter
from pybroker.units import format_size

CONNECTIONS_MAX: Final = 1000
"""pybroker's default of the setting `connections_max`."""

_OF_WEBSOCKET: Final = (
    "STOMP, MQTT and AMQP are served over WebSocket, and to pages of its own host alone: list the origins of others in "
    "websocket_origins"
)

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")
_SCHEME: Final = "tcp"
"""No name of a listener in pybroker."""

_CLUSTER: Final = {
    "updateClusterClients": "update_cluster_clients",
    "rebalanceClusterClients": "rebalance_cluster_clients",
    "updateClusterClientsOnRemove": "update_cluster_clients_on_remove",
    "updateClusterFilter": "update_cluster_filter",
}
"""The settings of the attributes that concern networks of brokers; the last one is a text, the others are switches."""
_CLUSTER_ATTRIBUTES: Final = {setting: attribute for attribute, setting in _CLUSTER.items()}
_WEBSOCKET: Final = "ws"
_MQTT: Final = "mqtt"
_AMQP: Final = "amqp"
_HEART_BEATS: Final = "STOMP clients ask for heart-beats themselves"
_KEEP_ALIVES: Final = "MQTT clients choose their keep-alive themselves"
_WITHOUT_OPENWIRE: Final = {
    "stomp": _HEART_BEATS,
    _MQTT: _KEEP_ALIVES,
    _AMQP: "the silence that AMQP clients are allowed is wireFormat.idelTimeout",
    _WEBSOCKET: _HEART_BEATS,
}
"""The protocols that have no OpenWire, and why its option for silent clients does not concern them."""
_WITH_MQTT: Final = (_MQTT, "auto", _WEBSOCKET)
_WITH_AMQP: Final = (_AMQP, "auto", _WEBSOCKET)
_TRANSFORMERS: Final = ("native", "jms", "raw")
_STRATEGIES: Final = ("mqtt-default-subscriptions", "mqtt-virtual-topic-subscriptions")
_NO_URI: Final = "it has no uri, and ActiveMQ does not start without: write it, such as tcp://0.0.0.0:61616"
_TUNING: Final = "how ActiveMQ handles sockets and threads"


@dataclass(slots=True)
class _Connector:
    """One connector.

    Attributes:
        element: its element.
        scheme: the listener that its scheme and the protocols that it detects stand for.
        host: the address to bind to.
        port: 0 for any free one.
        settings: the settings that its options ask for.
        client_auth: `need` or `want` a certificate of the client; else empty.
    """

    element: XmlElement
    scheme: ConnectorScheme
    host: str
    port: int
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    client_auth: str = ""

    @property
    def setting(self) -> str:
        """The setting that is the port of such a listener."""
        return f"{self.scheme.protocol}_ssl" if self.scheme.is_tls else self.scheme.protocol


_Option = Callable[[Reading, _Connector, str, str], None]
"""Reads an option, given its name and its value.

Raises:
    ValueError: the value is not valid.
"""


def _ignored(why: str) -> _Option:
    def read(reading: Reading, connector: _Connector, name: str, _value: str) -> None:
        reading.findings.ignore(connector.element, why, at=name)

    return read


def _warned(why: str) -> _Option:
    def read(reading: Reading, connector: _Connector, name: str, _value: str) -> None:
        reading.findings.warn(connector.element, why, at=name)

    return read


def _connections(_reading: Reading, connector: _Connector, _name: str, value: str) -> None:
    connector.settings["connections_max"] = connector_uri.count(value)


def _frame(reading: Reading, connector: _Connector, name: str, value: str) -> None:
    size = format_size(connector_uri.count(value))
    if connector.scheme.protocol == _WEBSOCKET:
        reading.findings.ignore(connector.element, "in ActiveMQ it has no effect on WebSocket", at=name)
    else:
        connector.settings["frame_max"] = size


def _openwire_time(setting: str) -> _Option:
    """Return the reader of a time that OpenWire alone has; STOMP's clients ask for heart-beats themselves."""

    def read(reading: Reading, connector: _Connector, name: str, value: str) -> None:
        if connector.scheme.protocol in _WITHOUT_OPENWIRE:
            reading.findings.ignore(connector.element, _WITHOUT_OPENWIRE[connector.scheme.protocol], at=name)
        else:
            connector.settings[setting] = duration(value)

    return read


def _monitor(reading: Reading, connector: _Connector, name: str, value: str) -> None:
    if value not in ("true", "false"):
        raise ValueError("it must be true or false")
    if not flag(value) and connector.scheme.protocol == _AMQP:
        connector.settings["amqp_max_inactivity"] = "0"
    elif not flag(value):
        _openwire_time("openwire_max_inactivity")(reading, connector, name, "0")


def _client_auth(kind: str) -> _Option:
    def read(_reading: Reading, connector: _Connector, _name: str, value: str) -> None:
        if value not in ("true", "false"):
            raise ValueError("it must be true or false")
        if flag(value) and connector.client_auth != "need":
            connector.client_auth = kind

    return read


def _protocols(reading: Reading, connector: _Connector, name: str, value: str) -> None:
    versions = {each.strip() for each in value.split(",")}
    if not versions & {"TLSv1.2", "TLSv1.3"}:
        raise ValueError("pybroker speaks TLS 1.2 and 1.3, and none of these")
    if "TLSv1.2" not in versions:
        connector.settings["tls_version_min"] = "1.3"
    reading.findings.warn(connector.element, "TLS 1.2 is the least in any case", at=name)


def _detected(reading: Reading, connector: _Connector, name: str, value: str) -> None:
    """Read the protocols that an `auto` connector detects: `all`, or some of `default`, `stomp`, `amqp`, `mqtt`."""
    names = {each.strip() for each in value.split(",") if each.strip()}
    if connector.scheme.protocol != "auto":
        reading.findings.ignore(connector.element, "a connector of one protocol detects none", at=name)
    elif names and "all" not in names:
        served = [_DETECTED[each] for each in names if each in _DETECTED]
        if not served:
            raise ValueError("it has neither default, which is OpenWire, nor stomp, amqp or mqtt")
        if len(served) == 1:
            connector.scheme = connector.scheme._replace(protocol=served[0])


def _of(protocols: Collection[str], why: str, read: _Option) -> _Option:
    """Return the reader of an option that some protocols have; for others it is ignored."""

    def read_of(reading: Reading, connector: _Connector, name: str, value: str) -> None:
        if connector.scheme.protocol in protocols:
            read(reading, connector, name, value)
        else:
            reading.findings.ignore(connector.element, why, at=name)

    return read_of


def _mqtt(read: _Option) -> _Option:
    """Return the reader of an option that MQTT alone has."""
    return _of(_WITH_MQTT, "it concerns MQTT alone", read)


def _amqp(read: _Option) -> _Option:
    """Return the reader of an option that AMQP alone has."""
    return _of(_WITH_AMQP, "it concerns AMQP alone", read)


def _transformer(reading: Reading, connector: _Connector, name: str, value: str) -> None:
    if value not in _TRANSFORMERS:
        reading.findings.warn(connector.element, f"{value!r} is no transformer: ActiveMQ takes native then", at=name)
    connector.settings["amqp_transformer"] = value if value in _TRANSFORMERS else "native"


def _idle(_reading: Reading, connector: _Connector, _name: str, value: str) -> None:
    connector.settings["amqp_max_inactivity"] = duration(value)


def _strategy(_reading: Reading, connector: _Connector, _name: str, value: str) -> None:
    if value not in _STRATEGIES:
        raise ValueError(f"ActiveMQ has {' and '.join(_STRATEGIES)}")
    connector.settings["mqtt_subscription_strategy"] = value


_LOGGING: Final = ("startLogging", "logWriterName", "dynamicManagement", "jmxPort")
_AUTO_PROTOCOLS: Final = "auto.protocols"
_DETECTED: Final = {"default": "openwire", "stomp": "stomp", "amqp": "amqp", "mqtt": "mqtt"}
_OPTIONS: Final[Mapping[str, _Option]] = {
    _AUTO_PROTOCOLS: _detected,
    "maximumConnections": _connections,
    "wireFormat.maxFrameSize": _frame,
    "wireFormat.maxInactivityDuration": _openwire_time("openwire_max_inactivity"),
    "wireFormat.maxInactivityDurationInitalDelay": _openwire_time("openwire_initial_delay"),
    "transport.useInactivityMonitor": _monitor,
    "needClientAuth": _client_auth("need"),
    "transport.needClientAuth": _client_auth("need"),
    "wantClientAuth": _client_auth("want"),
    "transport.wantClientAuth": _client_auth("want"),
    "enabledProtocols": _protocols,
    "transport.enabledProtocols": _protocols,
    **dict.fromkeys(
        ("enabledCipherSuites", "transport.enabledCipherSuites"),
        _warned("Java's names of ciphers are not read: set tls_ciphers with OpenSSL's"),
    ),
    "transport.hbGracePeriodMultiplier": _ignored("the grace of heart-beats is fixed"),
    "transport.defaultHeartBeat": _warned("a STOMP client that asks for no heart-beats has none, and may be silent"),
    **dict.fromkeys(
        ("wireFormat.maxDataLength", "transport.maxDataLength"),
        _warned("there is one limit, for bodies and frames: set frame_max, or wireFormat.maxFrameSize"),
    ),
    **dict.fromkeys(
        (f"wireFormat.{each}.maxFrameSize" for each in _DETECTED),
        _warned("a listener has one limit for all protocols: set frame_max, or wireFormat.maxFrameSize"),
    ),
    **dict.fromkeys(
        ("transport.connectAttemptTimeout", "wireFormat.connectionAttemptTimeout", "protocolDetectionTimeOut"),
        _ignored("connect_timeout is the time for a client's first frame"),
    ),
    "transport.closeAsync": _ignored("how a socket is closed"),
    **dict.fromkeys(
        (
            *(f"transport.{each}" for each in ("soTimeout", "soWriteTimeout", "trace", "tcpNoDelay", "keepAlive")),
            *(f"transport.{each}" for each in ("threadName", "soLinger", "socketBufferSize", "ioBufferSize")),
            *("socketBufferSize", "ioBufferSize", "backlog", "connectionTimeout", "daemon", "trace", "soTimeout"),
            *("useQueueForAccept", "keepAlive", "tcpNoDelay", "joinOnStop", "stackSize", "maxConnectionThreadPoolSize"),
            *(f"{prefix}{each}" for prefix in ("", "transport.") for each in _LOGGING),
            *(f"transport.{each}" for each in ("useLocalHost", "diffServ", "typeOfService")),
        ),
        _ignored(_TUNING),
    ),
    **dict.fromkeys(
        (
            *(f"wireFormat.{each}" for each in ("tightEncodingEnabled", "cacheEnabled", "cacheSize", "version")),
            *(f"wireFormat.{each}" for each in ("stackTraceEnabled", "tcpNoDelayEnabled", "sizePrefixDisabled")),
            *(f"wireFormat.{each}" for each in ("host", "maxFrameSizeEnabled", "providerName", "platformDetails")),
        ),
        _ignored("client and broker agree on the wire format"),
    ),
    **dict.fromkeys(
        ("websocket.maxTextMessageSize", "websocket.maxBinaryMessageSize"),
        _warned("a message over WebSocket may be as long as any other: set frame_max"),
    ),
    "websocket.maxIdleTime": _ignored("clients ask for heart-beats themselves"),
    "http.enableTrace": _ignored("TRACE is not served"),
    "http.enableCors": _ignored("there is nothing to fetch: see websocket_origins"),
    "transport.maxFrameSize": _of((_MQTT, _AMQP, "auto", _WEBSOCKET), "it concerns MQTT and AMQP alone", _frame),
    **dict.fromkeys(("transport.transformer", "wireFormat.transformer"), _amqp(_transformer)),
    **dict.fromkeys(
        (f"{prefix}.{each}" for prefix in ("wireFormat", "transport") for each in ("idelTimeout", "idleTimeout")),
        _amqp(_idle),
    ),
    **dict.fromkeys(
        ("transport.producerCredit", "wireFormat.producerCredit"),
        _amqp(_warned("the credit of producers is fixed: 1,000 messages")),
    ),
    "wireFormat.maxAmqpFrameSize": _amqp(_ignored("client and broker agree on the size of frames")),
    "wireFormat.allowNonSaslConnections": _amqp(_ignored("a client without SASL is one without a name")),
    "wireFormat.connectAttemptTimeout": _amqp(_ignored("connect_timeout is the time until open")),
    "transport.defaultKeepAlive": _mqtt(_warned("a client that chooses no keep-alive has none, and may be silent")),
    "transport.activeMQSubscriptionPrefetch": _mqtt(
        _warned("set topic_prefetch and durable_topic_prefetch of a policy")
    ),
    "transport.publishDollarTopics": _mqtt(_warned("topics that begin with $ are served in any case")),
    "transport.subscriptionStrategy": _mqtt(_strategy),
    "transport.prefetch": _warned("there is no prefetch of a listener: set that of a policy"),
}


def _option(name: str) -> _Option:
    if name.startswith("jms."):
        return _ignored("an option of clients has no effect in a broker")
    return _OPTIONS.get(
        name,
        _warned("it is no option that pybroker knows of ActiveMQ's, and has no effect"),
    )


ATTRIBUTES: Final[Rules] = {
    "name": silent,
    "uri": silent,
    **dict.fromkeys(_CLUSTER, silent),
    "discoveryUri": warned("nothing is announced: name the members in openwire_brokers"),
    "discoveryAgent": warned("nothing is announced: name the members in openwire_brokers"),
    "publishedAddressPolicy": warned("clients get openwire_url"),
    "allowLinkStealing": warned("the client that holds a client id keeps it", unless=("false", "0")),
    "maximumConsumersAllowedPerConnection": warned("there is no such limit of a listener"),
    "maximumProducersAllowedPerConnection": warned("there is no such limit of a listener"),
    "messageAuthorizationPolicy": warned("a policy of its own class is not run"),
    "auditNetworkProducers": ignored("messages that come again are always recognised"),
    **dict.fromkeys(
        (
            *("brokerInfo", "brokerService", "disableAsyncDispatch", "displayStackTrace", "enableStatusMonitor"),
            *("server", "taskRunnerFactory", "warnOnRemoteClose"),
        ),
        ignored(_TUNING),
    ),
}


def read(reading: Reading, element: XmlElement, *, are_all_required: bool) -> None:
    """Read the element `transportConnectors`.

    Args:
        reading: gets the settings.
        element: the element.
        are_all_required: a connector that pybroker does not serve is refused, and not a warning.
    """
    found: list[_Connector] = []
    for each in element.children:
        if each.namespace == CORE and each.name == "transportConnector":
            read_attributes(reading, each, ATTRIBUTES)
            connector = _connector(reading, each, are_all_required=are_all_required)
            if connector is not None:
                found.append(connector)
    if not found:
        reading.findings.refuse(element, "it has no connector that pybroker serves: clients could not connect")
    elif _are_of_one_kind_each(found):
        _set_ports(reading, found)
    else:
        _set_table(reading, found)


def _connector(reading: Reading, element: XmlElement, *, are_all_required: bool) -> _Connector | None:
    if "uri" not in element.attributes:
        if not any(reading.findings.is_refused(element, each) for each in element.attributes):  # else it is misspelt
            reading.findings.refuse(element, _NO_URI)
        return None
    text = element.attributes["uri"]
    scheme = connector_uri.scheme_of(text)
    if scheme == "vm":
        reading.findings.ignore(element, "no client runs within pybroker")
        return None
    served = SCHEMES.get(scheme)
    if served is None:
        _tell_unserved(reading, element, scheme, are_all_required=are_all_required)
        return None
    try:
        uri = connector_uri.parse(text)
    except ValueError as error:
        reading.findings.refuse(element, f"uri: {error}", "uri")
        return None
    if served.protocol == _WEBSOCKET:
        reading.findings.warn(element, _OF_WEBSOCKET)
    port = connector_uri.DEFAULT_PORTS[served.protocol] if uri.port is None else uri.port
    connector = _Connector(element, served, uri.host, port)
    for name in sorted(uri.options, key=lambda each: each != _AUTO_PROTOCOLS):  # others depend on the protocol
        try:
            _option(name)(reading, connector, name, uri.options[name])
        except ValueError as error:
            reading.findings.refuse(element, str(error), at=name)
    _read_cluster(reading, connector)
    return connector


def _read_cluster(reading: Reading, connector: _Connector) -> None:
    """Read the attributes that concern networks of brokers; OpenWire clients alone get addresses."""
    element = connector.element
    for attribute, setting in _CLUSTER.items():
        text = element.attributes.get(attribute, "").strip()
        if not text or reading.findings.is_refused(element, attribute):
            continue
        if connector.scheme.protocol in _WITHOUT_OPENWIRE:
            reading.findings.ignore(element, "OpenWire clients alone get addresses of other brokers", attribute)
        elif attribute == "updateClusterFilter":
            try:
                ClusterFilter(text)
            except ValueError as error:
                reading.findings.refuse(element, str(error), attribute)
            else:
                connector.settings[setting] = text
        elif flag(text):
            connector.settings[setting] = True


def _tell_unserved(reading: Reading, element: XmlElement, scheme: str, *, are_all_required: bool) -> None:
    if scheme.partition("+")[0] not in connector_uri.OTHER_PROTOCOLS:
        reading.findings.refuse(element, "ActiveMQ has no such scheme of a connector", "uri")
    elif are_all_required:
        reading.findings.refuse(element, "pybroker does not serve it, and all connectors are required")
    else:
        reading.findings.warn(element, "not opened: pybroker serves OpenWire, STOMP, MQTT, AMQP and WebSocket")


def _are_of_one_kind_each(connectors: list[_Connector]) -> bool:
    """Return True if the settings for one listener of each kind say what these connectors say."""
    kinds = {each.setting for each in connectors}
    if len(kinds) < len(connectors) or len({each.host for each in connectors}) > 1:
        return False
    tls = [each for each in connectors if each.scheme.is_tls]
    if len({(each.client_auth, each.settings.get("tls_version_min")) for each in tls}) > 1:
        return False
    openwire = [each for each in connectors if each.scheme.protocol not in _WITHOUT_OPENWIRE]
    devices = [each for each in connectors if each.scheme.protocol in _WITH_MQTT]
    amqp = [each for each in connectors if each.scheme.protocol in _WITH_AMQP]
    framed = [each for each in connectors if each.scheme.protocol != _WEBSOCKET]
    return (
        _agree("frame_max", framed)
        and _agree("connections_max", connectors)
        and _agree("mqtt_subscription_strategy", devices)
        and all(map(partial(_agree, connectors=openwire), ("openwire_max_inactivity", "openwire_initial_delay")))
        and all(map(partial(_agree, connectors=openwire), _CLUSTER.values()))
        and all(map(partial(_agree, connectors=amqp), ("amqp_transformer", "amqp_max_inactivity")))
    )


def _agree(setting: str, connectors: list[_Connector]) -> bool:
    return len({each.settings.get(setting) for each in connectors}) <= 1


def _set_ports(reading: Reading, connectors: list[_Connector]) -> None:
    reading.set("bind", connectors[0].host, connectors[0].element, "uri")
    for each in connectors:
        reading.set(each.setting, each.port, each.element, "uri")
        for setting, value in each.settings.items():
            if setting != "connections_max":
                reading.set(setting, value, each.element, _CLUSTER_ATTRIBUTES.get(setting, "uri"))
        if each.scheme.is_tls:
            reading.client_auth = each.client_auth
    for setting in ("openwire", "stomp"):
        if setting not in reading.settings:
            reading.set(setting, "off", connectors[0].element)
    _set_connections(reading, connectors)


def _set_connections(reading: Reading, connectors: list[_Connector]) -> None:
    """Set the limit of all connections to the sum of the connectors' limits, so that none takes the place of another.

    A connector without one has none in ActiveMQ; it adds pybroker's default.
    """
    limits = [each.settings.get("connections_max") for each in connectors]
    if any(each is not None for each in limits):
        total = sum(CONNECTIONS_MAX if each is None else each for each in limits)
        reading.set("connections_max", total, connectors[0].element, "uri")


def _set_table(reading: Reading, connectors: list[_Connector]) -> None:
    names: set[str] = set()
    for each in connectors:
        entry = {"protocol": each.scheme.protocol, "host": each.host, "port": each.port}
        name = _NOT_IN_NAMES.sub("-", each.element.attributes.get("name", ""))
        if name not in names and name != _SCHEME and is_member_name(name):
            names.add(name)
            entry = {"name": name} | entry
        if each.scheme.is_tls:
            entry |= {"tls": True, "tls_client_auth": each.client_auth or "none"}
        reading.append("listeners", entry | each.settings, each.element)
        if each.client_auth:
            reading.client_auth = reading.client_auth or "want"
    _set_connections(reading, connectors)
