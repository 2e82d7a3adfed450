# mypy: disable-error-code="arg-type"
"""The client's OpenWire: frames, greeting and login, inactivity monitor, bodies, refusals."""

import contextlib
import zlib
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, decode_offer, encode_offer
from pybroker.client.conversation import (
    FIRST_NUMBER,
    AddProducer,
    Answered,
    ConsumerEnded,
    Delivered,
    Ended,
    ErrorReported,
    Event,
    Exhausted,
    Login,
    LoginFailed,
    Opened,
    Redirected,
    SendMessage,
)
from pybroker.client.errors import (
    ClientError,
    ConnectionLost,
    DestinationRefused,
    FrameTooLarge,
    LoginRefused,
    NoRoom,
    NotAuthorized,
    ProtocolViolation,
    Refused,
    SelectorRefused,
    TransactionRolledBack,
    UnreadableMessage,
    UnsendableMessage,
)
from pybroker.client.messages import Message, Outgoing
from pybroker.client.openwire import OpenWireConversation

WIRE = WireFormat(12)
BROKER = Offer(version=12, max_inactivity_ms=3000, initial_delay_ms=1000, frame_bytes_max=5000)
LOGIN = Login(connection_id="ID:c-1:1", client_id="c1", user="u", password="p", is_failover=True)


def frames(data: bytes) -> list[bytes]:
    found: list[bytes] = []
    while data:
        size = INT.unpack_from(data)[0]
        found.append(data[INT.size : INT.size + size])
        data = data[INT.size + size :]
    return found


def sent_commands(conversation: OpenWireConversation) -> list[wire.DataStructure]:
    return [WIRE.decode(frame) for frame in frames(conversation.bytes_to_send())]


def greeted(**settings: int) -> OpenWireConversation:
    """Return a conversation after the greeting, whose bytes to send are removed."""
    conversation = OpenWireConversation(**settings)
    conversation.open(LOGIN)
    conversation.bytes_to_send()
    assert conversation.receive(encode_offer(BROKER)) == []
    return conversation


def opened() -> OpenWireConversation:
    conversation = greeted()
    assert receive(conversation, wire.Response(correlation_id=1)) == [Opened()]
    conversation.bytes_to_send()
    return conversation


def receive(conversation: OpenWireConversation, *commands: wire.DataStructure) -> list[Event]:
    return conversation.receive(b"".join(map(WIRE.encode_frame, commands)))


def thrown(name: str, text: str = "no") -> wire.Throwable:
    return wire.Throwable(class_name=name, message=text)


# ---------------------------------------------------------------- greeting and login


def test_the_login_follows_the_greetings_of_both_sides() -> None:
    conversation = OpenWireConversation(host="h", inactivity_ms=700, initial_delay_ms=200, frame_bytes_max=4000)
    (hello,) = frames(conversation.bytes_to_send())
    offer = decode_offer(hello)
    assert (offer.version, offer.host, offer.max_inactivity_ms, offer.frame_bytes_max) == (12, "h", 700, 4000)
    assert [offer.tight_encoding_enabled, offer.cache_enabled] == [False, False]
    conversation.open(LOGIN)
    assert sent_commands(conversation) == []
    conversation.receive(encode_offer(BROKER))
    control, info = sent_commands(conversation)
    assert isinstance(control, wire.ConnectionControl)
    assert isinstance(info, wire.ConnectionInfo)
    assert (info.user_name, info.password, info.client_id, info.failover_reconnect) == ("u", "p", "c1", False)


def test_a_backup_is_greeted_and_logs_in_on_open() -> None:
    conversation = OpenWireConversation()
    conversation.bytes_to_send()
    conversation.receive(encode_offer(BROKER))
    assert sent_commands(conversation) == []
    conversation.open(LOGIN)
    assert len(sent_commands(conversation)) == 2


@pytest.mark.parametrize("name", ["java.lang.SecurityException", "javax.jms.InvalidClientIDException"])
def test_a_refused_login_is_permanent(name: str) -> None:
    (event,) = receive(greeted(), wire.ExceptionResponse(correlation_id=1, exception=thrown(name, "who?")))
    assert isinstance(event, LoginFailed)
    assert isinstance(event.error, LoginRefused)
    assert "who?" in str(event.error)
    assert "password" not in repr(LOGIN)
    assert "'p'" not in repr(LOGIN)


def test_a_temporary_login_failure_ends_the_transport() -> None:
    failed = wire.ExceptionResponse(correlation_id=1, exception=thrown("java.io.IOException", "stopping"))
    (event,) = receive(greeted(), failed)
    assert event == Ended("the broker does not take the connection: stopping")


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 400 Bad Request", b"ERROR\nmessage:no\n\n\0", b"\0\0\0\x05\x1e\0\0\0\0", b"\xff" * 9]
)
def test_another_protocol_is_recognised(data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="OpenWire"):
        OpenWireConversation().receive(data)


# ---------------------------------------------------------------- frames


