"""A bridge of another broker, as the acceptor: its messages, its repetitions, its refusal, its successor."""

from typing import Any, Final

import pytest

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.openwire.commands import (
    BaseCommand,
    BrokerId,
    BrokerInfo,
    BrokerSubscriptionInfo,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ConsumerInfo,
    DataStructure,
    ExceptionResponse,
    MessageAck,
    MessageDispatch,
    OpenWireMessageId,
    ProducerId,
    Response,
    SessionId,
    SessionInfo,
    ShutdownInfo,
)
from pybroker.broker.domain.openwire.marshal.wireformat import decode_offer
from pybroker.store.memory import MemoryStore
from pybroker.transports.openwire.session import Sessions
from tests.unit.domain.network.recorded import conversations
from tests.unit.transports.authenticators import FakeAuthenticator
from tests.unit.transports.openwire.conversation import OpenWireClient, World, new_broker, of_kind, texts


def frames(scenario: str, connection: int = 1) -> list[bytes]:
    """Return what the initiator sent over one connection, without size fields; its offer is the first."""
    recorded = conversations()[scenario]["frames"]
    return [
        bytes.fromhex(each["hex"])[4:]
        for each in recorded
        if each["connection"] == connection and each["from"] == "initiator"
    ]


class Initiator(OpenWireClient):
    """Replays the frames of a recorded initiator."""

    def __init__(self, broker: BrokerCore, sessions: Sessions, recorded: list[bytes]) -> None:
        super().__init__(broker, sessions, offer=decode_offer(recorded[0]))
        commands = [self.wire.decode(each) for each in recorded[1:]]
        self.commands_left = [each for each in commands if isinstance(each, BaseCommand)]

    def replay(self) -> list[DataStructure]:
        """Send all commands, one by one; return what came back."""
        return [each for command in self.commands_left for each in self.request(command)]


def bodies(dispatches: list[Any]) -> list[tuple[str | None, int]]:
    """Return the texts that a consumer has got, each with its redelivery counter."""
    found = of_kind(dispatches, MessageDispatch)
    return list(zip(texts(found), [each.redelivery_counter for each in found], strict=True))


@pytest.mark.parametrize(
    ("scenario", "connection"),
    [
        ("oneway", 1),
        ("early", 1),
        ("durable_sync", 1),
        ("durable_sync", 2),
        ("durable_sync", 3),
        ("static_failover", 1),
        ("static_failover", 2),
        ("lost", 2),
    ],
)
def test_recorded_bridge_is_answered_without_an_error(scenario: str, connection: int) -> None:
    recorded = frames(scenario, connection)
    initiator = Initiator(new_broker(), Sessions(), recorded)
    asked = [
        each.command_id
        for each in initiator.commands_left
        if each.response_required and not isinstance(each, ShutdownInfo)
    ]
    answers = initiator.replay()
    assert isinstance(answers[0], BrokerInfo)
    assert of_kind(answers, ConnectionErrorCommand) == []
    assert of_kind(answers, ExceptionResponse) == []
    assert [each.correlation_id for each in of_kind(answers, Response)] == asked


def test_bridge_that_lost_its_answers_delivers_once() -> None:
    """The recording goes on with the same messages over a second connection, marked as redelivered."""
    world = World()
    reader = world.client("reader")
    assert reader.consume(queue("Q")) == []
    first = Initiator(world.broker, world.sessions, frames("lost"))
    first.replay()
    got = reader.receive()
    assert bodies(got) == [("m1", 0), ("m2", 0), ("np", 0)]
    reader.ack(of_kind(got, MessageDispatch))
    first.session.lost()
    again = Initiator(world.broker, world.sessions, frames("lost", 2))
    answers = again.replay()
    assert [each.correlation_id for each in of_kind(answers, Response)] == [6, 7, 8]
    assert reader.receive() == []


def test_restarted_acceptor_knows_what_it_has_accepted() -> None:
    """The messages were consumed, their answers lost, and the acceptor started again before the bridge came back."""
    store = MemoryStore()
    world = World(store)
    reader = world.client("reader")
    reader.consume(queue("Q"))
    Initiator(world.broker, world.sessions, frames("lost")).replay()
    got = of_kind(reader.receive(), MessageDispatch)
    assert len(got) == 3
    reader.ack(got)
    world = World(store)
    reader = world.client("reader")
    reader.consume(queue("Q"))
    answers = Initiator(world.broker, world.sessions, frames("lost", 2)).replay()
    assert [each.correlation_id for each in of_kind(answers, Response)] == [6, 7, 8]
    assert bodies(reader.receive()) == [("np", 1)], "only the message that is not persistent comes again"


