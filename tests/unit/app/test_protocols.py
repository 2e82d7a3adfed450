# mypy: disable-error-code="arg-type, index"
"""The protocols of the listeners, and the address that OpenWire clients get."""

import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from pybroker.broker.app import wiring
from pybroker.broker.app.config import Config
from pybroker.broker.app.protocols import make_protocols, openwire_url
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.network.cluster import ClusterPeers
from pybroker.broker.domain.openwire.commands import ConnectionId, ConnectionInfo
from pybroker.broker.domain.openwire.marshal.framing import FrameReader
from pybroker.broker.domain.openwire.marshal.wireformat import agree, broker_offer, encode_offer
from pybroker.store.memory import MemoryStore
from pybroker.transports.openwire.session import Sessions
from tests.unit.transports.certificates import Certificates
from tests.unit.transports.openwire.conversation import JAVA, FakeLink
from tests.unit.transports.websocket.conversation import TEXT, frame, request
from tests.unit.transports.websocket.conversation import FakeLink as WebSocketFakeLink


def protocols_of(sessions=None, **settings):
    config = Config(store="memory:", **settings)
    broker = wiring.make_broker(config, MemoryStore())
    made = make_protocols(config, broker, config.listeners, sessions=sessions)
    return {listener.name: each for listener, each in zip(config.listeners, made, strict=True)}


def test_each_listener_has_its_protocol():
    names = {setting: protocol.scheme for setting, protocol in protocols_of(auto=0).items()}
    assert names == {"stomp": "stomp", "openwire": "tcp", "auto": "auto"}


def test_client_of_unknown_protocol_is_refused_without_a_frame():
    made = protocols_of(auto=0)
    assert made["stomp"].refusal.startswith(b"ERROR")
    assert made["auto"].refusal == b""


def test_websocket_client_is_refused_in_http():
    made = protocols_of(ws=0)["ws"]
    assert made.scheme == "ws"
    assert made.refusal.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"This broker has its 1000 connections already" in made.refusal


def test_websocket_session_is_that_of_the_settings():
    link = WebSocketFakeLink()
    protocols_of(ws=0, websocket_origins="https://app.example", connect_timeout="5s")["ws"].session(link).receive(
        request("Origin: http://b.example")
    )
    assert link.wake is None
    assert link.sent().startswith(b"HTTP/1.1 403 ")
    link = WebSocketFakeLink()
    session = protocols_of(ws=0, frame_max="1mb", connect_timeout="5s")["ws"].session(link)
    assert link.wake == link.now + 5
    session.receive(request("Sec-WebSocket-Protocol: v12.stomp") + frame(TEXT, b"CONNECT\naccept-version:1.2\n\n\0"))
    assert b"CONNECTED\nversion:1.2\n" in link.sent()
    session.receive(b"\x82\xff" + ((2 << 20) + 1).to_bytes(8))
    session.receive(b"mask")
    assert (1009).to_bytes(2) in link.sent()


def greeting(peers, **settings):
    """Return the BrokerInfo and the ConnectionControl that a failover client of the OpenWire listener gets."""
    link = FakeLink()
    session = protocols_of(Sessions(peers=peers), openwire=7, **settings)["openwire"].session(link)
    session.receive(encode_offer(JAVA))
    wire = agree(JAVA, broker_offer()).wire_format()
    info = ConnectionInfo(connection_id=ConnectionId("ID:1"), client_id="c", manageable=True, fault_tolerant=True)
    session.receive(wire.encode_frame(info))
    reader = FrameReader(1 << 20)
    reader.feed(bytes(link.output))
    frames = []
    while reader.advance():
        frames.append(reader.data[reader.start : reader.stop])
    return [agree(broker_offer(), JAVA).wire_format().decode(each) for each in frames[1:]]


def peers_with_b():
    peers = ClusterPeers(lambda _seconds, _callback: lambda: None)
    peers.joined("ID:b", "b", "tcp://b:1")
    return peers


@pytest.mark.parametrize(
    ("settings", "url", "brokers"),
    [
        ({}, "tcp://127.0.0.1:7", ""),
        ({"update_cluster_clients": True}, "tcp://127.0.0.1:7", "tcp://127.0.0.1:7,tcp://b:1"),
        ({"openwire_brokers": "tcp://m:1,tcp://s:1"}, "tcp://m:1,tcp://s:1", "tcp://m:1,tcp://s:1"),
        (
            {"openwire_brokers": "tcp://m:1,tcp://s:1", "update_cluster_clients": True},
            "tcp://m:1,tcp://s:1",
            "tcp://m:1,tcp://s:1,tcp://b:1",
        ),
        ({"update_cluster_clients": True, "update_cluster_filter": "c.*"}, "tcp://127.0.0.1:7", "tcp://127.0.0.1:7"),
    ],
)
def test_clients_get_own_addresses_and_those_of_peers(settings, url, brokers):
    info, control = greeting(peers_with_b(), **settings)
    assert info.broker_url == url
    assert control.connected_brokers == brokers


def test_own_address_that_clients_cannot_use_is_refused():
    with pytest.raises(ConfigError, match="'m:1' is no address") as raised:
        protocols_of(Sessions(peers=peers_with_b()), openwire_brokers="m:1", update_cluster_clients=True)
    assert raised.value.setting == "openwire_brokers"


def test_libraries_are_imported_before_a_promotion():
    code = (
        "import sys; from pybroker.broker.app import protocols; from pybroker.broker.app.config import Config; "
        "protocols.import_libraries(Config(store='memory:').listeners); assert 'websockets' not in sys.modules; "
        "protocols.import_libraries(Config(store='memory:', ws=0).listeners); assert 'websockets' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"openwire": "off"}, ""),
        ({"auto": 2}, "tcp://127.0.0.1:61616"),
        ({"bind": "0.0.0.0"}, f"tcp://{socket.gethostname()}:61616"),
        ({"bind": "::1", "openwire": "off", "auto": 5}, "tcp://[::1]:5"),
        (
            {"openwire": "off", "auto": 5, "openwire_ssl": 61617, "tls_certificate": "c.pem"},
            "ssl://127.0.0.1:61617",
        ),
        ({"openwire_url": "tcp://broker.example:7"}, "tcp://broker.example:7"),
    ],
)
def test_openwire_url_is_that_of_the_first_listener(settings, url):
    config = Config(store="memory:", **settings)
    assert openwire_url(config, config.listeners) == url


def test_each_listener_has_its_own_sessions_and_so_is_counted_apart(tmp_path):
    files = Certificates(directory=tmp_path)
    made = protocols_of(stomp_ssl=0, openwire_ssl=0, auto=0, auto_ssl=0, ws=0, ws_ssl=0, tls_certificate=files.both)
    assert len({protocol.session for protocol in made.values()}) == len(made) == 8
    encrypted = [name for name, protocol in made.items() if protocol.tls]
    assert encrypted == ["stomp_ssl", "openwire_ssl", "auto_ssl", "ws_ssl"]


def test_an_openwire_listener_offers_its_own_frame_limit():
    config = Config(store="memory:", stomp="off")
    broker = wiring.make_broker(config, MemoryStore())
    listeners = [replace(each, frame_max=limit) for each in config.listeners for limit in (1 << 20, 3 << 20)]
    offers = []
    for protocol in make_protocols(config, broker, listeners):
        link = FakeLink()
        protocol.session(link)
        offers.append(bytes(link.output))
    assert (1 << 20).to_bytes(8) in offers[0]
    assert (3 << 20).to_bytes(8) in offers[1]
