"""Begin of a conversation: negotiation, login, reconnection."""

import logging

import pytest

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.openwire.commands import (
    BrokerInfo,
    ConnectionControl,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    ExceptionResponse,
    MessageDispatch,
    ProducerInfo,
    RemoveInfo,
    Response,
    SessionId,
    SessionInfo,
    ShutdownInfo,
    TransactionInfo,
    TransactionType,
    WireFormatInfo,
)
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, encode_offer
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.transports.openwire.states import OpenWireState
from tests.unit.transports.openwire.conversation import JAVA, OpenWireClient, World, settings, texts

ORDERS = queue("ORDERS")


def test_broker_offers_its_format_at_once_and_nothing_more(world: World) -> None:
    client = world.new_client(sends_offer=False)
    assert client.session.state is OpenWireState.NEGOTIATING
    assert client.read_frames() == []
    assert not client.broker_offer.tight_encoding_enabled
    assert not client.broker_offer.cache_enabled


@pytest.mark.parametrize("version", range(1, 13))
def test_broker_info_comes_first_in_every_version(world: World, version: int) -> None:
    client = world.new_client(offer=Offer(version=version))
    first, *others = client.receive()
    assert isinstance(first, BrokerInfo)
    assert (first.broker_name, first.broker_url, first.command_id) == ("b1", "tcp://b1:61616", 0)
    assert not first.response_required
    assert others == []
    assert client.session.state is OpenWireState.AGREED


def test_minimal_wire_format_info_is_enough(world: World) -> None:
    client = world.new_client(offer=Offer(version=12), sends_offer=False)
    client.session.receive(bytes.fromhex("00000016014163746976654d510000000c010000000400000000"))
    assert isinstance(client.receive()[0], BrokerInfo)
    assert client.link.wakes_at == 300.0, "no inactivity is watched when one side has no number for it"


def test_a_number_of_a_wrong_type_closes(world: World) -> None:
    client = world.new_client(sends_offer=False)
    info = WireFormatInfo(version=12, marshalled_properties=encode_map({"CacheSize": "many"}))
    client.session.receive(client.wire.encode_frame(info))
    assert client.link.closed


def test_a_flag_of_a_wrong_type_is_false(world: World) -> None:
    client = world.new_client(sends_offer=False)
    info = WireFormatInfo(version=12, marshalled_properties=encode_map({"CacheEnabled": "true"}))
    client.session.receive(client.wire.encode_frame(info))
    assert client.session.state is OpenWireState.AGREED


def test_silent_peer_is_closed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    client = world.new_client(sends_offer=False)
    client.wait(29.9)
    assert not client.link.closed
    client.wait(0.2)
    assert client.link.closed
    assert client.session.state is OpenWireState.CLOSED
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_first_frame_has_a_limit_of_its_own(world: World) -> None:
    client = world.new_client(sends_offer=False)
    client.session.receive(INT.pack(1 << 20))
    assert client.link.closed


def test_a_second_wire_format_info_closes(world: World) -> None:
    client = world.client()
    client.session.receive(encode_offer(JAVA))
    assert isinstance(client.receive()[-1], ConnectionErrorCommand)
    assert client.link.closed


def test_magic_must_be_right(world: World) -> None:
    client = world.new_client(sends_offer=False)
    client.session.receive(encode_offer(JAVA).replace(b"ActiveMQ", b"ActivEMQ", 1))
    assert client.link.closed


def test_connection_is_answered_and_managed_on_request(world: World) -> None:
    answer, control = world.new_client().connect(manageable=True)
    assert isinstance(answer, Response)
    assert isinstance(control, ConnectionControl)
    assert (control.connected_brokers, control.reconnect_to, control.rebalance_connection) == ("", "", False)


@pytest.mark.parametrize(("fault_tolerant", "expected"), [(True, "tcp://a:1,tcp://b:1"), (False, "")])
def test_failover_client_gets_the_other_brokers(world: World, fault_tolerant: bool, expected: str) -> None:
    client = world.new_client(of_broker=settings(connected_brokers="tcp://a:1,tcp://b:1"))
    control = client.connect(manageable=True, fault_tolerant=fault_tolerant)[-1]
    assert isinstance(control, ConnectionControl)
    assert control.connected_brokers == expected


def test_the_same_connection_info_again_succeeds(world: World) -> None:
    client = world.client(session=False)
    again = ConnectionInfo(connection_id=ConnectionId(client.id), client_id="c1")
    client.answer(again, Response)
    assert client.session.state is OpenWireState.CONNECTED


def test_another_connection_on_the_same_socket_is_refused(world: World) -> None:
    client = world.client(session=False)
    name, _ = client.refused(ConnectionInfo(connection_id=ConnectionId("ID:other"), client_id="other"))
    assert name == "java.lang.IllegalStateException"
    assert client.link.closed