def test_chunks_of_any_size_give_the_same_events() -> None:
    stream = encode_offer(BROKER) + b"".join(
        map(
            WIRE.encode_frame,
            [
                wire.BrokerInfo(broker_name="b"),
                wire.Response(correlation_id=1),
                wire.Response(correlation_id=FIRST_NUMBER),
                wire.ShutdownInfo(),
            ],
        )
    )
    stream += INT.pack(1) + b"\0" + WIRE.encode_frame(wire.Response(correlation_id=FIRST_NUMBER + 1))
    expected = [Opened(), Answered(10), Ended("the broker shuts the connection down"), Answered(11)]
    for size in (1, 2, 3, 7, len(stream)):
        conversation = OpenWireConversation()
        conversation.open(LOGIN)
        events: list[Event] = []
        for start in range(0, len(stream), size):
            events += conversation.receive(stream[start : start + size])
        assert events == expected


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_raise_only_what_is_documented(data: bytes, has_size: bool) -> None:
    conversation = opened()
    with contextlib.suppress(ProtocolViolation, FrameTooLarge):
        conversation.receive(INT.pack(len(data)) + data if has_size else data)


def test_frames_beyond_what_was_agreed_are_refused_both_ways() -> None:
    conversation = opened()
    message = Outgoing(producer=1, sequence=1, destination=queue("q"), body=b"x" * 5000)
    with pytest.raises(FrameTooLarge) as caught:
        conversation.request(SendMessage(message=message), FIRST_NUMBER, answer=True)
    assert caught.value.limit == 5000
    assert conversation.bytes_to_send() == b""
    with pytest.raises(FrameTooLarge):
        conversation.receive(INT.pack(5001) + b"\x1e")
    with pytest.raises(ProtocolViolation):
        opened().receive(INT.pack(0))


# ---------------------------------------------------------------- time


def test_a_peer_without_a_greeting_is_lost() -> None:
    conversation = OpenWireConversation(initial_delay_ms=10_500)
    assert conversation.tick(10.0) == 20.5
    with pytest.raises(ConnectionLost):
        conversation.tick(20.5)


def test_a_peer_has_ten_seconds_for_its_greeting() -> None:
    assert OpenWireConversation(initial_delay_ms=0).tick(10.0) == 20.0


def test_keep_alives_are_sent_and_expected() -> None:
    conversation = opened()
    now = conversation.tick(0.0)
    assert now == 1.0
    alive: list[float] = []
    while now < 12:
        now = conversation.tick(now)
        if any(isinstance(command, wire.KeepAliveInfo) for command in sent_commands(conversation)):
            alive.append(now)
        receive(conversation, wire.KeepAliveInfo())
    assert all(later - earlier <= 1.01 for earlier, later in pairwise(alive))
    assert len(alive) >= 8
    receive(conversation, wire.KeepAliveInfo(response_required=True))
    assert sent_commands(conversation) == [wire.KeepAliveInfo()]
    started = now

    def wait_in_silence() -> None:
        due_at = started
        while due_at < started + 7:
            due_at = conversation.tick(due_at)

    with pytest.raises(ConnectionLost, match="silent"):
        wait_in_silence()


def test_the_monitor_needs_the_agreement_of_both_sides() -> None:
    conversation = OpenWireConversation(inactivity_ms=0)
    conversation.receive(encode_offer(BROKER))
    assert conversation.tick(0.0) == float("inf")


# ---------------------------------------------------------------- events


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("javax.jms.InvalidDestinationException", DestinationRefused),
        ("org.apache.activemq.DestinationDoesNotExistException", DestinationRefused),
        ("java.lang.SecurityException", NotAuthorized),
        ("jakarta.jms.InvalidSelectorException", SelectorRefused),
        ("javax.jms.ResourceAllocationException", NoRoom),
        ("javax.jms.TransactionRolledBackException", TransactionRolledBack),
        ("javax.jms.JMSException", Refused),
    ],
)
def test_a_refusal_is_an_error_by_its_cause(name: str, kind: type[ClientError]) -> None:
    (event,) = receive(opened(), wire.ExceptionResponse(correlation_id=12, exception=thrown(name, "because")))
    assert isinstance(event, Answered)
    assert event.number == 12
    assert type(event.error) is kind
    assert "because" in str(event.error)
    if isinstance(event.error, Refused):
        assert event.error.kind == name


@pytest.mark.parametrize("transaction", [None, 7])
def test_a_repeated_send_is_marked_outside_transactions(transaction: int | None) -> None:
    conversation = greeted()
    conversation.open(replace(LOGIN, is_again=True))
    conversation.bytes_to_send()
    assert Opened() in receive(conversation, wire.Response(correlation_id=1))
    message = Outgoing(producer=1, sequence=1, destination=queue("q"), body="x", transaction=transaction)
    conversation.request(SendMessage(message=message), FIRST_NUMBER, answer=True)
    again = sent_commands(conversation)[-1]
    conversation.request(SendMessage(message=replace(message, sequence=2)), FIRST_NUMBER + 1, answer=True)
    fresh = sent_commands(conversation)[-1]
    assert isinstance(again, wire.ActiveMQMessage)
    assert isinstance(fresh, wire.ActiveMQMessage)
    assert received(again).redelivered is (transaction is None)
    assert not received(fresh).redelivered


