"""A duplex bridge between two brokers of this process: messages go both ways over its one connection."""

import logging
from typing import Any

import pytest

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.openwire.commands import BrokerId, BrokerInfo, ConnectionId, MessageDispatch, RemoveInfo
from pybroker.broker.domain.openwire.marshal.wireformat import agree, broker_offer, encode_offer
from pybroker.broker.domain.rules import Grants, Rule, Rules
from pybroker.transports.network.bridge import BridgeEnd
from tests.unit.transports.network.bridges import Near, TwoBrokers
from tests.unit.transports.openwire.conversation import OpenWireClient, of_kind, texts

Q, T = queue("Q"), topic("T")


def got(client: OpenWireClient) -> list[str | None]:
    """Return the texts that a client has got, and acknowledge them."""
    dispatches = of_kind(client.receive(), MessageDispatch)
    for each in dispatches:
        client.ack([each])
    return texts(dispatches)


def waiting(broker: BrokerCore, destination: Destination = Q) -> int:
    """Return the number of messages on a queue."""
    found = broker.queues.get(destination)
    return 0 if found is None else len(found.pending) + len(found.in_flight())


class Duplex(TwoBrokers):
    """A duplex bridge, opened by `near`."""

    def __init__(self, **attributes: Any) -> None:
        details: dict[str, Any] = {"name": "nc", "duplex": True, **attributes}
        super().__init__(**details)

    def ends(self, *, is_back: bool) -> tuple[BrokerCore, BrokerCore]:
        """Return the broker that has the messages, and the one that wants them."""
        return (self.far, self.near.broker) if is_back else (self.near.broker, self.far)


@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_duplex_bridge_moves_messages_of_either_broker(is_back: bool, persistent: bool) -> None:
    brokers = Duplex()
    source, target = brokers.ends(is_back=is_back)
    producer, reader = brokers.client(source, "p"), brokers.client(target, "c")
    producer.send(Q, "1", "2", persistent=persistent)
    reader.consume(Q)
    brokers.pump()
    assert got(reader) == ["1", "2"]
    producer.send(Q, "3", persistent=persistent)
    brokers.pump()
    assert got(reader) == ["3"]
    brokers.pump()
    assert (waiting(source), waiting(target)) == (0, 0)


@pytest.mark.parametrize("is_back", [False, True])
def test_duplex_bridge_begun_late_moves_the_backlog(is_back: bool) -> None:
    brokers = Duplex()
    brokers.cut()
    source, target = brokers.ends(is_back=is_back)
    producer, reader = brokers.client(source, "p"), brokers.client(target, "c")
    producer.send(Q, "1", "2")
    reader.consume(Q)
    brokers.connect(name="nc", duplex=True)
    assert got(reader) == ["1", "2"]


def test_accepted_bridge_has_its_begin_and_end_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pybroker.transports.network")
    brokers = Duplex()
    begin = [each.getMessage() for each in caplog.records]
    assert [" is open: broker near, id " in line for line in begin] == [True]
    caplog.clear()
    brokers.cut()
    assert [each.getMessage() for each in caplog.records] == [f"{begin[0].partition(' is open')[0]} has ended"]


def test_duplex_bridge_carries_both_ways_at_once() -> None:
    brokers = Duplex()
    near, far = brokers.client(brokers.near.broker, "n"), brokers.client(brokers.far, "f")
    near.consume(T)
    far.consume(T)
    brokers.pump()
    brokers.client(brokers.near.broker, "np").send(T, "of near")
    brokers.client(brokers.far, "fp").send(T, "of far")
    brokers.pump()
    assert got(near) == ["of near", "of far"]
    assert got(far) == ["of far", "of near"]
    brokers.pump()
    assert brokers.session.end is None


def test_end_of_demand_ends_the_flow_back() -> None:
    brokers = Duplex()
    producer, reader = brokers.client(brokers.far, "p"), brokers.client(brokers.near.broker, "c")
    reader.consume(Q)
    brokers.pump()
    reader.session.lost()
    brokers.pump()
    producer.send(Q, "1")
    brokers.pump()
    assert (waiting(brokers.far), waiting(brokers.near.broker)) == (1, 0)


