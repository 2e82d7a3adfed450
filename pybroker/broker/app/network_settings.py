"""The settings of listeners and of their clients' connections: ports, networks, TLS, and limits.

They are settings of `Config` like all others. Tables of `listeners` may differ from them; see `listener_tables`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pybroker.broker.app.listeners import ListenerSettings, MqttSettings, TlsSettings, networks_of
from pybroker.broker.app.setting import Setting, choice, declared, header_value, path, port, text, whole, yes_or_no
from pybroker.broker.domain.network.cluster import ClusterFilter, ClusterSettings
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.security.networks import Networks
from pybroker.transports.mqtt.subscription_strategy import DEFAULT_SUBSCRIPTIONS, VIRTUAL_TOPIC_SUBSCRIPTIONS
from pybroker.transports.websocket.origins import SAME_HOST, OriginRule
from pybroker.units import parse_duration as duration
from pybroker.units import parse_size as size


def _listeners(value: object) -> Any:
    """Read the tables `listeners`, with a module that is imported when it is needed."""
    from pybroker.broker.app import listener_tables

    plain = {name: each for name, each in vars(NetworkSettings).items() if isinstance(each, Setting)}
    return listener_tables.read_listeners(value, plain)


def _networks(value: object) -> Any:
    """Read the tables `network`, with a module that is imported when it is needed."""
    from pybroker.broker.app import network_tables

    return network_tables.read_networks(value)


def _origins(value: object) -> str:
    OriginRule(text(value))
    return text(value)


def _cluster_filter(value: object) -> str:
    ClusterFilter(text(value))
    return text(value)


def _whole_seconds(value: object) -> int:
    seconds = duration(value)
    if not seconds.is_integer():
        raise ValueError(f"it must be a number of whole seconds; given was {value!r}")
    return int(seconds)


class NetworkSettings:
    """The settings.

    Attributes:
        given: the settings that are set, as they were given.
    """

    given: Mapping[str, object]

    bind: str = declared(text, "127.0.0.1", description="Address the listeners bind to; `0.0.0.0` for every interface.")
    stomp: int | None = declared(
        port, 61613, description="Port of the STOMP listener; `0` for any free one, `off` for none."
    )
    openwire: int | None = declared(
        port, 61616, description="Port of the OpenWire listener; `0` for any free one, `off` for none."
    )
    mqtt: int | None = declared(port, None, "Port of the MQTT listener; `off` for none. The usual one is 1883.")
    amqp: int | None = declared(port, None, "Port of the AMQP 1.0 listener; `off` for none. The usual one is 5672.")
    auto: int | None = declared(
        port, None, "Port of a listener for every protocol, detected by a client's first bytes."
    )
    ws: int | None = declared(
        port,
        None,
        "Port of the WebSocket listener, for web pages: STOMP, MQTT and AMQP; `off` for none. ActiveMQ's is 61614.",
    )
    stomp_ssl: int | None = declared(port, None, "Port of the STOMP listener with TLS.")
    openwire_ssl: int | None = declared(port, None, "Port of the OpenWire listener with TLS.")
    mqtt_ssl: int | None = declared(port, None, "Port of the MQTT listener with TLS; the usual one is 8883.")
    amqp_ssl: int | None = declared(port, None, "Port of the AMQP 1.0 listener with TLS; the usual one is 5671.")
    auto_ssl: int | None = declared(port, None, "Port of a listener as `auto` with TLS.")
    ws_ssl: int | None = declared(port, None, "Port of the WebSocket listener with TLS, `wss://`.")
    websocket_origins: str = declared(
        _origins,
        SAME_HOST,
        description="Comma list of the origins of web pages that may connect over WebSocket, such as "
        "`https://app.example.com`; `same-host` stands for those of the host that they connect to, `*` for all. What "
        "sends no origin, as programs do, may always.",
    )
    listeners: tuple[ListenerSettings, ...] = declared(
        _listeners,
        (),
        description="Listeners, each with an address, limits and TLS files of its own, and then none by default: see "
        "[listeners](listeners.md).",
    )
    """All open listeners: those of the settings that are ports, and those of the tables."""
    network: tuple[NetworkConnector, ...] = declared(
        _networks,
        (),
        "Connectors to other brokers, as tables: messages go where they are consumed. See [networks](networks.md).",
    )
    use_virtual_dest_subs: bool = declared(
        yes_or_no,
        False,
        "Announce consumers behind composite destinations and virtual topics to the bridges of other brokers: see "
        "[networks](networks.md#virtual-topics-and-composite-destinations).",
    )
    use_virtual_dest_subs_on_creation: bool = declared(
        yes_or_no, False, "Announce queues behind composite destinations and virtual topics, with consumers or without."
    )
    tls_certificate: Path | None = declared(
        path,
        None,
        description="PEM file with the certificate of the TLS listeners, followed by any intermediate ones.",
    )
    tls_key: Path | None = declared(
        path, None, description="PEM file with the certificate's private key; by default `tls_certificate` has it."
    )
    tls_key_password_file: Path | None = declared(
        path, None, description="File that holds the key's password, if it has one."
    )
    tls_client_ca: Path | None = declared(
        path,
        None,
        description="PEM file with the authorities that vouch for clients; when set, a TLS client must present a "
        "certificate of one of them.",
    )
    tls_client_auth: str = declared(
        choice("need", "want"),
        "need",
        description="With `tls_client_ca`: TLS clients must present a certificate (`need`), or may come without one "
        "(`want`).",
    )
    tls_version_min: str = declared(
        choice("1.2", "1.3"), "1.2", description="The lowest version of TLS that clients may use, `1.2` or `1.3`."
    )
    tls_ciphers: str | None = declared(
        text,
        None,
        description="The ciphers of TLS 1.2, as OpenSSL writes them (`openssl ciphers`); by default Python's choice. "
        "Those of TLS 1.3 have no setting.",
    )
    openwire_url: str | None = declared(
        text,
        None,
        description="URL of this broker that OpenWire clients get; by default made of `bind`, or this machine's "
        "name, and the port.",
    )
    openwire_brokers: str = declared(
        text,
        "",
        description="Comma list of all members' OpenWire URLs, which failover clients get; empty: they use those of "
        "their own URIs.",
    )
    update_cluster_clients: bool = declared(
        yes_or_no,
        False,
        description="Send OpenWire clients the addresses of the brokers to which bridges lead: see "
        "[clusters](clusters.md).",
    )
    rebalance_cluster_clients: bool = declared(
        yes_or_no,
        False,
        description="With `update_cluster_clients`: failover clients that get a new list of brokers connect to one of "
        "it at random.",
    )
    update_cluster_clients_on_remove: bool = declared(
        yes_or_no,
        False,
        description="With `update_cluster_clients`: send a new list also when a broker has had no bridge for 3 s.",
    )
    update_cluster_filter: str = declared(
        _cluster_filter,
        "",
        description="With `update_cluster_clients`: comma list of regular expressions, one of which must match the "
        "whole name of a broker whose address clients get; empty: all brokers.",
    )
    stomp_server: str | None = declared(
        header_value,
        None,
        description="The `server` header of STOMP's CONNECTED, by which some clients choose their features; by "
        "default `ActiveMQ/5.17.2 pybroker/VERSION`, so that they choose those of ActiveMQ.",
    )
    allow: str | None = declared(
        text,
        None,
        description="The networks from which clients may connect, such as `10.0.0.0/8, 127.0.0.0/8`; by default all.",
    )
    deny: str | None = declared(
        text, None, description="The networks from which no client may connect, even if `allow` has them."
    )
    connections_max: int = declared(
        whole, 1000, least=1, most=100_000, description="Most client connections at a time."
    )
    connections_reserved: int | None = declared(
        whole,
        None,
        least=0,
        description="The part of `connections_max` that is for clients that have logged in: others cannot fill it; by "
        "default a tenth.",
    )
    connections_per_address: int = declared(
        whole,
        0,
        least=0,
        description="Most connections of one address at a time, other than those of this host; `0`: no limit.",
    )
    connections_per_user: int = declared(
        whole, 0, least=0, description="Most connections of one user at a time who has logged in; `0`: no limit."
    )
    unconnected_max: int = declared(
        whole,
        0,
        least=0,
        most=100_000,
        description="Most connections of one address at a time that have not sent their CONNECT or ConnectionInfo yet; "
        "`0`: half of `connections_max`.",
    )
    proxy_protocol: str = declared(
        text,
        "",
        description="Comma list of listeners, such as `openwire, stomp_ssl`, that serve proxies only: each "
        "connection begins with a header of the PROXY protocol, version 2 (`send-proxy-v2`), whose address counts.",
    )
    proxy_networks: str | None = declared(
        text, None, description="The networks of the proxies that may connect to these listeners."
    )
    connect_timeout: float = declared(
        duration,
        30.0,
        above=0,
        most=3600,
        description="How long a client may take for its TLS handshake, and again for its first frame; an OpenWire "
        "client may take ten times as long for its ConnectionInfo.",
    )
    frame_max: int = declared(
        size,
        100 << 20,
        least=1 << 10,
        most=1 << 30,
        description="Largest frame, and so largest message, that a client may send.",
    )
    amqp_transformer: str = declared(
        choice("native", "jms", "raw"),
        "native",
        description="The form in which messages of AMQP clients are kept: as they came (`native`, as in ActiveMQ), or "
        "as text, bytes, map, stream and object messages, which clients of all protocols can read (`jms`).",
    )
    amqp_max_inactivity: float = declared(
        duration,
        30.0,
        least=0,
        most=86400,
        description="Silence after which an AMQP client is disconnected; half of it is announced as the idle time-out. "
        "0: never.",
    )
    openwire_max_inactivity: float = declared(
        duration,
        30.0,
        least=0,
        most=86400,
        description="Silence after which an OpenWire client is disconnected, unless it requests less; 0: never.",
    )
    openwire_initial_delay: float = declared(
        duration, 10.0, least=0, most=86400, description="Time an OpenWire client has before that silence counts."
    )

    mqtt_keep_alive_max: int = declared(
        _whole_seconds,
        0,
        least=0,
        most=65_535,
        description="The longest keep-alive of an MQTT 5 client, which also replaces none at all; `0`: clients choose. "
        "A client of an earlier version cannot be given another one than its own.",
    )
    mqtt_receive_maximum: int = declared(
        whole,
        1000,
        least=1,
        most=65_535,
        description="Most PUBLISH packets with QoS 1 and 2 of an MQTT 5 client that are not answered yet.",
    )

    mqtt_subscription_strategy: str = declared(
        choice(DEFAULT_SUBSCRIPTIONS, VIRTUAL_TOPIC_SUBSCRIPTIONS),
        DEFAULT_SUBSCRIPTIONS,
        description="What subscriptions of MQTT sessions are: durable subscriptions (`mqtt-default-subscriptions`), or "
        "queues of virtual topics (`mqtt-virtual-topic-subscriptions`); see [MQTT](mqtt.md#virtual-topics).",
    )

    @property
    def networks(self) -> Networks | None:
        """The networks from which clients may connect; None: all."""
        if self.allow is None and self.deny is None:
            return None
        return Networks(allow=networks_of("allow", self.allow), deny=networks_of("deny", self.deny))

    @property
    def hosts(self) -> set[str]:
        """The addresses that clients connect to; that of `bind` if there is no listener."""
        return {each.host for each in self.listeners} or {self.bind}

    @property
    def cluster_settings(self) -> ClusterSettings:
        """The addresses of other brokers that clients get, which a listener's own settings may differ from."""
        return ClusterSettings(
            update_clients=self.update_cluster_clients,
            rebalance_clients=self.rebalance_cluster_clients,
            update_on_remove=self.update_cluster_clients_on_remove,
            filter=self.update_cluster_filter,
        )

    @property
    def mqtt_settings(self) -> MqttSettings:
        """The settings of MQTT, which a listener's own may differ from."""
        return MqttSettings(
            keep_alive_max=self.mqtt_keep_alive_max,
            receive_maximum=self.mqtt_receive_maximum,
            subscription_strategy=self.mqtt_subscription_strategy,
        )

    @property
    def tls(self) -> TlsSettings | None:
        """The settings of TLS, which a listener's own may differ from; None without a certificate."""
        if self.tls_certificate is None:
            return None
        return TlsSettings(
            certificate=self.tls_certificate,
            key=self.tls_key,
            key_password_file=self.tls_key_password_file,
            client_ca=self.tls_client_ca,
            needs_client=self.tls_client_auth == "need",
            version_min=self.tls_version_min,
            ciphers=self.tls_ciphers,
        )
