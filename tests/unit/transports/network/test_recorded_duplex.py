"""Recorded duplex bridges of stock brokers: either end's frames are sent to the other end of this broker."""

from typing import Any

import pytest

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.openwire.commands import (
    ActiveMQMessage,
    ActiveMQTextMessage,
    BaseCommand,
    BrokerId,
    BrokerInfo,
    ConnectionErrorCommand,
    ConnectionInfo,
    ConsumerInfo,
    DataStructure,
    ExceptionResponse,
    KeepAliveInfo,
    MessageDispatch,
    OpenWireMessageId,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    Response,
    SessionInfo,
    ShutdownInfo,
)
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.framing import FrameReader
from pybroker.broker.domain.openwire.marshal.wireformat import agree, decode_offer, encode_offer
from pybroker.transports.network.acceptor import DuplexAcceptor
from pybroker.transports.openwire.session import Sessions
from tests.unit.domain.network.recorded import frames, is_offer
from tests.unit.transports.network.bridges import Near, named_broker
from tests.unit.transports.openwire.conversation import OpenWireClient, of_kind, texts

SET_UP = [ConnectionInfo, SessionInfo, ProducerInfo, ConsumerInfo]


def sent_by(sender: str, scenario: str, connection: int = 1) -> tuple[bytes, list[BaseCommand]]:
    """Return the offer, and the decoded commands, of one end of a recorded connection."""
    found = [each for each in frames(scenario) if each.connection == connection and each.sender == sender]
    commands = [each.value for each in found if not is_offer(each)]
    return found[0].data, [each for each in commands if isinstance(each, BaseCommand)]


def client_of(broker: BrokerCore, name: str) -> OpenWireClient:
    client = OpenWireClient(broker)
    client.connect(name)
    client.open_session()
    return client


class RecordedInitiator(OpenWireClient):
    """A stock broker that has opened a bridge to `far`."""

    def __init__(self, scenario: str, connection: int = 1, former: "RecordedInitiator | None" = None) -> None:
        self.far: BrokerCore = named_broker("b") if former is None else former.far
        self.soon: list[Any] = []
        acceptor = DuplexAcceptor(
            broker=self.far,
            interests=Interests(),
            subscriptions=self.far.subscriptions_of,
            announce=self.far.announce,
            call_soon=self.soon.append,
        )
        self.sessions: Sessions = Sessions(acceptor.open) if former is None else former.sessions
        offer, self.recorded = sent_by("initiator", scenario, connection)
        super().__init__(self.far, self.sessions, offer=decode_offer(offer))

    def replay(self, count: int | None = None) -> list[DataStructure]:
        """Send the first commands, or all; return what came back."""
        return [answer for each in self.recorded[:count] for answer in self.request(each)]


class RecordedAcceptor:
    """A stock broker at which `near` has opened a bridge."""

    def __init__(self, scenario: str, **attributes: Any) -> None:
        self.near = Near(named_broker("a"))
        self.session, self.link = self.near.bridge(**({"name": "nc", "duplex": True} | attributes))
        offer, self.recorded = sent_by("acceptor", scenario)
        mine = decode_offer(offer)
        self._frames = FrameReader(1 << 20)
        theirs = decode_offer(self._read()[0])
        self.wire: WireFormat = agree(theirs, mine).wire_format()
        self.reader: WireFormat = agree(mine, theirs).wire_format()
        self.session.receive(encode_offer(mine))

    def _read(self) -> list[bytes]:
        data, self.link.output = bytes(self.link.output), bytearray()
        self._frames.feed(data)
        found: list[bytes] = []
        while self._frames.advance():
            found.append(self._frames.data[self._frames.start : self._frames.stop])
        return found

    def send(self, *commands: BaseCommand) -> list[DataStructure]:
        """Send commands; return what came back."""
        for each in commands:
            self.session.receive(self.wire.encode_frame(each))
        found: list[DataStructure] = []
        while True:
            while self.near.soon:
                self.near.soon.pop(0)()
            data = self._read()
            if not data:
                return found
            found += map(self.reader.decode, data)
            self.session.written()


@pytest.mark.parametrize(
    ("scenario", "connection"),
    [
        ("duplex", 1),
        ("early_duplex", 1),
        ("early_duplex", 2),
        ("duplex_halfopen", 1),
        ("duplex_halfopen", 2),
        ("duplex_static", 1),
        ("temp_duplex-ab", 1),
        ("temp_cut", 1),
        ("hub-s1", 1),
        ("hub-s2", 1),
    ],
)
def test_recorded_initiator_gets_the_other_half(scenario: str, connection: int) -> None:
    initiator = RecordedInitiator(scenario, connection)
    asked = [each.command_id for each in initiator.recorded if each.response_required]
    answers = initiator.replay()
    assert of_kind(answers, ConnectionErrorCommand) == []
    assert of_kind(answers, ExceptionResponse) == []
    half = [each for each in answers if isinstance(each, BaseCommand) and type(each) in SET_UP]
    assert [type(each) for each in half] == SET_UP
    assert [each.command_id for each in half] == [1, 2, 3, 4]
    info = half[0]
    assert isinstance(info, ConnectionInfo)
    assert str(info.client_id).endswith("_b_outbound")
    assert [each.correlation_id for each in of_kind(answers, Response)] == asked
    mine = half[3]
    (theirs,) = [each for each in sent_by("acceptor", scenario, connection)[1] if isinstance(each, ConsumerInfo)]
    assert isinstance(mine, ConsumerInfo)
    assert (mine.destination, mine.prefetch_size) == (theirs.destination, theirs.prefetch_size)