@pytest.mark.parametrize(
    ("near", "attributes", "said"),
    [
        ("a\nWARNING forged", {}, "the id of the remote broker has 19 characters"),
        ("x" * 256, {}, "the id of the remote broker has 259 characters"),
        ("near", {"name": "nc\x1b[31m"}, "the name of the remote broker's connector has 7 characters"),
        ("near", {"name": "n" * 256}, "the name of the remote broker's connector has 256 characters"),
        ("near", {"prefetch_size": 0}, "a duplex bridge with a prefetch size of 0"),
        ("near", {"advisory_prefetch_size": -1}, "a duplex bridge with a prefetch size of advisories of -1"),
        ("near", {"consumer_priority_base": 128}, "a duplex bridge with a consumer priority base of 128"),
        ("near", {"client_id_token": "\n"}, "the token of the remote broker's client ids has 1 characters"),
        ("near", {"advisory_ack_percentage": 10**400}, "a duplex bridge with a percentage for acknowledgements of 100"),
        ("near", {"replay_delay": 10**400}, "a duplex bridge with a replay delay of 100"),
    ],
)
def test_names_and_numbers_of_another_program_are_refused(near: str, attributes: dict[str, Any], said: str) -> None:
    """They would become parts of client ids, names of durable subscriptions, and lines of logs."""
    brokers = TwoBrokers(near=near, duplex=True, **attributes)
    (ended,) = brokers.near.ended
    assert ended.end is BridgeEnd.REFUSED
    assert ended.reason.startswith(said)
    assert list(brokers.far.connections()) == []


def remove_connection(brokers: Duplex, connection_id: str) -> None:
    """Let the far broker get a RemoveInfo over the bridge."""
    removal = RemoveInfo(object_id=ConnectionId(connection_id))
    brokers.link.write(agree(broker_offer(), broker_offer()).wire_format().encode_frame(removal))
    brokers.pump()


def test_removal_of_a_connection_of_others_leaves_a_duplex_bridge() -> None:
    brokers = Duplex()
    reader, other = brokers.client(brokers.near.broker, "c"), brokers.client(brokers.far, "other")
    reader.consume(Q)
    for connection_id in ("ID:unknown", other.id):
        remove_connection(brokers, connection_id)
    other.send(Q, "1")
    brokers.pump()
    assert got(reader) == ["1"]
    assert len(list(brokers.far.connections())) == 4, "three of the bridge, and the other client's"


def test_removal_of_its_connection_ends_the_acceptor_of_a_bridge() -> None:
    brokers = Duplex()
    (mine,) = [each.connection_id for each in brokers.far.connections() if each.client_id == "nc_near_outbound"]
    remove_connection(brokers, mine)
    assert list(brokers.far.connections()) == []
    assert not brokers.far_session.is_connected


def test_clients_of_a_duplex_bridge_have_the_names_of_activemq() -> None:
    brokers = Duplex()
    assert {each.client_id for each in brokers.near.broker.connections()} == {
        "nc_far_inbound_near",
        "nc_far_inbound_duplex_near",
        "nc_far_outbound",
    }
    assert {each.client_id for each in brokers.far.connections()} == {
        "nc_near_inbound_far",
        "nc_near_inbound_duplex_far",
        "nc_near_outbound",
    }


def test_client_id_token_joins_the_names_at_both_ends() -> None:
    brokers = Duplex(client_id_token="-")
    assert {each.client_id for each in brokers.near.broker.connections()} == {
        "nc-far-inbound-near",
        "nc-far-inbound-duplex-near",
        "nc-far-outbound",
    }
    assert {each.client_id for each in brokers.far.connections()} == {
        "nc-near-inbound-far",
        "nc-near-inbound-duplex-far",
        "nc-near-outbound",
    }


