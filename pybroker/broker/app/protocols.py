"""Makes the protocol of each listener: the sessions of its connections, its TLS and its proxies."""

import socket
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, assert_never

from pybroker import __version__
from pybroker.broker.app.config import Config
from pybroker.broker.app.listeners import ListenerKind, ListenerSettings, is_every_interface, networks_of
from pybroker.broker.app.machine import MACHINE, Machine
from pybroker.broker.app.mqtt_queues import VirtualTopicQueues
from pybroker.broker.app.mqtt_sessions import make_session_states
from pybroker.broker.app.tls_files import ListenerCertificates, make_certificates
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.addresses import in_url
from pybroker.broker.domain.amqp.frames import AmqpLimits
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.mqtt.packets import MqttLimits
from pybroker.broker.domain.mqtt.wire import VARIABLE_MAX
from pybroker.broker.domain.network.cluster import ClusterSettings, addresses_of
from pybroker.broker.domain.openwire.marshal.wireformat import broker_offer
from pybroker.broker.domain.security import WITHOUT_LOGINS, Authenticator
from pybroker.broker.domain.stomp.codec import encode_frame
from pybroker.broker.domain.stomp.frames import StompLimits, Version
from pybroker.security.networks import Networks
from pybroker.transports.amqp.inbound import AmqpTransformer
from pybroker.transports.amqp.session import AmqpSession, self_description
from pybroker.transports.connection import MakeSession, ReplaceableLink
from pybroker.transports.detect import DetectedProtocol, Detector
from pybroker.transports.mqtt.session import MqttSession
from pybroker.transports.mqtt.session_states import SessionStates
from pybroker.transports.mqtt.subscription_strategy import (
    DURABLE_SUBSCRIPTIONS,
    VIRTUAL_TOPIC_SUBSCRIPTIONS,
    VirtualTopicStrategy,
)
from pybroker.transports.openwire.cluster import ClusterClients
from pybroker.transports.openwire.session import OpenWireSession, Sessions
from pybroker.transports.openwire.settings import OpenWireSettings
from pybroker.transports.proxied import Proxies
from pybroker.transports.server import ListenerProtocol, Tls
from pybroker.transports.session import Link, Session
from pybroker.transports.stomp.session import SERVER, StompSession
from pybroker.transports.websocket.origins import OriginRule
from pybroker.transports.websocket.subprotocols import AMQP, MQTT, STOMP

_SCHEMES: Final = {
    ListenerKind.STOMP: ("stomp", "stomp+ssl"),
    ListenerKind.OPENWIRE: ("tcp", "ssl"),
    ListenerKind.MQTT: ("mqtt", "mqtts"),
    ListenerKind.AMQP: ("amqp", "amqp+ssl"),
    ListenerKind.WS: ("ws", "wss"),
    ListenerKind.AUTO: ("auto", "auto+ssl"),
}
"""The schemes of a listener's URLs without and with TLS, as for ActiveMQ's clients."""


def make_protocols(
    config: Config,
    broker: BrokerCore,
    listeners: Sequence[ListenerSettings],
    certificates: ListenerCertificates | None = None,
    machine: Machine = MACHINE,
    authenticator: Authenticator = WITHOUT_LOGINS,
    sessions: Sessions | None = None,
    mqtt_states: SessionStates | None = None,
) -> list[ListenerProtocol]:
    """Return the protocol of each listener, in their order, and set the broker's URL.

    Args:
        config: the settings.
        broker: the core.
        listeners: the listeners with the ports that are bound, never 0.
        certificates: the certificates; None to read them now.
        machine: the machine of this member.
        authenticator: decides who clients are.
        sessions: the OpenWire sessions of the broker; None for new ones.
        mqtt_states: the MQTT sessions of the broker that have no connection; None for new ones.

    Raises:
        ConfigError: certificate or key cannot be used, or this broker's addresses are not valid.
    """
    broker.url = openwire_url(config, listeners)
    mqtt_states = mqtt_states or make_session_states(broker, broker.usage.paging.after, machine.clock)
    makers = _SessionMakers(config, broker, machine, authenticator, sessions or Sessions(), mqtt_states)
    certificates = certificates or make_certificates(config)
    trusted = Networks(allow=networks_of("proxy_networks", config.proxy_networks), deny=())
    proxies = Proxies(are_trusted=trusted.allows, header_seconds=config.connect_timeout)
    return [
        ListenerProtocol(
            scheme=_SCHEMES[each.kind][each.tls is not None],
            session=makers.of(each),
            name=each.name if each.is_table else "",
            refusal=_refusal(config, each) if each.tls is None else b"",
            tls=_tls(config, certificates, each),
            proxies=proxies if each.is_for_proxies else None,
            is_welcome=None if each.networks is None else each.networks.allows,
            connections_max=each.connections_max,
        )
        for each in listeners
    ]


