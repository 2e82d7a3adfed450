"""The settings of listeners: one value for each, and what other settings list of networks and of listeners."""

import enum
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pybroker.broker.domain.network.cluster import ClusterSettings
from pybroker.security.networks import Network, Networks, networks


class ListenerKind(enum.Enum):
    """The protocol that a listener serves."""

    STOMP = "stomp"
    OPENWIRE = "openwire"
    MQTT = "mqtt"
    AMQP = "amqp"
    """AMQP 1.0."""
    WS = "ws"
    """WebSocket, with one of the other protocols in it."""
    AUTO = "auto"
    """Detected by the first bytes of each client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The settings of TLS, of one listener or of several.

    Attributes:
        certificate: the file with the certificate.
        key: the file with its private key; None: the same.
        key_password_file: the file with the key's password; None: it has none.
        client_ca: the file with the authorities of clients; None: clients are not asked for a certificate.
        needs_client: with `client_ca`; False: a client may also present none.
        version_min: the lowest version, such as `1.2`.
        ciphers: those of TLS 1.2, as OpenSSL writes them; None: Python's choice.
    """

    certificate: Path
    key: Path | None
    key_password_file: Path | None
    client_ca: Path | None
    needs_client: bool
    version_min: str
    ciphers: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings:
    """The settings of MQTT, of one listener or of several.

    Attributes:
        keep_alive_max: seconds of the longest keep-alive of a client of MQTT 5; 0: each is accepted.
        receive_maximum: PUBLISH packets with QoS 1 and 2 that a client of MQTT 5 may have unanswered.
        subscription_strategy: what subscriptions of sessions are, by ActiveMQ's names.
    """

    keep_alive_max: int
    receive_maximum: int
    subscription_strategy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The settings of one listener.

    Attributes:
        name: its name: that of the setting which opens it, or of its table.
        kind: the protocol that it serves.
        is_table: a table of `listeners` opens it, and not a setting of its own.
        tls: None without encryption.
        host: the address that it binds to.
        port: the port; 0: any free one.
        frame_max: most bytes of a frame or a body.
        max_inactivity: seconds of silence that an OpenWire client is offered.
        initial_delay: seconds before an OpenWire client's silence is measured.
        cluster: the addresses of other brokers that its OpenWire clients get.
        mqtt: what concerns MQTT clients alone.
        amqp_transformer: the form in which messages of AMQP clients are kept.
        amqp_max_inactivity: seconds of silence after which an AMQP client is disconnected; 0: never.
        connections_max: most connections of its own at a time; None: as many as the broker's.
        networks: the networks from which its clients may connect; None: those of the broker.
        is_for_proxies: it serves proxies only, whose connections begin with a header of the PROXY protocol.
    """

    name: str
    kind: ListenerKind
    is_table: bool
    tls: TlsSettings | None
    host: str
    port: int
    frame_max: int
    max_inactivity: float
    initial_delay: float
    cluster: ClusterSettings
    mqtt: MqttSettings
    amqp_transformer: str
    amqp_max_inactivity: float
    connections_max: int | None
    networks: Networks | None
    is_for_proxies: bool

    @property
    def setting(self) -> str:
        """The setting that opens it, for errors: the path of its table, or its own name."""
        return f"listeners.{self.name}" if self.is_table else self.name


PORTS: Final = {
    "stomp": (ListenerKind.STOMP, False),
    "openwire": (ListenerKind.OPENWIRE, False),
    "mqtt": (ListenerKind.MQTT, False),
    "amqp": (ListenerKind.AMQP, False),
    "auto": (ListenerKind.AUTO, False),
    "ws": (ListenerKind.WS, False),
    "stomp_ssl": (ListenerKind.STOMP, True),
    "openwire_ssl": (ListenerKind.OPENWIRE, True),
    "mqtt_ssl": (ListenerKind.MQTT, True),
    "amqp_ssl": (ListenerKind.AMQP, True),
    "auto_ssl": (ListenerKind.AUTO, True),
    "ws_ssl": (ListenerKind.WS, True),
}
"""The settings that are ports of listeners: the protocol of each, and True for one with TLS."""

_EVERY_INTERFACE: Final = ("0.0.0.0", "::", "")  # noqa: S104 (compared with, not bound to)


def networks_of(setting: str, text: str | None) -> list[Network]:
    """Return the networks of a setting.

    Raises:
        ValueError: one is no network.
    """
    try:
        return networks(text or "")
    except ValueError as error:
        raise ValueError(f"{setting}: {error}; write for example 10.0.0.0/8, 192.168.1.7") from error


def proxied_of(proxy_protocol: str, ports: Collection[str]) -> frozenset[str]:
    """Return the listeners of the setting `proxy_protocol`, which serve proxies.

    Raises:
        ValueError: a name is not that of an open port.
    """
    names = frozenset(each.strip() for each in proxy_protocol.split(",") if each.strip())
    for name in sorted(names.difference(ports)):
        raise ValueError(f"proxy_protocol: {name!r} is not an open port; open are {', '.join(ports) or 'none'}")
    return names


def check_addresses(opened: Collection[tuple[str, str, int]]) -> None:
    """Check that no two ports can be in each other's way.

    Args:
        opened: setting, address and port of each; those whose port is 0 get any free one.

    Raises:
        ValueError: two have the same port at one address, or one of them has it at all addresses.
    """
    seen: list[tuple[str, str, int]] = []
    for name, host, number in opened:
        for other, other_host, other_number in seen:
            if number == other_number and number and _overlap(host, other_host):
                where = "" if host == other_host else f", at {other_host} and {host}"
                raise ValueError(f"{other} and {name} cannot both have port {number}{where}")
        seen.append((name, host, number))


def is_every_interface(host: str) -> bool:
    """Return True for an address that stands for all of this machine."""
    return host in _EVERY_INTERFACE


def _overlap(host: str, other: str) -> bool:
    """Return True if two addresses cannot both have a port; `::` has those of IPv4 too, by default of Linux."""
    if "::" in (host, other) or host == other:
        return True
    at_all, one = (host, other) if is_every_interface(host) else (other, host)
    return is_every_interface(at_all) and ":" not in one
