# mypy: disable-error-code="arg-type, union-attr, dict-item, list-item, attr-defined"
"""Advisories about what exists already: in pieces, at the pace of their subscriber, and only of what is still there."""

from collections import deque
from collections.abc import Callable

import pytest

from pybroker.broker.core.advisory import EXISTING_PIECE, EXISTING_WAITING_MAX, TEMPORARY_FIRST
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.destination import DestinationType, parse, queue
from pybroker.broker.domain.openwire.commands import ConsumerInfo, DestinationInfo, DestinationOperation
from pybroker.broker.domain.openwire.marshal.transcode import from_store
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import Client, Inbox, Throttle


class Broker:
    """A broker whose deferred pieces run one at a time."""

    def __init__(self) -> None:
        self.deferred: deque[Callable[[], None]] = deque()
        self.core = BrokerCore("b", store=MemoryStore(), clock=lambda: 1_000_000, defer=self.deferred.append)
        self.core.recover()
        self._count = 0

    def client(self) -> Client:
        self._count += 1
        throttle = Throttle()
        return Client(self.core.connect(f"c{self._count}", f"c{self._count}", throttle), throttle)

    def run(self) -> int:
        """Run all deferred pieces; return how many there were."""
        count = 0
        while self.deferred:
            self.deferred.popleft()()
            count += 1
        return count


def listen(client: Client, name: str, **request: object) -> Inbox:
    """Subscribe without a window that fills, unless the request has one."""
    return client.subscribe(f"topic://ActiveMQ.Advisory.{name}", **({"prefetch": 10_000} | request))


def about(inbox: Inbox) -> list[tuple[str, bool]]:
    """Return the destinations of what came, and whether they were created."""
    infos = [from_store(delivery.message.data).data_structure for delivery in inbox.deliveries]
    assert all(isinstance(info, DestinationInfo) for info in infos)
    return [(info.destination.name, info.operation_type == DestinationOperation.ADD) for info in infos]


@pytest.fixture
def broker() -> Broker:
    return Broker()


def create(broker: Broker, count: int) -> Client:
    client = broker.client()
    for number in range(count):
        client.connection.add_destination(queue(f"Q.{number}"))
    return client


def test_many_destinations_are_announced_in_pieces(broker):
    create(broker, 200)
    inbox = listen(broker.client(), "Queue")
    assert len(inbox.deliveries) == EXISTING_PIECE
    assert broker.run() >= 200 // EXISTING_PIECE - 1
    assert about(inbox) == [(f"Q.{number}", True) for number in range(200)]


def test_deleted_destination_is_not_announced_late(broker):
    owner = create(broker, 100)
    inbox = listen(broker.client(), "Queue")
    owner.connection.remove_destination(queue("Q.99"))
    owner.connection.add_destination(queue("new"))
    broker.run()
    found = about(inbox)
    assert found.count(("Q.99", False)) == 1
    assert ("Q.99", True) not in found
    assert found.count(("new", True)) == 1
    assert len(found) == 101


def test_subscriber_that_closes_in_between_gets_no_more(broker):
    create(broker, 200)
    inbox, other = listen(broker.client(), "Queue"), listen(broker.client(), ">")
    inbox.consumer.close()
    broker.run()
    assert len(inbox.deliveries) == EXISTING_PIECE
    assert len([each for each in other.deliveries if "Advisory.Queue" in each.message.destination.name]) == 200


def test_slow_subscriber_limits_what_waits_for_it(broker):
    create(broker, 3 * EXISTING_WAITING_MAX)
    inbox = listen(broker.client(), "Queue", prefetch=1)
    (subscription,) = inbox.consumer.sources
    broker.run()
    assert subscription.waiting_count <= EXISTING_WAITING_MAX + EXISTING_PIECE
    most = 0
    index = 0
    while index < len(inbox.deliveries):
        inbox.ack(index)
        index += 1
        broker.run()
        most = max(most, subscription.waiting_count)
    assert most <= EXISTING_WAITING_MAX + EXISTING_PIECE
    assert about(inbox) == [(f"Q.{number}", True) for number in range(3 * EXISTING_WAITING_MAX)]


def test_slow_subscriber_does_not_delay_another(broker):
    create(broker, 3 * EXISTING_WAITING_MAX)
    listen(broker.client(), "Queue", prefetch=1)
    inbox = listen(broker.client(), "Queue")
    broker.run()
    assert len(inbox.deliveries) == 3 * EXISTING_WAITING_MAX


@pytest.mark.parametrize("name", ["Consumer.Queue.Q.7", "Consumer.*.Q.7", "Consumer.Queue.*.7", "Consumer.Queue.>"])
def test_consumers_of_wanted_destinations_are_announced(broker, name):
    client = create(broker, 20)
    for number in range(20):
        client.subscribe(f"queue://Q.{number}")
    closed = client.subscribe("queue://Q.7")
    closed.consumer.close()
    inbox = listen(broker.client(), name)
    broker.run()
    infos = [from_store(delivery.message.data).data_structure for delivery in inbox.deliveries]
    assert all(isinstance(info, ConsumerInfo) for info in infos)
    wanted = range(20) if name.endswith(">") else [7]
    assert [info.destination.name for info in infos] == [f"Q.{number}" for number in wanted]


def test_jms_client_learns_of_temporary_destinations(broker):
    owner = create(broker, 1000)
    reply = owner.connection.create_temporary(parse("temp-queue://x").type)
    client = broker.client()
    inbox = Inbox()
    wanted = ConsumerRequest(
        destination=parse("topic://ActiveMQ.Advisory.TempQueue"),
        composite=(parse("topic://ActiveMQ.Advisory.TempTopic"),),
    )
    consumer = client.connection.subscribe(wanted, inbox.deliveries.append)
    consumer.start()
    broker.run()
    assert about(inbox) == [(reply.name, True)]


def test_temporary_queues_are_known_before_requests_come() -> None:
    broker = Broker()
    requester = broker.client()
    for _ in range(TEMPORARY_FIRST + 1):
        requester.connection.create_temporary(DestinationType.TEMP_QUEUE)
    inbox = listen(broker.client(), "TempQueue")
    assert len(inbox.deliveries) == TEMPORARY_FIRST
    broker.run()
    assert len(inbox.deliveries) == TEMPORARY_FIRST + 1
