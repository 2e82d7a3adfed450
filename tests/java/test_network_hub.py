"""A hub and two spokes that have opened duplex bridges to it, with a stock ActiveMQ as the hub or as a spoke.

Demand and messages make two hops: what is sent at one spoke is consumed at the other.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire import commands as wire
from tests.integration.openwire_client import OpenWireClient
from tests.java.bridged import SECONDS, BridgedEnd, Connector, prove, read, rest, without_probes
from tests.java.checks import Programs
from tests.java.network_rows import replies

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(180)]

KINDS = {
    "ActiveMQ with two pybrokers": ("activemq", "pybroker", "pybroker"),
    "pybroker with one of each": ("pybroker", "pybroker", "activemq"),
}


class StarOfBrokers:
    """The hub, and the spokes that bridge to it."""

    def __init__(self, kinds: tuple[str, str, str], directory: Path, class_path: str, stack: ExitStack) -> None:
        self.hub, self.s1, self.s2 = self.all = BridgedEnd(), BridgedEnd(), BridgedEnd()
        to_hub = Connector(name="to-hub", address=self.hub.uri, is_duplex=True, ttl=2)
        for kind, name, end in zip(kinds, ("hub", "s1", "s2"), self.all, strict=True):
            connector = None if end is self.hub else to_hub
            stack.enter_context(end.start(kind, name, connector, directory, class_path))


@pytest.fixture(scope="module", params=KINDS)
def star(
    request: pytest.FixtureRequest, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StarOfBrokers]:
    with ExitStack() as stack:
        yield StarOfBrokers(KINDS[request.param], tmp_path_factory.mktemp("star"), programs.class_path, stack)


def wait_for_consumers(end: BridgedEnd, queue: str, count: int) -> None:
    """Return once a queue has so many consumers, with those of bridges, as the advisories of its broker count them."""
    with end.consumer(f"topic://ActiveMQ.Advisory.Consumer.Queue.{queue}") as advisories:
        while advisories.receive(timeout=SECONDS).properties["consumerCount"] != count:
            pass


def test_queue_of_the_hub_is_shared_by_all(star: StarOfBrokers) -> None:
    with ExitStack() as stack:
        consumers = [stack.enter_context(end.consumer("SHARED")) for end in star.all]
        wait_for_consumers(star.hub, "SHARED", 3)
        star.hub.texts("SHARED", *map(str, range(30)))
        found = [text for consumer in consumers for text in read(consumer, 10)]
        assert sorted(found, key=int) == [str(number) for number in range(30)]
        assert [rest(consumer) for consumer in consumers] == [[], [], []]


@pytest.mark.parametrize("sender", ["s1", "s2"])
def test_message_passes_the_hub_on_its_way(star: StarOfBrokers, sender: str) -> None:
    source, target = (star.s1, star.s2) if sender == "s1" else (star.s2, star.s1)
    name = f"RELAY.{sender}"
    source.texts(name, "1")
    with closing(OpenWireClient(target.openwire, "reader")) as client:
        message = client.message_of(client.consumer(queue(name)))
    assert message.content.endswith(b"1")
    assert [each.value for each in message.broker_path] == [broker_id(source), broker_id(star.hub)]


def broker_id(end: BridgedEnd) -> str:
    """Return the id that the broker has for others."""
    with closing(OpenWireClient(end.openwire, "asking")) as client:
        (info,) = (each for each in client.others if isinstance(each, wire.BrokerInfo))
    assert info.broker_id is not None
    return info.broker_id.value or ""


def test_topic_reaches_every_broker_once(star: StarOfBrokers) -> None:
    with ExitStack() as stack:
        consumers = [stack.enter_context(end.consumer("topic://NEWS")) for end in star.all]
        for number, end in enumerate(star.all):
            expected = [f"{number}.{each}" for each in range(3)]
            for consumer in consumers:
                prove(consumer, partial(end.texts, "topic://NEWS"))
            end.texts("topic://NEWS", *expected)
            assert [without_probes(consumer, 3) for consumer in consumers] == [expected] * 3
        assert [rest(consumer) for consumer in consumers] == [[], [], []]


def test_reply_comes_back_over_the_hub(star: StarOfBrokers) -> None:
    """The requester's temporary queue is made known two brokers further."""
    replies(requester=star.s1, replier=star.s2, service="SERVICE.S2")
    replies(requester=star.s2, replier=star.s1, service="SERVICE.S1")