def test_message_forwarded_again_is_delivered_as_redelivered() -> None:
    """What the first connection could not deliver arrives with the counter of the bridge."""
    world = World()
    reader = world.client("reader")
    reader.consume(queue("Q"))
    Initiator(world.broker, world.sessions, frames("lost", 2)).replay()
    assert bodies(reader.receive()) == [("m1", 1), ("m2", 1), ("np", 1)]


def test_bridge_under_failover_loses_no_message() -> None:
    """Its sequence numbers are of several producers; ActiveMQ takes the second and third message for duplicates."""
    world = World()
    readers = {name: world.client(name) for name in ("Q1", "Q2")}
    for name, reader in readers.items():
        reader.consume(queue(name))
    first = Initiator(world.broker, world.sessions, frames("static_failover"))
    first.replay()
    first.session.lost()
    Initiator(world.broker, world.sessions, frames("static_failover", 2)).replay()
    assert [text for text, _ in bodies(readers["Q1"].receive())] == ["1", "3"]
    assert [text for text, _ in bodies(readers["Q2"].receive())] == ["2"]


def test_advisories_are_acknowledged_in_bulk() -> None:
    """A bridge acknowledges by number, with the last message id alone."""
    world = World()
    bridge = bridge_of(world, "a")
    bridge.send_commands(session_of(bridge))
    advisories = ConsumerInfo(
        command_id=4,
        consumer_id=bridge.consumer(),
        destination=topic("ActiveMQ.Advisory.Consumer.>"),
        prefetch_size=20,
    )
    bridge.send_commands(advisories)
    reader = world.client("reader")
    for number in range(1, 41):
        reader.consume(queue("Q"), number)
    got = of_kind(bridge.receive(), MessageDispatch)
    assert len(got) == 20
    for number in range(2):
        last = got[-1]
        assert last.message is not None
        got = of_kind(
            bridge.request(
                MessageAck(
                    command_id=5 + number,
                    consumer_id=bridge.consumer(),
                    destination=last.destination,
                    last_message_id=last.message.message_id,
                    message_count=16,
                    ack_type=2,
                )
            ),
            MessageDispatch,
        )
        assert len(got) == (16 if number == 0 else 4)


# ---------------------------------------------------------------- refusals, and the next connection


def bridge_of(
    world: World,
    broker: str,
    *,
    connection: str = "a->b-1:2",
    broker_id: str | None = "ID:a",
    asks: str = "",
    user: str = "u",
    **details: Any,
) -> OpenWireClient:
    """Return a bridge whose BrokerInfo and ConnectionInfo are sent, one way."""
    bridge = world.new_client(**details)
    bridge.id = connection
    info = BrokerInfo(
        command_id=1,
        broker_id=None if broker_id is None else BrokerId(broker_id),
        broker_name=broker,
        network_connection=True,
        network_properties=f"#\npassword=secret\n{asks}",
    )
    bridge.send_commands(
        info,
        ConnectionInfo(
            command_id=2,
            connection_id=ConnectionId(connection),
            client_id="nc_a_outbound",
            user_name=user,
            password="right",
        ),
    )
    return bridge


def session_of(bridge: OpenWireClient) -> SessionInfo:
    return SessionInfo(command_id=3, session_id=SessionId(bridge.id, 1))


@pytest.mark.parametrize(
    ("broker", "broker_id"), [("a", "ID:a"), ("a", "ID:after a restart"), ("renamed", "ID:a"), ("a", None)]
)
def test_half_open_bridge_is_replaced(broker: str, broker_id: str | None) -> None:
    world = World()
    former = bridge_of(world, "a")
    successor = bridge_of(world, broker, connection="a->b-2:2", broker_id=broker_id)
    assert former.link.closed
    assert of_kind(successor.receive(), ConnectionErrorCommand) == []
    assert not successor.link.closed
    assert [each.connection_id for each in world.broker.connections()] == ["a->b-2:2"]


def test_replaced_bridge_of_a_broker_with_another_id_gets_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    former = bridge_of(world, "a")
    bridge_of(world, "a", connection="a->b-2:2", broker_id="ID:another")
    (error,) = of_kind(former.receive(), ConnectionErrorCommand)
    assert error.exception is not None
    assert "another broker named 'a' has opened a bridge with the client id nc_a_outbound" in str(
        error.exception.message
    )
    assert str(error.exception.message) in caplog.text