def test_recorded_half_open_bridge_is_replaced() -> None:
    first = RecordedInitiator("duplex_halfopen", 1)
    first.replay()
    second = RecordedInitiator("duplex_halfopen", 2, first)
    answers = second.replay()
    assert first.link.closed
    assert not second.link.closed
    assert of_kind(answers, ConnectionErrorCommand) == []
    assert len(of_kind(answers, ConnectionInfo)) == 1


def test_recorded_initiator_gets_messages_by_its_demand() -> None:
    initiator = RecordedInitiator("duplex")
    producer = client_of(initiator.far, "p")
    producer.send(queue("Q.A"), "before")
    answers = initiator.replay(6)
    producer.send(queue("Q.A"), "after")
    answers += initiator.receive()
    messages = [each for each in answers if isinstance(each, ActiveMQTextMessage)]
    assert [(each.destination, each.response_required) for each in messages] == [(queue("Q.A"), True)] * 2
    assert [[broker.value for broker in each.broker_path or () if broker] for each in messages] == (
        [[initiator.far.id]] * 2
    )


def test_demand_goes_to_a_recorded_initiator_as_a_plain_message() -> None:
    initiator = RecordedInitiator("duplex")
    client_of(initiator.far, "c").consume(queue("Q.B"))
    answers = initiator.replay(5)
    assert of_kind(answers, MessageDispatch) == []
    (advisory,) = [each for each in answers if isinstance(each, ActiveMQMessage)]
    assert advisory.destination == topic("ActiveMQ.Advisory.Consumer.Queue.Q.B")
    assert (advisory.command_id, advisory.response_required) == (5, False)
    assert isinstance(advisory.data_structure, ConsumerInfo)
    assert [each.value for each in advisory.broker_path or () if each] == [initiator.far.id]


def test_recorded_acceptor_gets_its_advisories_and_answers() -> None:
    acceptor = RecordedAcceptor("duplex", dynamically_included=(queue("Q.>"), topic("T.>")))
    near = acceptor.near.broker
    readers = {name: client_of(near, name) for name in ("Q.A", "T.1")}
    readers["Q.A"].consume(queue("Q.A"))
    readers["T.1"].consume(topic("T.1"))
    producer = client_of(near, "p")
    producer.send(queue("Q.B"), "to b")
    answers = acceptor.send(*acceptor.recorded)
    assert acceptor.session.end is None
    assert of_kind(answers, ConnectionErrorCommand) == []
    advisories = [each for each in answers if isinstance(each, ActiveMQMessage) and each.data_structure is not None]
    assert [(each.destination or queue("none")).name for each in advisories] == [
        "ActiveMQ.Advisory.Consumer.Queue.Q.A",
        "ActiveMQ.Advisory.Consumer.Topic.T.1",
        "ActiveMQ.Advisory.Consumer.Queue.Q.B",
    ]
    assert [type(each.data_structure) for each in advisories] == [ConsumerInfo, ConsumerInfo, RemoveInfo]
    forwarded = [each for each in answers if isinstance(each, ActiveMQTextMessage)]
    assert [each.destination for each in forwarded] == [queue("Q.B")]
    assert sorted(each.correlation_id for each in of_kind(answers, Response)) == [7, 8]
    assert texts(of_kind(readers["Q.A"].receive(), MessageDispatch)) == ["m2"]
    assert {each.client_id for each in near.connections()} >= {
        "nc_b_inbound_a",
        "nc_b_inbound_duplex_a",
        "nc_b_outbound",
    }


@pytest.mark.parametrize("destination", [queue("X"), topic("X")])
def test_acceptor_is_answered_for_what_is_not_permitted(destination: Destination) -> None:
    acceptor = RecordedAcceptor("duplex", excluded=(destination,))
    acceptor.send(*acceptor.recorded[:5])
    producer = ProducerId("b->a-46799-1795363513318-7:3", 1, 1)
    message = ActiveMQTextMessage(
        command_id=6,
        response_required=True,
        producer_id=producer,
        destination=destination,
        message_id=OpenWireMessageId(None, ProducerId("ID:p", 1, 1), 1),
        broker_path=(BrokerId("ID:b"),),
    )
    (answer,) = of_kind(acceptor.send(message), Response)
    assert isinstance(answer, ExceptionResponse)
    assert answer.correlation_id == 6
    assert answer.exception is not None
    assert answer.exception.class_name == "javax.jms.InvalidDestinationException"
    assert acceptor.session.end is None


def test_duplex_bridge_to_a_stock_broker_is_up_with_its_keep_alive() -> None:
    """A stock broker does not answer the producer of a duplex bridge."""
    acceptor = RecordedAcceptor("duplex")
    kinds = [type(each) for each in acceptor.recorded]
    sent = acceptor.send(*acceptor.recorded[: kinds.index(ConnectionInfo) + 1])
    assert [each.response_required for each in of_kind(sent, KeepAliveInfo)] == [True]
    assert acceptor.near.begun == []
    acceptor.send(KeepAliveInfo(), KeepAliveInfo())
    assert acceptor.near.begun == [acceptor.session]
    acceptor.send(ShutdownInfo())
    assert acceptor.session.reason == "the remote broker stops"


def test_keep_alive_before_the_other_half_is_no_acceptance() -> None:
    """A pybroker sends its half once the login is accepted, and may answer the KeepAliveInfo before."""
    acceptor = RecordedAcceptor("duplex")
    acceptor.send(acceptor.recorded[0], KeepAliveInfo())
    assert isinstance(acceptor.recorded[0], BrokerInfo)
    assert acceptor.near.begun == []
    acceptor.send(ShutdownInfo())
    assert acceptor.session.reason.startswith("the remote broker ends the duplex bridge before it is up: its log has")
