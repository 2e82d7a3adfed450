"""A bridge that reads advisories so slowly that some are dropped: it ends, and the next one learns the demand anew."""

from collections.abc import Callable

import pytest

from pybroker.broker.core import subscribing
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire.commands import ConnectionErrorCommand, MessageDispatch
from pybroker.transports.network.bridge import BridgeEnd
from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.openwire.conversation import World, of_kind, texts

PREFETCH, LIMIT = 4, 5
WAITING_MAX = PREFETCH + LIMIT


@pytest.fixture(autouse=True)
def _limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribing, "PENDING_MAX", LIMIT)


def consumers_of(brokers: TwoBrokers, broker: BrokerCore, count: int) -> Callable[[], None]:
    """Add consumers, each of a queue of its own; return what removes them."""
    reader = brokers.client(broker, "c")
    for number in range(count):
        reader.consume(queue(f"Q.{number}"), number + 1)
    return reader.session.lost


@pytest.mark.parametrize("duplex", [False, True])
def test_bridge_that_has_missed_an_advisory_begins_anew(duplex: bool) -> None:
    brokers = TwoBrokers(advisory_prefetch_size=PREFETCH, duplex=duplex)
    brokers.far_session.pause_writing()
    remove = consumers_of(brokers, brokers.far, WAITING_MAX + 1)
    remove()
    brokers.client(brokers.far, "kept").consume(queue("Q.KEPT"))
    brokers.pump()
    (ended,) = brokers.near.ended
    assert ended.end is BridgeEnd.REFUSED
    assert ended.reason.startswith("the bridge reads too slowly, and advisories about demand were dropped")
    brokers.connect(advisory_prefetch_size=PREFETCH, duplex=duplex)
    assert [each.request.destination.name for each in brokers.session.demand] == ["Q.KEPT"]


def test_initiator_ends_a_duplex_bridge_that_misses_its_advisories() -> None:
    brokers = TwoBrokers(advisory_prefetch_size=PREFETCH, duplex=True)
    brokers.session.pause_writing()
    consumers_of(brokers, brokers.near.broker, WAITING_MAX + 1)
    (ended,) = brokers.near.ended
    assert ended.end is BridgeEnd.LOST
    assert ended.reason.startswith("the bridge reads too slowly")


def test_bridge_that_is_just_not_too_far_behind_goes_on() -> None:
    brokers = TwoBrokers(advisory_prefetch_size=PREFETCH)
    brokers.far_session.pause_writing()
    consumers_of(brokers, brokers.far, WAITING_MAX)
    brokers.far_session.written()
    brokers.pump()
    assert brokers.session.end is None
    assert len(brokers.session.demand) == WAITING_MAX


def test_client_that_misses_advisories_keeps_its_connection() -> None:
    world = World()
    watcher, other = world.client("watcher"), world.client("other")
    watcher.consume(topic("ActiveMQ.Advisory.Consumer.Queue.>"), prefetch_size=1)
    for number in range(WAITING_MAX):
        other.consume(queue(f"Q.{number}"), number + 1)
    received = watcher.receive()
    assert of_kind(received, ConnectionErrorCommand) == []
    assert len(texts(of_kind(received, MessageDispatch))) == 1
    assert not watcher.link.closed