def test_replaced_bridge_of_the_same_broker_gets_no_error(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    former = bridge_of(world, "a")
    bridge_of(world, "a", connection="a->b-2:2")
    assert of_kind(former.receive(), ConnectionErrorCommand) == []
    assert "give each broker" not in caplog.text


def test_bridge_of_another_broker_replaces_none() -> None:
    world = World()
    former = bridge_of(world, "a")
    other = bridge_of(world, "x", connection="x->b-1:2", broker_id="ID:x")
    assert not former.link.closed
    (error,) = of_kind(other.receive(), ConnectionErrorCommand)
    assert error.exception is not None
    assert error.exception.class_name == "javax.jms.InvalidClientIDException"
    assert "already connected" in str(error.exception.message)


def test_bridge_of_another_user_replaces_none() -> None:
    world = World()
    former = bridge_of(world, "a", user="someone else")
    other = bridge_of(world, "a", connection="a->b-2:2", authenticator=FakeAuthenticator())
    assert not former.link.closed
    assert len(of_kind(other.receive(), ConnectionErrorCommand)) == 1


def test_client_replaces_no_bridge() -> None:
    world = World()
    former = bridge_of(world, "a")
    client = world.new_client()
    (refused,) = of_kind(client.connect("c", client_id="nc_a_outbound"), ExceptionResponse)
    assert refused.exception is not None
    assert not former.link.closed


def test_bridge_replaces_no_client_of_its_client_id() -> None:
    world = World()
    client = world.client("c", client_id="nc_a_outbound")
    bridge = bridge_of(world, "a")
    assert not client.link.closed
    assert len(of_kind(bridge.receive(), ConnectionErrorCommand)) == 1


def test_refused_bridge_reads_the_cause_before_the_close() -> None:
    world = World()
    bridge_of(world, "a")
    other = bridge_of(world, "x", connection="x->b-1:2", broker_id="ID:x")
    received = other.request(session_of(other))
    assert len(of_kind(received, ConnectionErrorCommand)) == 1
    other.wait(1.9)
    assert not other.link.closed
    other.wait(0.2)
    assert other.link.closed


def test_second_broker_info_is_ignored() -> None:
    world = World()
    former = bridge_of(world, "a")
    thief = world.new_client()
    for name in ("x", "a"):
        info = BrokerInfo(command_id=1, broker_id=BrokerId(f"ID:{name}"), broker_name=name, network_connection=True)
        thief.send_commands(info)
    thief.send_commands(ConnectionInfo(command_id=2, connection_id=ConnectionId("x->b-1:2"), client_id="nc_a_outbound"))
    assert not former.link.closed
    assert len(of_kind(thief.receive(), ConnectionErrorCommand)) == 1


def test_bridge_before_its_login_is_none() -> None:
    """A BrokerInfo alone replaces no connection."""
    world = World()
    former = bridge_of(world, "a")
    world.new_client().send_commands(
        BrokerInfo(command_id=1, broker_id=BrokerId("ID:a"), broker_name="a", network_connection=True)
    )
    assert not former.link.closed


# ---------------------------------------------------------------- durable subscriptions, users


ASKS: Final = "syncDurableSubs=true\ndynamicallyIncludedDestinations=[topic\\://D.>, queue\\://Q]"


def durable_of(world: World, name: str, destination: Destination, **details: Any) -> OpenWireClient:
    client = world.client(name)
    client.consume(destination, subscription_name=f"of {name}", **details)
    return client


@pytest.mark.parametrize("is_online", [True, False])
def test_bridge_gets_the_durable_subscriptions_it_asks_for(is_online: bool) -> None:
    world = World()
    wanted = durable_of(world, "d", topic("D.1"), selector="n = 1")
    durable_of(world, "e", topic("E"))
    if not is_online:
        wanted.session.lost()
    (info,) = of_kind(bridge_of(world, "a", asks=ASKS).receive(), BrokerSubscriptionInfo)
    assert info.broker_name == world.broker.name
    assert info.subscription_infos is not None
    (found,) = info.subscription_infos
    assert found is not None
    assert (found.client_id, found.subscription_name, found.destination) == ("d", "of d", topic("D.1"))
    assert found.selector == "n = 1"


@pytest.mark.parametrize(
    "asks",
    ["", "syncDurableSubs=true", ASKS.replace("true", "false")],
)
def test_bridge_that_does_not_ask_gets_no_durable_subscriptions(asks: str) -> None:
    world = World()
    durable_of(world, "d", topic("D.1"))
    assert of_kind(bridge_of(world, "a", asks=asks).receive(), BrokerSubscriptionInfo) == []


def test_user_of_a_forwarded_message_stays() -> None:
    world = World()
    reader = world.client("reader")
    reader.consume(queue("Q"))
    bridge = bridge_of(world, "a", authenticator=FakeAuthenticator())
    bridge.open_session()
    theirs = OpenWireMessageId(None, ProducerId("ID:theirs", 1, 1), 1)
    bridge.send(queue("Q"), "m", message_id=theirs, user_id="someone", broker_path=(BrokerId("ID:a"),))
    (dispatch,) = of_kind(reader.receive(), MessageDispatch)
    assert dispatch.message is not None
    assert dispatch.message.user_id == "someone"
