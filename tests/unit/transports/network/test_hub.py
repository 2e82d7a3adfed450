"""A hub to which two spokes have opened duplex bridges: what goes from spoke to spoke makes two hops."""

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.openwire.commands import MessageDispatch
from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.openwire.conversation import OpenWireClient, of_kind, texts

Q, T = queue("Q"), topic("T")


class Hub:
    """Three brokers, `s1` and `s2` with bridges to `hub`."""

    def __init__(self, ttl: int) -> None:
        self.first = TwoBrokers(near="s1", name="toHub", duplex=True, consumer_ttl=ttl, message_ttl=ttl)
        self.second = TwoBrokers(
            near="s2", other=self.first, name="toHub", duplex=True, consumer_ttl=ttl, message_ttl=ttl
        )
        self.s1, self.hub, self.s2 = self.first.near.broker, self.first.far, self.second.near.broker
        self.pump()

    def pump(self) -> None:
        """Carry bytes over both bridges until there are none."""
        while self.first.pump() | self.second.pump():
            pass

    def client(self, broker: BrokerCore, name: str) -> OpenWireClient:
        """Return a connected client."""
        return self.first.client(broker, name)

    def consumers(self, destination: Destination, *brokers: BrokerCore) -> list[OpenWireClient]:
        """Return a client at each broker, with a consumer."""
        clients = [self.client(each, f"c{each.name}") for each in brokers]
        for each in clients:
            each.consume(destination)
            self.pump()
        return clients


def dispatches(client: OpenWireClient) -> list[MessageDispatch]:
    return of_kind(client.receive(), MessageDispatch)


def test_message_goes_from_spoke_to_spoke_over_two_hops() -> None:
    hub = Hub(2)
    (reader,) = hub.consumers(Q, hub.s2)
    hub.client(hub.s1, "p").send(Q, "1")
    hub.pump()
    (dispatch,) = dispatches(reader)
    assert dispatch.message is not None
    assert [each.value for each in dispatch.message.broker_path or () if each] == [hub.s1.id, hub.hub.id]


def test_message_stays_where_it_may_not_make_two_hops() -> None:
    hub = Hub(1)
    (reader,) = hub.consumers(Q, hub.s2)
    hub.client(hub.s1, "p").send(Q, "1")
    hub.pump()
    assert dispatches(reader) == []
    found = hub.s1.queues.get(Q)
    assert found is not None
    assert len(found.pending) == 1


def test_topic_reaches_every_broker_once() -> None:
    hub = Hub(2)
    readers = hub.consumers(T, hub.s1, hub.hub, hub.s2)
    for number, broker in enumerate((hub.s1, hub.hub, hub.s2)):
        hub.client(broker, f"p{number}").send(T, str(number))
        hub.pump()
    assert [texts(dispatches(each)) for each in readers] == [["0", "1", "2"]] * 3


def test_queue_of_the_hub_is_shared_by_consumers_of_all_brokers() -> None:
    hub = Hub(2)
    readers = hub.consumers(Q, hub.s1, hub.hub, hub.s2)
    producer = hub.client(hub.hub, "p")
    for number in range(30):
        producer.send(Q, str(number))
        hub.pump()
    assert [len(dispatches(each)) for each in readers] == [10, 10, 10]