@pytest.mark.parametrize("client_id", [None, ""])
def test_a_client_id_is_needed(world: World, client_id: str | None) -> None:
    client = world.new_client()
    client.receive()
    name, _ = client.refused(ConnectionInfo(connection_id=ConnectionId("ID:c1"), client_id=client_id))
    assert name == "javax.jms.InvalidClientIDException"
    assert client.link.closed


@pytest.mark.parametrize("connection_id", [None, ConnectionId(None), ConnectionId("")])
def test_a_connection_id_is_needed(world: World, connection_id: ConnectionId | None) -> None:
    client = world.new_client()
    client.receive()
    client.refused(ConnectionInfo(connection_id=connection_id, client_id="c1"))
    assert client.link.closed


def test_client_id_in_use_is_refused_and_its_owner_stays(world: World) -> None:
    owner = world.client("c1", client_id="shop")
    late = world.new_client()
    late.receive()
    name, _ = late.refused(ConnectionInfo(connection_id=ConnectionId("ID:c2"), client_id="shop"))
    assert name == "javax.jms.InvalidClientIDException"
    assert late.link.closed
    assert owner.consume(ORDERS) == []


def test_one_way_connection_info_that_fails_is_complained_about(world: World) -> None:
    world.client("c1", client_id="shop")
    late = world.new_client()
    received = late.request(ConnectionInfo(connection_id=ConnectionId("ID:c2"), client_id="shop"))
    assert isinstance(received[-1], ConnectionErrorCommand)
    assert late.link.closed


def test_client_that_comes_back_takes_over(world: World) -> None:
    """Its former socket is closed, what it held goes back, its transactions and client id are free."""
    before = world.client("c1")
    before.send(ORDERS, "a", "b")
    before.consume(ORDERS)
    before.send_commands(_begin(before))
    before.send(ORDERS, "c", transaction_id=LocalTransactionId(before.id, 1), response_required=False)

    assert world.sessions.reconnection_count == 0
    after = world.client("c1", failover_reconnect=True)

    assert world.sessions.reconnection_count == 1
    assert before.link.closed
    assert before.session.state is OpenWireState.CLOSED
    assert world.sessions.by_id == {"ID:c1": after.session}
    assert [(each.redelivery_counter) for each in after.consume(ORDERS)] == [1, 1]
    before.session.lost()
    assert world.sessions.by_id == {"ID:c1": after.session}, "the late end of the former socket changes nothing"
    after.sent = before.sent
    assert texts(after.send(ORDERS, "d")) == ["d"]


def test_durable_subscription_moves_to_reconnected_client(world: World) -> None:
    before = world.client("c1")
    before.consume(topic("NEWS"), subscription_name="s")
    after = world.client("c1", failover_reconnect=True)
    after.consume(topic("NEWS"), subscription_name="s")
    assert texts(after.send(topic("NEWS"), "n")) == ["n"]


def test_bytes_of_a_socket_that_was_taken_over_mean_nothing(world: World) -> None:
    before = world.client("c1")
    after = world.client("c1")
    before.send_commands(before.message(ORDERS, "ghost"))
    assert before.read_frames() == []
    assert world.waiting(ORDERS) == []
    assert not after.link.closed


# ---------------------------------------------------------------- before and after the connection


def test_command_before_connection_with_response_is_refused(world: World) -> None:
    client = world.new_client()
    client.receive()
    client.id = "ID:c1"
    for command in (
        SessionInfo(session_id=SessionId("ID:c1", 1)),
        ConsumerInfo(consumer_id=ConsumerId("ID:c1", 1, 1), destination=ORDERS),
        client.message(ORDERS),
    ):
        assert client.refused(command)[0] == "java.lang.IllegalStateException"
    assert not client.link.closed


def test_command_before_connection_without_response_is_ignored(world: World) -> None:
    client = world.new_client()
    client.receive()
    assert client.request(ConnectionControl(fault_tolerant=True), SessionInfo(session_id=SessionId("ID:c1", 1))) == []


def test_leaving_is_answered_and_undoes_everything(world: World) -> None:
    client = world.client()
    client.send(ORDERS, "a")
    client.consume(ORDERS)
    client.answer(RemoveInfo(object_id=ConnectionId(client.id), last_delivered_sequence_id=-1), Response)
    assert client.session.state is OpenWireState.CLOSING
    assert not client.link.closed
    assert world.sessions.by_id == {}
    world.client("c2", client_id="c1")
    client.request(ShutdownInfo())
    assert client.link.closed
    assert client.read_frames() == []