def test_a_refusal_without_a_reason_is_an_error() -> None:
    (event,) = receive(opened(), wire.ExceptionResponse(correlation_id=12))
    assert isinstance(event, Answered)
    assert type(event.error) is Refused


def test_announced_brokers_are_an_event() -> None:
    assert receive(opened(), wire.ConnectionControl(connected_brokers="")) == []
    control = wire.ConnectionControl(connected_brokers="tcp://a:1, tcp://b:2", rebalance_connection=True)
    assert receive(opened(), control) == [Redirected(("tcp://a:1", "tcp://b:2"), "", rebalance=True)]


def test_unrequested_commands_of_a_broker_are_events() -> None:
    (ended,) = receive(opened(), wire.ConsumerControl(close=True, consumer_id=wire.ConsumerId("c", 1, 7)))
    assert isinstance(ended, ConsumerEnded)
    assert ended.consumer == 7
    (event,) = receive(opened(), wire.ConnectionErrorCommand(exception=thrown("javax.jms.JMSException")))
    assert isinstance(event, ErrorReported)
    end_of_browse = wire.MessageDispatch(consumer_id=wire.ConsumerId("c", 1, 7))
    assert receive(opened(), end_of_browse) == [Exhausted(7)]
    assert receive(opened(), wire.ProducerAck(), wire.KeepAliveInfo()) == []


def test_the_disconnect_is_answered_before_the_end() -> None:
    conversation = opened()
    conversation.close()
    (goodbye,) = sent_commands(conversation)
    assert isinstance(goodbye, wire.RemoveInfo)
    assert receive(conversation, wire.Response(correlation_id=goodbye.command_id)) == [Ended("closed")]
    assert sent_commands(conversation) == [wire.ShutdownInfo()]


# ---------------------------------------------------------------- messages


def received(message: wire.ActiveMQMessage) -> Message:
    message.destination = queue("q")
    message.message_id = wire.OpenWireMessageId(None, wire.ProducerId("c", 1, 1), 1, 5)
    (event,) = receive(opened(), wire.MessageDispatch(consumer_id=wire.ConsumerId("c", 1, 7), message=message))
    assert isinstance(event, Delivered)
    assert event.consumer == 7
    return event.message


values = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.binary()
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = texts.filter(bool)


@given(
    texts | st.binary(max_size=50) | st.none() | st.dictionaries(names, values | texts, max_size=4)
    | st.lists(values | texts, max_size=4),
    st.dictionaries(names, values | texts, max_size=3),
)  # fmt: skip
def test_a_message_is_received_as_it_was_sent(body: object, properties: dict[str, object]) -> None:
    conversation = opened()
    outgoing = Outgoing(
        producer=1,
        sequence=3,
        destination=queue("q"),
        body=body,
        properties=properties,
    )
    conversation.request(SendMessage(message=outgoing), FIRST_NUMBER, answer=True)
    (sent,) = sent_commands(conversation)
    assert isinstance(sent, wire.ActiveMQMessage)
    assert (sent.command_id, sent.response_required) == (FIRST_NUMBER, True)
    message = received(sent)
    assert message.body == body
    assert message.properties == properties


def test_compressed_bodies_are_read() -> None:
    text = wire.ActiveMQTextMessage(content=zlib.compress(encode_text("tea")), compressed=True)
    assert received(text).body == "tea"
    data = wire.ActiveMQBytesMessage(content=INT.pack(3) + zlib.compress(b"tea"), compressed=True)
    assert received(data).body == b"tea"


def test_a_damaged_body_raises_when_it_is_read() -> None:
    message = received(wire.ActiveMQTextMessage(content=b"\0\0\0\x09x", marshalled_properties=b"\x01"))
    with pytest.raises(UnreadableMessage):
        _ = message.body
    with pytest.raises(UnreadableMessage):
        _ = message.properties


def test_empty_bodies_have_the_type_of_their_message() -> None:
    kinds = (wire.ActiveMQBytesMessage, wire.ActiveMQMapMessage, wire.ActiveMQStreamMessage, wire.ActiveMQTextMessage)
    assert [received(kind()).body for kind in kinds] == [b"", {}, [], None]


def test_a_message_without_destination_is_a_violation() -> None:
    nowhere = wire.MessageDispatch(consumer_id=wire.ConsumerId("c", 1, 7), message=wire.ActiveMQTextMessage())
    with pytest.raises(ProtocolViolation):
        receive(opened(), nowhere)


@pytest.mark.parametrize("body", [object(), {1, 2}, 5])
def test_a_body_without_form_is_refused(body: object) -> None:
    outgoing = Outgoing(producer=1, sequence=1, destination=queue("q"), body=body)
    with pytest.raises(UnsendableMessage):
        opened().request(SendMessage(message=outgoing), FIRST_NUMBER, answer=True)
    long_name = queue("q" * 70_000)
    with pytest.raises(UnsendableMessage):
        opened().request(AddProducer(producer=1, destination=long_name), FIRST_NUMBER, answer=True)