def import_libraries(listeners: Sequence[ListenerSettings]) -> None:
    """Import what sessions of some listeners need, which takes 0.1 s that no promotion should wait for."""
    if any(each.kind in (ListenerKind.WS, ListenerKind.AUTO) for each in listeners):
        from pybroker.transports.websocket import session as _  # noqa: F401 (is imported for `make_protocols`)


def openwire_url(config: Config, listeners: Sequence[ListenerSettings]) -> str:
    """Return the URL that OpenWire clients get; empty without a listener for them.

    One for OpenWire only is preferred to one that detects the protocol, and then the first one.
    """
    if config.openwire_url is not None:
        return config.openwire_url
    for kind in (ListenerKind.OPENWIRE, ListenerKind.AUTO):
        for each in listeners:
            if each.kind is kind:
                return _url_of(each)
    return ""


def _url_of(listener: ListenerSettings) -> str:
    """Return the URL of a listener for OpenWire clients; this machine's name stands for all of its addresses."""
    host = socket.gethostname() if is_every_interface(listener.host) else listener.host
    return f"{'tcp' if listener.tls is None else 'ssl'}://{in_url(host)}:{listener.port}"


def _tls(config: Config, certificates: ListenerCertificates | None, listener: ListenerSettings) -> Tls | None:
    if certificates is None or listener.tls is None:
        return None
    return Tls(context=certificates.context_of(listener.tls), handshake_seconds=config.connect_timeout)


def _refusal(config: Config, listener: ListenerSettings) -> bytes:
    """Return the answer to a client when there are too many connections; empty where there is none without a request.

    A WebSocket client gets it without its request being read, which costs less than a connection that waits for one.
    """
    its = "" if listener.connections_max is None else f", its port has its {listener.connections_max}"
    text = (
        f"This broker has its {config.connections_max} connections already{its}, or too many of your address; try "
        "again later."
    )
    match listener.kind:
        case ListenerKind.STOMP:
            headers = {"message": text, "content-type": "text/plain"}
            return encode_frame("ERROR", headers, text.encode(), Version.V1_0)
        case ListenerKind.WS:
            from pybroker.transports.websocket.handshake import refuse  # only some brokers need the library

            return refuse(HTTPStatus.SERVICE_UNAVAILABLE, text).data
        case ListenerKind.OPENWIRE | ListenerKind.MQTT | ListenerKind.AMQP | ListenerKind.AUTO:
            return b""
        case _:
            assert_never(listener.kind)


