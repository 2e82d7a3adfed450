# mypy: disable-error-code="arg-type, index"
"""The protocols of the listeners, and the address that OpenWire clients get."""

import socket
from dataclasses import replace

import pytest

from pybroker.broker.app import wiring
from pybroker.broker.app.config import Config
from pybroker.broker.app.protocols import make_protocols, openwire_url
from pybroker.store.memory import MemoryStore
from tests.unit.transports.certificates import Certificates
from tests.unit.transports.openwire.conversation import FakeLink


def protocols_of(**settings):
    config = Config(store="memory:", **settings)
    broker = wiring.make_broker(config, MemoryStore())
    made = make_protocols(config, broker, config.listeners)
    return {listener.name: each for listener, each in zip(config.listeners, made, strict=True)}


def test_each_listener_has_its_protocol():
    names = {setting: protocol.scheme for setting, protocol in protocols_of(auto=0).items()}
    assert names == {"stomp": "stomp", "openwire": "tcp", "auto": "auto"}


def test_client_of_unknown_protocol_is_refused_without_a_frame():
    made = protocols_of(auto=0)
    assert made["stomp"].refusal.startswith(b"ERROR")
    assert made["auto"].refusal == b""


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
    made = protocols_of(stomp_ssl=0, openwire_ssl=0, auto=0, auto_ssl=0, tls_certificate=files.both)
    assert len({protocol.session for protocol in made.values()}) == len(made) == 6
    assert [name for name, protocol in made.items() if protocol.tls] == ["stomp_ssl", "openwire_ssl", "auto_ssl"]


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