@pytest.mark.parametrize("persistent", [False, True])
def test_initiator_drops_what_the_acceptor_sends_again(*, persistent: bool) -> None:
    """As `checkDuplicateMessagesOnDuplex` asks of an ActiveMQ: the answers were lost, and the consumer has acted."""
    brokers = Duplex()
    producer, reader = brokers.client(brokers.far, "p"), brokers.client(brokers.near.broker, "c")
    reader.consume(Q)
    brokers.pump()
    producer.send(Q, "1", "2", persistent=persistent)
    sent, brokers.far_link.output = bytes(brokers.far_link.output), bytearray()
    brokers.session.receive(sent)
    assert got(reader) == ["1", "2"]
    assert waiting(brokers.far) == 2, "it has no answer"
    brokers.cut()
    brokers.connect(name="nc", duplex=True)
    assert got(reader) == []
    assert (waiting(brokers.far), waiting(brokers.near.broker)) == (0, 0)
    producer.send(Q, "3", persistent=persistent)
    brokers.pump()
    assert got(reader) == ["3"]


def test_end_of_a_duplex_bridge_leaves_nothing() -> None:
    brokers = Duplex()
    brokers.client(brokers.near.broker, "n").consume(Q)
    brokers.client(brokers.far, "f").consume(Q)
    brokers.pump()
    brokers.cut()
    assert [each.client_id for each in brokers.near.broker.connections()] == ["n"]
    assert [each.client_id for each in brokers.far.connections()] == ["f"]
    assert brokers.near.broker.admin.consumer_count(Q) == brokers.far.admin.consumer_count(Q) == 1


def test_unanswered_messages_of_the_acceptor_return_in_order() -> None:
    brokers = Duplex()
    producer, reader = brokers.client(brokers.far, "p"), brokers.client(brokers.near.broker, "c")
    reader.consume(Q)
    brokers.pump()
    producer.send(Q, "1", "2", "3")
    brokers.cut()
    local = brokers.client(brokers.far, "local")
    dispatches = local.consume(Q)
    assert texts(dispatches) == ["1", "2", "3"]


def test_half_open_duplex_bridge_is_replaced_at_once() -> None:
    brokers = Duplex()
    producer, reader = brokers.client(brokers.far, "p"), brokers.client(brokers.near.broker, "c")
    reader.consume(Q)
    brokers.pump()
    former = brokers.far_link
    brokers.session.lost()  # the acceptor does not notice
    brokers.connect(name="nc", duplex=True)
    assert former.closed
    assert brokers.session.end is None
    producer.send(Q, "1")
    brokers.pump()
    assert got(reader) == ["1"]


def test_destination_that_is_not_permitted_is_refused() -> None:
    """The acceptor may not forward it either, so the message stays where it is."""
    brokers = Duplex(excluded=(Q,))
    producer, reader = brokers.client(brokers.far, "p"), brokers.client(brokers.near.broker, "c")
    reader.consume(queue(">"))
    brokers.pump()
    producer.send(Q, "1")
    producer.send(queue("R"), "2")
    brokers.pump()
    assert got(reader) == ["2"]
    assert waiting(brokers.far) == 1


def test_static_destinations_are_static_at_both_ends() -> None:
    brokers = Duplex(statically_included=(Q,))
    brokers.client(brokers.far, "p").send(Q, "1")
    brokers.pump()
    assert (waiting(brokers.far), waiting(brokers.near.broker)) == (0, 1)


def test_many_advisories_pass_a_narrow_window_both_ways() -> None:
    brokers = Duplex(advisory_prefetch_size=4)
    near, far = brokers.client(brokers.near.broker, "n"), brokers.client(brokers.far, "f")
    for number in range(20):
        near.consume(queue(f"N.{number}"), number + 1)
        far.consume(queue(f"F.{number}"), number + 1)
        brokers.pump()
    for number in range(20):
        far.send(queue(f"N.{number}"), str(number))
        near.send(queue(f"F.{number}"), str(number))
    brokers.pump()
    assert got(near) == got(far) == [str(number) for number in range(20)]


def test_demand_of_a_duplex_bridge_does_not_come_back() -> None:
    brokers = Duplex(consumer_ttl=-1, message_ttl=-1)
    brokers.client(brokers.near.broker, "n").consume(Q)
    brokers.pump()
    assert (brokers.near.broker.admin.consumer_count(Q), brokers.far.admin.consumer_count(Q)) == (1, 1)


