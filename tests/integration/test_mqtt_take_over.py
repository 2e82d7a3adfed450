"""One client id in several protocols: an MQTT client takes it over from clients of all, and others get it from none."""

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import pybroker
from pybroker.client import ClientError
from tests import mqtt_packets as packets
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient
from tests.integration.test_mqtt import SECONDS, Device

OWN: Final[dict[str, Any]] = {"id": "1", "destination": "/topic/t", "activemq.subscriptionName": "own"}
"""A durable subscription of the STOMP client."""

TAKE_OVERS: Final = 1000
SLACK: Final = 5
"""File descriptors that a broker may have opened for something else meanwhile."""


class Ports(NamedTuple):
    """A broker and its ports."""

    broker: BrokerProcess
    mqtt: int
    stomp: int
    openwire: str


@pytest.fixture
def ports(start: Callable[..., BrokerProcess]) -> Ports:
    mqtt, openwire = free_port(), free_port()
    broker = start("--mqtt", str(mqtt), "--openwire", str(openwire), store="memory:")
    broker.wait_for("listening on")
    return Ports(broker, mqtt, broker.port, f"tcp://127.0.0.1:{openwire}")


def device(ports: Ports, *, clean: bool = False) -> Device:
    return Device([ports.mqtt], "dev1", clean=clean)


def returned(ports: Ports) -> StompClient:
    """Connect by STOMP, once the connection of the client that has just been closed has ended at the broker."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return StompClient(ports.stomp, client_id="dev1")
        except AssertionError:
            assert time.monotonic() < deadline, "the client id stays in use"


def is_cut(client: Device) -> bool:
    """Return True once the broker has closed a connection, which gets nothing before."""
    with pytest.raises(ConnectionError):
        client.receive()
    return True


def test_mqtt_takes_over_from_stomp(ports: Ports) -> None:
    with closing(StompClient(ports.stomp, client_id="dev1")) as stomp:
        stomp.request("SUBSCRIBE", **OWN)
        with device(ports) as taker:
            assert b"taken over the client id dev1" in stomp.read_to_end()
            taker.subscribe(("t", 1))
        with Device([ports.mqtt], "sender", clean=True) as sender:
            sender.publish("t", b"1", 1)
    with device(ports) as back:
        assert back.is_session_present
        assert back.message()[1] == b"1"
    with closing(returned(ports)) as stomp:  # whose own durable subscription is there
        stomp.send("SUBSCRIBE", **OWN)
        assert stomp.read().body == b"1"


def test_mqtt_takes_over_from_openwire(ports: Ports) -> None:
    with pybroker.connect(ports.openwire, client_id="dev1") as connection:
        consumer = connection.consumer("topic://t")
        with device(ports), pytest.raises(ClientError) as raised:
            consumer.receive(SECONDS)
        assert not isinstance(raised.value, TimeoutError)


def test_other_protocols_do_not_take_over(ports: Ports) -> None:
    with device(ports) as owner:
        owner.subscribe(("t", 1))
        with pytest.raises(ClientError, match="dev1 already connected"):
            pybroker.connect(ports.openwire, client_id="dev1")
        with closing(StompClient(ports.stomp, is_connected=False)) as stomp:
            stomp.send("CONNECT", accept_version="1.2", host="test", client_id="dev1")
            assert b"dev1 already connected" in stomp.read_to_end()
        owner.publish("u", b"1", 1)


def test_mqtt_takes_over_from_mqtt_what_is_not_acknowledged(ports: Ports) -> None:
    with device(ports) as first:
        first.subscribe(("t", 1))
        with Device([ports.mqtt], "sender", clean=True) as sender:
            sender.publish("t", b"1", 1)
        head, body = first.receive()
        assert head == packets.PUBLISH | 2
        with device(ports) as second:
            assert is_cut(first)
            assert second.receive() == (head | 8, body)  # DUP


def test_many_take_overs_leave_no_connections(ports: Ports) -> None:
    descriptors = Path(f"/proc/{ports.broker.process.pid}/fd")
    with ExitStack() as stack:
        stack.enter_context(device(ports))
        before = len(list(descriptors.iterdir()))
        for number in range(TAKE_OVERS):
            if number % 10 == 9:
                stack.pop_all().close()
                stack.enter_context(closing(returned(ports)))
            former = stack.pop_all()
            stack.enter_context(device(ports, clean=number % 2 == 0))
            former.close()
        owner = stack.enter_context(device(ports))
        owner.publish("t", b"x", 1)
        assert len(list(descriptors.iterdir())) <= before + SLACK