class _SessionMakers:
    """The makers of sessions: each listener has its own, by which the server knows it."""

    def __init__(
        self,
        config: Config,
        broker: BrokerCore,
        machine: Machine,
        authenticator: Authenticator,
        sessions: Sessions,
        mqtt_states: SessionStates,
    ) -> None:
        self._config = config
        self._broker = broker
        self._machine = machine
        self._authenticator = authenticator
        self._sessions = sessions
        self._mqtt_states = mqtt_states

    def of(self, listener: ListenerSettings) -> MakeSession:
        """Return what makes the sessions of a listener."""
        match listener.kind:
            case ListenerKind.STOMP:
                return self._stomp(listener)
            case ListenerKind.OPENWIRE:
                return self._openwire(listener)
            case ListenerKind.MQTT:
                return self._mqtt(listener)
            case ListenerKind.AMQP:
                return self._amqp(listener)
            case ListenerKind.WS:
                return self._websocket(listener)
            case ListenerKind.AUTO:
                return self._auto(listener)
            case _:
                assert_never(listener.kind)

    def _stomp(self, listener: ListenerSettings) -> Callable[[Link], Session]:
        limits = StompLimits(body_bytes=listener.frame_max, connect_seconds=self._config.connect_timeout)

        def session(link: Link) -> Session:
            return StompSession(
                broker=self._broker,
                link=link,
                connection_id=self._machine.new_id(),
                limits=limits,
                clock=self._machine.clock,
                server=self._config.stomp_server or SERVER,
                authenticator=self._authenticator,
            )

        return session

    def _cluster(self, settings: ClusterSettings, own_url: str) -> ClusterClients | None:
        """Return what the clients of a listener get of the network; None if they get none of it.

        Raises:
            ConfigError: this broker's own addresses are not valid.
        """
        peers = self._sessions.peers
        if peers is None or not (settings.update_clients or settings.rebalance_clients):
            return None
        given = self._config.openwire_brokers or own_url
        try:
            return ClusterClients(settings, addresses_of(given), peers)
        except ValueError as error:
            name = "openwire_brokers" if self._config.openwire_brokers else "openwire_url"
            raise ConfigError(f"{given!r} cannot be sent to clients: {error}", setting=name) from error

    def _openwire(self, listener: ListenerSettings) -> MakeSession:
        is_own = listener.is_table and not self._config.openwire_url
        own_url = _url_of(listener) if is_own else self._broker.url
        settings = OpenWireSettings(
            offer=broker_offer(
                max_inactivity_ms=round(listener.max_inactivity * 1000),
                initial_delay_ms=round(listener.initial_delay * 1000),
                frame_bytes_max=listener.frame_max,
                provider_name="pybroker",
                provider_version=__version__,
            ),
            broker_url=self._config.openwire_brokers or own_url,
            connected_brokers=self._config.openwire_brokers,
            cluster=self._cluster(listener.cluster, own_url),
            connect_seconds=self._config.connect_timeout,
        )

        def session(link: Link) -> Session:
            return OpenWireSession(
                broker=self._broker,
                link=link,
                settings=settings,
                sessions=self._sessions,
                authenticator=self._authenticator,
            )

        return session

    def _mqtt(self, listener: ListenerSettings) -> Callable[[Link], Session]:
        limits = MqttLimits(
            packet_bytes=min(listener.frame_max, VARIABLE_MAX),
            connect_seconds=self._config.connect_timeout,
            receive_maximum=listener.mqtt.receive_maximum,
            keep_alive_max=listener.mqtt.keep_alive_max,
        )
        strategy = DURABLE_SUBSCRIPTIONS
        if listener.mqtt.subscription_strategy == VIRTUAL_TOPIC_SUBSCRIPTIONS:
            strategy = VirtualTopicStrategy(VirtualTopicQueues(self._broker))

        def session(link: Link) -> Session:
            return MqttSession(
                broker=self._broker,
                link=link,
                connection_id=self._machine.new_id(),
                limits=limits,
                clock=self._machine.clock,
                states=self._mqtt_states,
                authenticator=self._authenticator,
                strategy=strategy,
            )

        return session

    def _amqp(self, listener: ListenerSettings) -> Callable[[Link], Session]:
        limits = AmqpLimits(
            message_bytes_max=listener.frame_max,
            connect_seconds=self._config.connect_timeout,
            idle_seconds=listener.amqp_max_inactivity,
        )
        transformer = AmqpTransformer(listener.amqp_transformer)
        properties = self_description(__version__)

        def session(link: Link) -> Session:
            return AmqpSession(
                broker=self._broker,
                link=link,
                connection_id=self._machine.new_id(),
                limits=limits,
                clock=self._machine.clock,
                transformer=transformer,
                properties=properties,
                authenticator=self._authenticator,
            )

        return session

    def _websocket(self, listener: ListenerSettings) -> MakeSession:
        from pybroker.transports.websocket.session import WebSocketSession, WebSocketSettings  # as above

        settings = WebSocketSettings(
            # In the order in which clients that offer no subprotocol are served: the first one.
            families={STOMP: self._stomp(listener), MQTT: self._mqtt(listener), AMQP: self._amqp(listener)},
            origins=OriginRule(self._config.websocket_origins),
            message_bytes_max=listener.frame_max + StompLimits().head_bytes,
            handshake_seconds=self._config.connect_timeout,
        )

        def session(link: Link) -> Session:
            return WebSocketSession(link, settings)

        return session

    def _auto(self, listener: ListenerSettings) -> MakeSession:
        """Return the maker for a listener that detects the peer's protocol by its first bytes."""
        detected = {
            DetectedProtocol.STOMP: self._stomp(listener),
            DetectedProtocol.OPENWIRE: self._openwire(listener),
            DetectedProtocol.MQTT: self._mqtt(listener),
            DetectedProtocol.AMQP: self._amqp(listener),
            DetectedProtocol.WEBSOCKET: self._websocket(listener),
        }

        def session(link: ReplaceableLink) -> Session:
            return Detector(link, detected, seconds=self._config.connect_timeout)

        return session