def test_durable_subscription_at_the_initiator_collects_at_the_acceptor() -> None:
    brokers = Duplex()
    producer, reader = brokers.client(brokers.far, "p"), brokers.client(brokers.near.broker, "c")
    reader.consume(T, subscription_name="s")
    brokers.pump()
    assert [each.key for each in brokers.far.subscriptions_of("nc_near_inbound_far")] == [
        "nc_near_inbound_far:NC-DS_far_T"
    ]
    brokers.cut()
    producer.send(T, "1", "2")
    brokers.connect(name="nc", duplex=True)
    assert got(reader) == ["1", "2"]


def test_large_message_goes_either_way_in_pieces() -> None:
    brokers = Duplex()
    body = "x" * (300 << 10)
    for source, target in (brokers.ends(is_back=False), brokers.ends(is_back=True)):
        producer, reader = brokers.client(source, "p"), brokers.client(target, "c")
        reader.consume(Q)
        brokers.pump()
        producer.send(Q, body, "small")
        brokers.pump(chunk_bytes=8 << 10)
        assert got(reader) == [body, "small"]
        brokers.pump()
        reader.session.lost()
        producer.session.lost()
        brokers.pump()
    assert brokers.session.end is None


def test_bridge_of_a_user_without_the_right_goes_one_way() -> None:
    brokers = TwoBrokers()
    every, admins = frozenset("*"), frozenset(("admins",))
    brokers.cut()
    brokers.far.use_rules(
        Rules((Rule(queue(">"), Grants(every, every, admins)), Rule(topic(">"), Grants(every, every, every))))
    )
    brokers.connect(name="nc", duplex=True)
    assert brokers.session.end is None
    assert [each.client_id for each in brokers.far.connections()] == ["nc_near_outbound"]


def test_second_bridge_of_a_name_does_not_replace_the_first() -> None:
    """So it is too if each of two brokers has a duplex connector of that name."""
    brokers = Duplex()
    first = brokers.session
    session, link = Near(brokers.near.broker).bridge(name="nc", duplex=True)
    introduction = BrokerInfo(broker_id=BrokerId(brokers.far.id), broker_name="far")
    session.receive(encode_offer(broker_offer()))
    wire = agree(broker_offer(), broker_offer()).wire_format()
    session.receive(wire.encode_frame(introduction))
    assert session.end is BridgeEnd.LOST
    assert "already connected" in session.reason
    assert "give each connector a name of its own" in session.reason
    assert link.closed
    assert first.end is None


def test_duplex_bridge_back_of_the_same_name_gets_the_remedy() -> None:
    """It is refused at the other broker, whose own bridge has the client id, and the reason comes back."""
    brokers = TwoBrokers(name="nc")
    back = Duplex(near_broker=brokers.far, far_broker=brokers.near.broker)
    (ended,) = back.near.ended
    assert ended.end is BridgeEnd.REFUSED
    assert "give each connector a name of its own" in ended.reason
    assert brokers.session.end is None


@pytest.mark.parametrize("duplex", [False, True])
def test_second_address_of_the_same_broker_gets_the_remedy(duplex: bool) -> None:
    brokers = TwoBrokers(name="nc", duplex=duplex)
    first = brokers.session
    brokers.connect(name="nc", duplex=duplex)
    (ended,) = brokers.near.ended
    assert "if two addresses lead to the same broker, remove one of them, or write masterslave:" in ended.reason
    assert first.end is None


def test_offline_subscriptions_of_the_initiator_collect_at_once() -> None:
    """Its list comes before its ConnectionInfo. Without it the first messages would be lost to the subscriber."""
    brokers = Duplex(sync_durable_subs=True)
    brokers.cut()
    subscriber = brokers.client(brokers.near.broker, "s")
    subscriber.consume(topic("D"), subscription_name="sub")
    subscriber.session.lost()
    brokers.connect(duplex=True, sync_durable_subs=True)
    assert [each.name for each in brokers.far.admin.durable_subscriptions()] == ["NC-DS_far_D"]
    brokers.client(brokers.far, "p").send(topic("D"), "1")
    brokers.pump()
    returned = OpenWireClient(brokers.near.broker)
    returned.connect("s2", client_id="s")
    returned.open_session()
    assert texts(returned.consume(topic("D"), subscription_name="sub")) == ["1"]
