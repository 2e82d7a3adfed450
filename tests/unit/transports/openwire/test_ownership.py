"""Each id belongs to the connection that it names; no client gets at another's messages, transactions or identity."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from pybroker.broker.domain.destination import Destination, DestinationType, queue
from pybroker.broker.domain.errors import InvalidClientId
from pybroker.broker.domain.openwire.commands import (
    BaseCommand,
    BrokerInfo,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    ExceptionResponse,
    MessageDispatch,
    OpenWireMessageId,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    Response,
    SessionId,
    SessionInfo,
    TransactionInfo,
    TransactionType,
)
from pybroker.broker.domain.rules import Grants, Rule, Rules
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.transports.openwire import ownership
from pybroker.transports.openwire.ownership import ConnectionOwners
from tests.unit.transports.openwire.conversation import JAVA, OpenWireClient, World, of_kind, texts

ORDERS = Destination(DestinationType.QUEUE, "ORDERS")
OTHER = "ID:owner"


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    "command",
    [
        SessionInfo(session_id=SessionId(OTHER, 1)),
        SessionInfo(session_id=SessionId(None, 1)),
        ProducerInfo(producer_id=ProducerId(OTHER, 1, 1)),
        ProducerInfo(producer_id=ProducerId(OTHER, -1, 1)),
        ProducerInfo(producer_id=ProducerId(None, 1, 1)),
        ConsumerInfo(consumer_id=ConsumerId(OTHER, 1, 1), destination=ORDERS, prefetch_size=1),
        TransactionInfo(
            connection_id=ConnectionId("ID:stranger"),
            transaction_id=LocalTransactionId(OTHER, 1),
            type=TransactionType.BEGIN,
        ),
        RemoveInfo(object_id=SessionId(OTHER, 1)),
        RemoveInfo(object_id=ProducerId(OTHER, 1, 1)),
        RemoveInfo(object_id=ConsumerId(OTHER, 1, 1)),
    ],
    ids=lambda command: type(command).__name__,
)
def test_ids_of_another_connection_are_refused(world: World, command: BaseCommand) -> None:
    owner = world.client("owner")
    stranger = world.client("stranger")
    name, text = stranger.refused(command)
    assert name == "java.lang.IllegalStateException"
    assert text.endswith("belongs to another connection than ID:stranger")
    assert not stranger.link.closed
    assert of_kind(stranger.send(ORDERS, "own"), ExceptionResponse) == []
    assert of_kind(owner.send(ORDERS, "own"), ExceptionResponse) == []


@pytest.mark.parametrize("version", [9, 12], ids=["decoded", "verbatim"])
@pytest.mark.parametrize("persistent", [True, False])
def test_message_id_of_another_producer_is_refused(world: World, version: int, persistent: bool) -> None:
    owner = world.client("owner")
    stranger = world.client("stranger", offer=_offer(version))
    for number in range(1, 4):
        foreign = OpenWireMessageId(None, owner.producer(), number)
        name, text = stranger.refused(stranger.message(ORDERS, "forged", message_id=foreign, persistent=persistent))
        assert name == "java.lang.IllegalStateException"
        assert text == f"ID:owner:1:1:{number} is not an id of its producer ID:stranger:1:1"
    assert not stranger.link.closed
    assert of_kind(owner.send(ORDERS, "a", "b", "c"), ExceptionResponse) == []
    assert world.waiting(ORDERS) == ["a", "b", "c"]


@pytest.mark.parametrize("version", [9, 12], ids=["decoded", "verbatim"])
def test_foreign_message_id_dooms_its_transaction(world: World, version: int) -> None:
    client = world.client("stranger", offer=_offer(version))
    transaction = LocalTransactionId(client.id, 1)
    begin = TransactionInfo(
        connection_id=ConnectionId(client.id), transaction_id=transaction, type=TransactionType.BEGIN
    )
    client.answer(begin, Response)
    client.send(ORDERS, "a", transaction_id=transaction, response_required=False)
    foreign = OpenWireMessageId(None, ProducerId(OTHER, 1, 1), 1)
    client.send(ORDERS, "b", transaction_id=transaction, response_required=False, message_id=foreign)
    commit = TransactionInfo(
        connection_id=ConnectionId(client.id), transaction_id=transaction, type=TransactionType.COMMIT_ONE_PHASE
    )
    assert client.refused(commit)[0] == "javax.jms.TransactionRolledBackException"


def test_what_a_stranger_tries_is_no_repetition_of_the_owner(world: World) -> None:
    """The owner sends again after a failover; only its own messages count as sent before."""
    owner = world.client("owner")
    owner.send(ORDERS, "one")
    stranger = world.client("stranger")
    stranger.send(ORDERS, "x", message_id=OpenWireMessageId(None, owner.producer(), 1_000))
    owner.session.lost()
    again = world.client("owner", failover_reconnect=True)
    again.send(ORDERS, "one", "two")
    assert world.waiting(ORDERS) == ["one", "two"]


def test_bridge_forwards_messages_with_their_ids(world: World) -> None:
    bridge = bridge_of(world)
    foreign = OpenWireMessageId(None, ProducerId("ID:elsewhere", 1, 1), 7)
    assert of_kind(bridge.send(ORDERS, "forwarded", message_id=foreign), ExceptionResponse) == []
    consumer = world.client("consumer")
    [dispatch] = consumer.consume(ORDERS)
    assert texts([dispatch]) == ["forwarded"]
    assert isinstance(dispatch, MessageDispatch)
    assert dispatch.message is not None
    assert str(dispatch.message.message_id) == "ID:elsewhere:1:1:7"


@pytest.mark.parametrize(("group", "is_taken"), [("anonymous", True), ("bridges", False)])
def test_bridge_needs_the_right_to_administer_all_queues(world: World, group: str, is_taken: bool) -> None:
    every = frozenset("*")
    admins = Rule(queue(">"), Grants(every, every, frozenset((group,))))
    world.broker.use_rules(Rules((admins, Rule(queue("*"), Grants(every, every, every)))))
    foreign = OpenWireMessageId(None, ProducerId("ID:elsewhere", 1, 1), 7)
    again = world.client("again", client_id="NC_b2_outbound", failover_reconnect=True)
    for client in (bridge_of(world), again):
        refused = of_kind(client.send(ORDERS, "forwarded", message_id=foreign), ExceptionResponse)
        assert is_taken == (not refused)
        assert of_kind(client.send(ORDERS, "own"), ExceptionResponse) == []


def test_bridge_has_producers_of_its_own_alone(world: World) -> None:
    bridge = bridge_of(world)
    assert bridge.refused(ProducerInfo(producer_id=ProducerId(OTHER, 1, 1)))[0] == "java.lang.IllegalStateException"


@pytest.mark.parametrize(
    ("client_id", "failover_reconnect", "is_taken"),
    [("NC_b2_outbound", True, True), ("NC_b2_outbound", False, False), ("b2", True, False)],
)
def test_bridge_over_failover_is_known_by_its_client_id(
    world: World, client_id: str, failover_reconnect: bool, is_taken: bool
) -> None:
    """Its transport reconnects under the bridge, which sends no second BrokerInfo."""
    client = world.client("bridge", client_id=client_id, failover_reconnect=failover_reconnect)
    foreign = OpenWireMessageId(None, ProducerId("ID:elsewhere", 1, 1), 7)
    refused = of_kind(client.send(ORDERS, "a", message_id=foreign), ExceptionResponse)
    assert is_taken == (not refused)


def test_connected_client_becomes_no_bridge(world: World) -> None:
    client = world.client("stranger")
    client.answer(BrokerInfo(broker_name="b2", network_connection=True), Response)
    foreign = OpenWireMessageId(None, ProducerId(OTHER, 1, 1), 7)
    assert client.refused(client.message(ORDERS, message_id=foreign))[0] == "java.lang.IllegalStateException"


# ---------------------------------------------------------------- ids that are taken


def take_first_id(world: World, text: str) -> None:
    """Let a peer that says it is a bridge store a message under the id that `c1` uses first."""
    taken = OpenWireMessageId(None, ProducerId("ID:c1", 1, 1), 1)
    assert of_kind(bridge_of(world).send(ORDERS, text, message_id=taken), ExceptionResponse) == []


@pytest.mark.parametrize("version", [6, 12])
def test_taken_id_is_refused_and_not_answered_as_stored(world: World, version: int) -> None:
    take_first_id(world, "forged")
    client = world.client("c1", offer=_offer(version))
    name, text = client.refused(client.message(ORDERS, "mine"))
    assert (name, text) == (
        "javax.jms.JMSException",
        "queue://ORDERS has another message of the id ID:c1:1:1:1",
    )
    assert of_kind(client.send(ORDERS, "next"), ExceptionResponse) == []
    assert world.waiting(ORDERS) == ["forged", "next"]


def test_taken_id_dooms_its_transaction(world: World) -> None:
    take_first_id(world, "forged")
    client = world.client("c1")
    transaction = LocalTransactionId(client.id, 1)
    ends: dict[str, Any] = {"connection_id": ConnectionId(client.id), "transaction_id": transaction}
    client.answer(TransactionInfo(**ends, type=TransactionType.BEGIN), Response)
    client.send(ORDERS, "mine", transaction_id=transaction, response_required=False)
    commit = TransactionInfo(**ends, type=TransactionType.COMMIT_ONE_PHASE)
    assert client.refused(commit)[0] == "javax.jms.TransactionRolledBackException"


@pytest.mark.parametrize(
    ("version", "failover_reconnect"), [(5, False), (12, True)], ids=["before version 6", "came again"]
)
def test_what_a_client_may_have_sent_before_is_a_repetition(
    world: World, version: int, failover_reconnect: bool
) -> None:
    take_first_id(world, "sent before")  # by the client to another broker, say
    client = world.client("c1", offer=_offer(version), failover_reconnect=failover_reconnect)
    assert of_kind(client.send(ORDERS, "sent before"), ExceptionResponse) == []
    assert world.waiting(ORDERS) == ["sent before"]


def test_bridge_may_forward_a_message_again(world: World) -> None:
    take_first_id(world, "once")
    bridge = bridge_of(world, "ID:again")
    taken = OpenWireMessageId(None, ProducerId("ID:c1", 1, 1), 1)
    assert of_kind(bridge.send(ORDERS, "once", message_id=taken), ExceptionResponse) == []
    assert world.waiting(ORDERS) == ["once"]


# ---------------------------------------------------------------- connection ids


def connect(world: World, client_id: str, **details: Any) -> list[Any]:
    client = world.new_client()
    info = ConnectionInfo(
        command_id=1, response_required=True, connection_id=ConnectionId(OTHER), client_id=client_id, **details
    )
    return client.request(info)[1:]


@pytest.mark.parametrize("failover_reconnect", [True, False])
def test_connection_id_in_use_is_refused_to_another_client(world: World, failover_reconnect: bool) -> None:
    owner = world.client("owner")
    [answer] = connect(world, "stranger", failover_reconnect=failover_reconnect)
    assert isinstance(answer, ExceptionResponse)
    assert answer.exception is not None
    assert answer.exception.class_name == "javax.jms.InvalidClientIDException"
    assert "owner" not in str(answer.exception.message).replace(OTHER, ""), "the client id is not shown"
    assert not owner.link.closed
    owner.send(ORDERS, "a")
    assert world.waiting(ORDERS) == ["a"]


def test_connection_id_stays_its_clients_while_it_is_away(world: World) -> None:
    world.client("owner").session.lost()
    [answer] = connect(world, "stranger", failover_reconnect=True)
    assert isinstance(answer, ExceptionResponse)
    assert world.client("owner", failover_reconnect=True).session.client_id == "owner"


def test_connection_id_stays_its_users_while_it_is_away(world: World) -> None:
    """Its client id is as well known."""
    for name, is_welcome in (("alice", True), ("bob", False), ("alice", True)):
        [answer] = connect(world, "owner", user_name=name)
        assert isinstance(answer, ExceptionResponse) != is_welcome
        for session in list(world.sessions.by_id.values()):
            session.lost()


def test_live_connection_keeps_its_id_when_owners_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "OWNERS_MAX", 2)
    owner = world.client("owner")
    for number in range(6):
        world.client(f"other{number}").session.lost()
    [answer] = connect(world, "stranger")
    assert isinstance(answer, ExceptionResponse)
    assert not owner.link.closed


def test_connection_id_of_another_protocol_is_refused(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="pybroker.audit")
    world.broker.connect(OTHER, "of stomp", World().new_client().link)
    [answer] = connect(world, "stranger")
    assert isinstance(answer, ExceptionResponse)
    assert answer.exception is not None
    assert answer.exception.message == "Broker: b1 - Connection: ID:owner already connected"
    [line] = [each.getMessage() for each in caplog.records if each.name == "pybroker.audit"]
    assert line.endswith("refused: Broker: b1 - Connection: ID:owner already connected")


def test_connection_id_is_free_after_its_connection(world: World) -> None:
    world.broker.connect(OTHER, "first", World().new_client().link).close()
    world.broker.connect(OTHER, "second", World().new_client().link)


def test_owners_are_forgotten_in_the_order_of_their_last_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "OWNERS_MAX", 10)
    owners = ConnectionOwners()
    owners.claim("kept", "a", "u")
    for number in range(100):
        owners.claim(f"ID:{number}", "a", "u")
        owners.claim("kept", "a", "u")
    with pytest.raises(InvalidClientId, match="Connection kept belongs to another client"):
        owners.claim("kept", "b", "u")
    owners.claim("ID:0", "b", "u")
    with pytest.raises(InvalidClientId):
        owners.claim("ID:0", "a", "u")
    assert len(owners._recent) + len(owners._older) <= 20


def bridge_of(world: World, connection_id: str = "ID:bridge") -> OpenWireClient:
    """Return a connected bridge, which sends loose and uncached as Java's does."""
    bridge = world.new_client()
    bridge.request(BrokerInfo(broker_name="b2", network_connection=True))
    info = ConnectionInfo(
        command_id=bridge.next_id(),
        response_required=True,
        connection_id=ConnectionId(connection_id),
        client_id=connection_id,
    )
    bridge.id = connection_id
    bridge.request(info)
    bridge.open_session()
    return bridge


def _offer(version: int) -> Any:

    return replace(JAVA, version=version)