def test_a_removed_connection_can_do_nothing_more(world: World) -> None:
    client = world.client()
    message = client.message(ORDERS)
    consumer = ConsumerInfo(consumer_id=client.consumer(), destination=ORDERS, prefetch_size=10)
    client.answer(RemoveInfo(object_id=ConnectionId(client.id)), Response)
    for command in (message, consumer, ProducerInfo(producer_id=client.producer()), _begin(client)):
        assert client.refused(command)[0] == "java.lang.IllegalStateException"
    assert world.waiting(ORDERS) == []
    assert not any(each.is_in_use for each in world.broker.queues.values())


def test_messages_before_the_leaving_in_one_chunk_are_answered(world: World) -> None:
    client = world.client()
    message = client.message(ORDERS)
    leaving = RemoveInfo(command_id=99, response_required=True, object_id=ConnectionId(client.id))
    answers = client.request(message, leaving)
    assert {each.correlation_id for each in answers if isinstance(each, Response)} == {message.command_id, 99}


def test_a_removed_connection_may_connect_again(world: World) -> None:
    client = world.client()
    client.answer(RemoveInfo(object_id=ConnectionId(client.id)), Response)
    client.answer(ConnectionInfo(connection_id=ConnectionId("ID:new"), client_id="c1"), Response)
    assert set(world.sessions.by_id) == {"ID:new"}


def test_connection_loss_counts_all_as_seen(world: World) -> None:
    client = world.client()
    client.send(ORDERS, "a", "b")
    client.consume(ORDERS)
    client.session.lost()
    client.session.lost()
    again: OpenWireClient = world.client("c2")
    assert [each.redelivery_counter for each in again.consume(ORDERS)] == [1, 1]


def test_shutdown_at_once_ends_it(world: World) -> None:
    client = world.client()
    assert client.request(ShutdownInfo(response_required=True, command_id=9)) == []
    assert client.link.closed
    assert world.sessions.by_id == {}


def test_refusals_are_logged_in_one_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client = world.client()
    caplog.clear()
    client.refused(ConsumerInfo(consumer_id=client.consumer(), destination=ORDERS, selector="a = = b"))
    assert len(caplog.records) == 1


def _begin(client: OpenWireClient) -> TransactionInfo:
    return TransactionInfo(
        connection_id=ConnectionId(client.id),
        transaction_id=LocalTransactionId(client.id, 1),
        type=TransactionType.BEGIN,
    )


def test_a_connection_refused_leaves_no_dispatches_behind(world: World) -> None:
    world.client("c1", client_id="shop").consume(ORDERS)
    late = world.new_client()
    received = late.connect("c2", client_id="shop")
    assert [type(each) for each in received] == [ExceptionResponse]
    assert not [each for each in received if isinstance(each, MessageDispatch)]


def test_frame_before_connection_info_is_small(world: World) -> None:
    client = world.new_client()
    client.receive()
    client.session.receive(INT.pack(64 * 1024 + 1))
    [error] = client.receive()
    assert isinstance(error, ConnectionErrorCommand)
    assert "a frame of 65537 bytes, where 1 to 65536 are allowed" in str(error.exception)
    assert client.link.closed


def test_connected_client_reserves_memory_for_a_large_frame(world: World) -> None:
    client = world.new_client()
    client.connect()
    client.open_session()
    frame = client.wire.encode_frame(client.message(ORDERS, "x" * 200_000))
    client.session.receive(frame[:30_000])
    assert client.link.reserved == 0
    client.session.receive(frame[30_000:100_000])
    assert client.link.reserved == len(frame)
    client.session.receive(frame[100_000:])
    assert client.link.reserved == 0
    assert isinstance(client.receive()[0], Response)


def test_closed_connection_has_the_small_limit_again(world: World) -> None:
    client = world.new_client()
    client.connect()
    client.request(RemoveInfo(object_id=ConnectionId(client.id)))
    client.session.receive(INT.pack(64 * 1024 + 1))
    assert isinstance(client.receive()[0], ConnectionErrorCommand)
    assert client.link.closed


def test_connection_is_given_up_with_the_exception_of_limits(world: World) -> None:
    client = world.new_client()
    client.connect()
    client.session.give_up(ResourceLimit("frames take too much memory"))
    [error] = client.receive()
    assert isinstance(error, ConnectionErrorCommand)
    assert error.exception is not None
    assert error.exception.class_name == "javax.jms.ResourceAllocationException"
    assert client.link.closed


def test_closed_session_keeps_no_part_of_a_frame(world: World) -> None:
    client = world.new_client()
    client.connect()
    client.session.receive(INT.pack(1_000_000) + bytes(100_000))
    client.session.lost()
    assert (client.session._frames.unfinished, client.session._frames.data) == (0, b"")


def test_peer_is_a_client_while_it_has_a_connection(world: World) -> None:
    peer = world.new_client()
    assert not peer.session.is_connected
    peer.connect()
    assert peer.session.is_connected
    peer.remove(ConnectionId(peer.id))
    assert not peer.session.is_connected
