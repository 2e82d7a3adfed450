# mypy: disable-error-code="arg-type, attr-defined"
"""The client's STOMP: the frames of requests, and the events of frames."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.message import RESENT
from pybroker.broker.domain.stomp.codec import FrameDecoder, encode_frame
from pybroker.broker.domain.stomp.frames import Frame, StompLimits, Version
from pybroker.client.conversation import (
    FIRST_NUMBER,
    AckMode,
    Acknowledge,
    AddConsumer,
    AddProducer,
    AddTemporary,
    Answered,
    BeginTransaction,
    CommitTransaction,
    Delivered,
    Ended,
    ErrorReported,
    Event,
    Exhausted,
    Login,
    LoginFailed,
    Opened,
    Pull,
    RemoveConsumer,
    RemoveDurable,
    Request,
    RollbackTransaction,
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
from pybroker.client.stomp import StompConversation

LOGIN = Login(connection_id="ID:here-1:1", client_id="me", user="u", password="p")
NUMBER = FIRST_NUMBER
Q = queue("Q")


def server(command: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a broker's frame; an underscore in a header's name is a hyphen."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return encode_frame(command, named, body, Version.V1_2)


CONNECTED = server("CONNECTED", version="1.2", session="s", heart_beat="10000,20000")


def sent(conversation: StompConversation) -> list[Frame]:
    """Return the frames to send."""
    decoder = FrameDecoder(StompLimits())
    decoder.version = Version.V1_2
    return list(decoder.feed(conversation.bytes_to_send()))


def opened(**options: Any) -> StompConversation:
    conversation = StompConversation(**options)
    conversation.open(LOGIN)
    conversation.bytes_to_send()
    assert conversation.receive(CONNECTED) == [Opened()]
    return conversation


def request_frames(request: Request, *, answer: bool = True, **options: Any) -> list[Frame]:
    """Return the frames of a request."""
    conversation = opened(**options)
    conversation.request(request, NUMBER, answer=answer)
    return sent(conversation)


def outgoing(body: Any = "hello", destination: Destination = Q, **fields: Any) -> Outgoing:
    return Outgoing(producer=1, sequence=1, destination=destination, body=body, **fields)


def send_frame(body: Any = "hello", destination: Destination = Q, **fields: Any) -> Frame:
    (frame,) = request_frames(SendMessage(message=outgoing(body, destination, **fields)))
    return frame


def message_frame(body: bytes = b"text", **headers: str) -> bytes:
    given = {"subscription": "3", "message_id": "ID:1", "destination": "/queue/Q", "ack": "a1", **headers}
    return server("MESSAGE", body, **given)


def delivered(body: bytes = b"text", **headers: str) -> Message:
    (event,) = opened().receive(message_frame(body, **headers))
    assert isinstance(event, Delivered)
    return event.message


# ---------------------------------------------------------------- opening


def test_nothing_is_sent_before_open() -> None:
    conversation = StompConversation()
    assert conversation.bytes_to_send() == b""
    assert conversation.tick(5.0) == float("inf")


def test_connect_has_the_login_and_the_heart_beat() -> None:
    conversation = StompConversation(host="broker.example", inactivity_ms=3000)
    conversation.open(LOGIN)
    (frame,) = sent(conversation)
    assert frame.command == "CONNECT"
    assert frame.headers == {
        "accept-version": "1.2",
        "host": "broker.example",
        "client-id": "me",
        "login": "u",
        "passcode": "p",
        "heart-beat": "2000,1000",
    }


def test_an_anonymous_client_sends_no_credentials() -> None:
    conversation = StompConversation()
    conversation.open(Login(connection_id="c", client_id="me"))
    assert not {"login", "passcode"} & sent(conversation)[0].headers.keys()


def test_credentials_without_a_stomp_form_are_refused() -> None:
    with pytest.raises(LoginRefused, match="passcode"):
        StompConversation().open(Login(connection_id="c", client_id="me", password="a\nb"))


def refused_login(message: str, *, is_again: bool = False) -> Event:
    conversation = StompConversation()
    conversation.open(Login(connection_id="c", client_id="me", is_again=is_again))
    (event,) = conversation.receive(server("ERROR", message=message))
    return event


@pytest.mark.parametrize(
    "message",
    ["User name [u] or password is invalid.", "Broker: b - Client: me already connected from tcp://1.2.3.4:5"],
)
def test_refused_logins_are_permanent(message: str) -> None:
    event = refused_login(message)
    assert isinstance(event, LoginFailed)
    assert isinstance(event.error, LoginRefused)
    assert message in str(event.error)


def test_a_client_id_in_use_after_a_break_is_retried() -> None:
    assert isinstance(refused_login("Broker: b - Client: me already connected", is_again=True), Ended)


def test_other_login_errors_are_temporary() -> None:
    assert isinstance(refused_login("Broker is stopping"), Ended)


@pytest.mark.parametrize("version", ["1.0", "1.1", "9"])
def test_another_version_is_a_violation(version: str) -> None:
    conversation = StompConversation()
    conversation.open(LOGIN)
    with pytest.raises(ProtocolViolation, match=r"needs 1\.2"):
        conversation.receive(server("CONNECTED", version=version))


def test_a_version_error_of_the_broker_is_a_violation() -> None:
    event = refused_login("Invalid Protocol version[1.2], supported versions are: [1.0]")
    assert isinstance(event, LoginFailed)
    assert isinstance(event.error, ProtocolViolation)


@pytest.mark.parametrize("chunk", [b"HTTP/1.1 400 Bad Request\r\n\r\n\0", CONNECTED * 2, b"\xff\xff\n\n\0", b"X\0"])
def test_a_peer_with_another_protocol_is_a_violation(chunk: bytes) -> None:
    conversation = StompConversation()
    conversation.open(LOGIN)
    with pytest.raises(ProtocolViolation):
        conversation.receive(chunk)


def test_connected_without_connect_is_a_violation() -> None:
    with pytest.raises(ProtocolViolation):
        StompConversation().receive(CONNECTED)


# ---------------------------------------------------------------- sending


def test_text_has_no_content_length() -> None:
    frame = send_frame("grüße", timestamp=5)
    assert frame.command == "SEND"
    assert frame.headers == {
        "destination": "/queue/Q",
        "persistent": "true",
        "timestamp": "5",
        "receipt": str(NUMBER),
    }
    assert frame.body == "grüße".encode()


def test_text_with_a_nul_has_a_length_and_a_type() -> None:
    frame = send_frame("a\0b")
    assert (frame.body, frame.headers["content-length"], frame.headers["amq-msg-type"]) == (b"a\0b", "3", "text")


def test_bytes_have_a_content_length() -> None:
    frame = send_frame(b"\0\1")
    assert (frame.body, frame.headers["content-length"]) == (b"\0\1", "2")
    assert "amq-msg-type" not in frame.headers


def test_fields_become_headers_and_properties_too() -> None:
    frame = send_frame(
        "x",
        topic("T"),
        persistent=False,
        priority=9,
        expiration=7,
        reply_to=queue("R"),
        correlation_id="c:\n",
        type="t",
        group_id="g",
        group_sequence=2,
        transaction=4,
        properties={"colour": "red", "big": True, "n": 5, "f": 1.5},
    )
    expected = {
        **{"destination": "/topic/T", "priority": "9", "expires": "7", "reply-to": "/queue/R"},
        **{"correlation-id": "c:\n", "type": "t", "JMSXGroupID": "g", "JMSXGroupSeq": "2", "transaction": "4"},
        **{"colour": "red", "big": "true", "n": "5", "f": "1.5", "receipt": str(NUMBER)},
    }
    assert frame.headers == expected


@pytest.mark.parametrize(
    ("destination", "written"),
    [
        (queue("A.B/C"), "/queue/A.B/C"),
        (topic("T.>"), "/topic/T.>"),
        (queue("A,topic://B"), "/queue/A,/topic/B"),
        (Destination(DestinationType.TEMP_QUEUE, "ID:here-1:1:7"), "/temp-queue/ID:here-1:1:7"),
        (Destination(DestinationType.TEMP_TOPIC, "ID:here-1:1:7"), "/temp-topic/ID:here-1:1:7"),
        (Destination(DestinationType.TEMP_QUEUE, "ID:there:1"), "/remote-temp-queue/ID:there:1"),
        (Destination(DestinationType.TEMP_TOPIC, "ID:there:1"), "/remote-temp-topic/ID:there:1"),
    ],
)
def test_destinations_are_written_and_read(destination: Destination, written: str) -> None:
    assert send_frame("x", destination).headers["destination"] == written
    if not destination.is_composite:
        assert delivered(destination=written).destination == destination


@pytest.mark.parametrize(
    "fields",
    [
        {"body": {"a": 1}},
        {"body": [1]},
        {"body": "\ud800"},
        {"properties": {"destination": "x"}},
        {"properties": {"receipt": "x"}},
        {"properties": {"a:b": "x"}},
        {"properties": {"": "x"}},
        {"properties": {"a": b"x"}},
        {"properties": {"a": None}},
        {"properties": {"a": "\0"}},
        {"properties": {"a": "x" * 10_240}},
        {"properties": {"a": "é" * 5_120}},
        {"properties": {"a": ":" * 5_120}},
        {"properties": {f"p{number}": "x" for number in range(1_000)}},
        {"correlation_id": "\0"},
    ],
)
def test_a_message_without_a_stomp_form_is_not_sent(fields: Mapping[str, Any]) -> None:
    conversation = opened()
    with pytest.raises(UnsendableMessage):
        conversation.request(SendMessage(message=outgoing(**fields)), NUMBER, answer=True)
    assert conversation.bytes_to_send() == b""


def test_headers_up_to_the_limit_are_sent() -> None:
    conversation = opened()
    properties = {"a": "x" * 10_000, "b": "é" * 5_000, "c": ":" * 5_000} | {f"p{number}": "x" for number in range(900)}
    conversation.request(SendMessage(message=outgoing(properties=properties)), NUMBER, answer=True)
    assert len(conversation.bytes_to_send()) > 30_000


def test_a_body_beyond_the_limit_is_not_sent() -> None:
    conversation = opened(frame_bytes_max=10)
    with pytest.raises(FrameTooLarge) as raised:
        conversation.request(SendMessage(message=outgoing(b"x" * 11)), NUMBER, answer=True)
    assert (raised.value.size, raised.value.limit) == (11, 10)
    assert conversation.bytes_to_send() == b""
    conversation.request(SendMessage(message=outgoing(b"x" * 10)), NUMBER, answer=True)


def test_a_repeated_message_is_marked() -> None:
    conversation = StompConversation()
    conversation.open(replace(LOGIN, is_again=True))
    conversation.bytes_to_send()
    assert conversation.receive(CONNECTED) == [Opened()]
    for number in (NUMBER, NUMBER + 1):  # what is restored, before anything else can be requested
        conversation.request(SendMessage(message=outgoing()), number, answer=True)
    assert [frame.headers.get(RESENT) for frame in sent(conversation)] == ["true", "true"]
    conversation.request(SendMessage(message=outgoing()), NUMBER + 2, answer=True)
    assert [frame.headers.get(RESENT) for frame in sent(conversation)] == [None]


def test_messages_of_the_first_connection_are_not_marked() -> None:
    assert RESENT not in send_frame().headers


# ---------------------------------------------------------------- consuming


def test_a_browser_subscribes_as_one_and_gets_its_end() -> None:
    conversation = opened()
    subscribe = AddConsumer(consumer=3, destination=Q, ack=AckMode.AUTO, prefetch=500, browser=True)
    conversation.request(subscribe, NUMBER, answer=False)
    (frame,) = sent(conversation)
    assert frame.headers["browser"] == "true"
    end = {"subscription": "3", "destination": "/queue/Q", "message_id": "0", "browser": "end"}
    assert conversation.receive(server("MESSAGE", **end)) == [Exhausted(3)]
    message = {**end, "message_id": "ID:x", "ack": "1"}  # an application's property of that name
    (event,) = conversation.receive(server("MESSAGE", **message))
    assert isinstance(event, Delivered)


@pytest.mark.parametrize(
    "request_",
    [
        AddConsumer(consumer=3, destination=Q, ack=AckMode.AUTO, prefetch=0),
        Pull(consumer=3, destination=Q, seconds=None),
    ],
)
def test_pulls_are_refused(request_: Request) -> None:
    conversation = opened()
    with pytest.raises(UnsendableMessage, match="OpenWire"):
        conversation.request(request_, NUMBER, answer=True)
    assert sent(conversation) == []


def test_subscribe_has_all_options() -> None:
    request = AddConsumer(
        consumer=3,
        destination=topic("T"),
        ack=AckMode.AUTO,
        prefetch=7,
        selector="a > 1",
        durable="d",
        no_local=True,
        exclusive=True,
        priority=5,
    )
    (frame,) = request_frames(request)
    assert frame.command == "SUBSCRIBE"
    assert frame.headers == {
        "id": "3",
        "destination": "/topic/T",
        "ack": "client-individual",
        "activemq.prefetchSize": "7",
        "selector": "a > 1",
        "activemq.subscriptionName": "d",
        "activemq.noLocal": "true",
        "activemq.exclusive": "true",
        "activemq.priority": "5",
        "receipt": str(NUMBER),
    }


def test_a_plain_subscription_has_required_headers_only() -> None:
    (frame,) = request_frames(
        AddConsumer(consumer=3, destination=queue("Q"), ack=AckMode.CLIENT, prefetch=1), answer=False
    )
    assert frame.headers.keys() == {"id", "destination", "ack", "activemq.prefetchSize"}


def test_unsubscribe_keeps_a_durable_subscription() -> None:
    (frame,) = request_frames(RemoveConsumer(consumer=3, durable="d"))
    assert frame.headers == {"id": "3", "receipt": str(NUMBER)}
    (frame,) = request_frames(RemoveDurable(name="d"))
    assert (frame.command, frame.headers["activemq.subscriptionName"]) == ("UNSUBSCRIBE", "d")


def test_each_message_has_an_ack_and_the_last_a_receipt() -> None:
    messages = [delivered(ack="a1"), delivered(ack="a2")]
    frames = request_frames(Acknowledge(consumer=3, messages=messages, individually=False, transaction=2))
    assert [frame.command for frame in frames] == ["ACK", "ACK"]
    assert [frame.headers for frame in frames] == [
        {"id": "a1", "transaction": "2"},
        {"id": "a2", "transaction": "2", "receipt": str(NUMBER)},
    ]


def test_poison_is_a_nack_outside_of_transactions() -> None:
    request = Acknowledge(consumer=3, messages=[delivered()], individually=True, transaction=2, poison="no use")
    (frame,) = request_frames(request, answer=False)
    assert (frame.command, frame.headers) == ("NACK", {"id": "a1"})


def test_a_message_has_its_fields_and_the_rest_are_properties() -> None:
    message = delivered(
        b"text",
        expires="1",
        priority="9",
        timestamp="2",
        correlation_id="c",
        reply_to="/topic/R",
        type="t",
        persistent="true",
        redelivered="true",
        colour="red",
        JMSXGroupID="g",
        JMSXGroupSeq="-3",
    )
    assert (message.id, message.destination, message.body) == ("ID:1", queue("Q"), "text")
    assert (message.expiration, message.priority, message.timestamp) == (1, 9, 2)
    assert (message.correlation_id, message.reply_to, message.type) == ("c", topic("R"), "t")
    assert (message.persistent, message.redelivered, message.group_id, message.group_sequence) == (True, True, "g", -3)
    assert message.properties == {"colour": "red"}


def test_a_plain_message_is_not_persistent_and_not_redelivered() -> None:
    message = delivered()
    assert (message.persistent, message.redelivered, message.priority) == (False, False, 4)


def test_a_message_that_was_sent_again_counts_as_redelivered() -> None:
    (event,) = opened().receive(message_frame().replace(b"ack:a1", f"ack:a1\n{RESENT}:true".encode()))
    assert isinstance(event, Delivered)
    assert event.message.redelivered


@pytest.mark.parametrize(
    ("body", "headers", "read"),
    [
        (b"", {}, ""),
        ("grüße".encode(), {}, "grüße"),
        (b"\xed\xa0\xbd\xed\xb8\x80", {}, "\U0001f600"),  # as ActiveMQ writes what Java sent
        (b"a\xc0\x80b", {}, "a\0b"),
        (b"\0\1", {"content_length": "2"}, b"\0\1"),
        (b"a\0b", {"content_length": "3", "amq_msg_type": "text"}, "a\0b"),
    ],
)
def test_bodies_are_read(body: bytes, headers: dict[str, str], read: str | bytes) -> None:
    assert delivered(body, **headers).body == read


def test_a_damaged_text_raises_only_when_it_is_read() -> None:
    message = delivered(b"\xff")
    with pytest.raises(UnreadableMessage):
        _ = message.body
    assert message.receipt == "a1"


@pytest.mark.parametrize(
    "frame",
    [
        server("MESSAGE", subscription="x", destination="/queue/Q", ack="1"),
        server("MESSAGE", destination="/queue/Q", ack="1"),
        server("MESSAGE", subscription="1", ack="1"),
        server("MESSAGE", subscription="1", destination="/queue/Q"),
        message_frame(priority="high"),
        message_frame(timestamp="9" * 30),
        server("RECEIPT", receipt_id="what"),
        server("RECEIPT"),
        server("NONSENSE"),
    ],
)
def test_an_invalid_frame_is_a_violation(frame: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        opened().receive(frame)


def test_a_received_frame_beyond_the_limit_raises() -> None:
    with pytest.raises(FrameTooLarge):
        opened(frame_bytes_max=100).receive(message_frame(b"x" * 101))


# ---------------------------------------------------------------- transactions and answers


@pytest.mark.parametrize(
    ("request_", "command"),
    [
        (BeginTransaction(transaction=2), "BEGIN"),
        (CommitTransaction(transaction=2), "COMMIT"),
        (RollbackTransaction(transaction=2), "ABORT"),
    ],
)
def test_transactions(request_: Request, command: str) -> None:
    (frame,) = request_frames(request_, answer=False)
    assert (frame.command, frame.headers) == (command, {"transaction": "2"})


@pytest.mark.parametrize(
    "request_",
    [AddProducer(producer=1), AddTemporary(destination=Destination(DestinationType.TEMP_QUEUE, "ID:here-1:1:1"))],
)
def test_a_request_without_a_frame_is_an_empty_transaction(request_: Request) -> None:
    frames = request_frames(request_)
    assert [frame.command for frame in frames] == ["BEGIN", "ABORT"]
    assert frames[0].headers["transaction"] == frames[1].headers["transaction"]
    assert frames[1].headers["receipt"] == str(NUMBER)


def test_receipts_are_answers() -> None:
    assert opened().receive(server("RECEIPT", receipt_id="12")) == [Answered(12)]


@pytest.mark.parametrize(
    ("message", "body", "kind"),
    [
        ("no", b"javax.jms.InvalidDestinationException: no\n\tat x", DestinationRefused),
        ("no", b"javax.jms.InvalidSelectorException: no", SelectorRefused),
        ("no", b"jakarta.jms.ResourceAllocationException: no", NoRoom),
        ("no", b"javax.jms.TransactionRolledBackException: no", TransactionRolledBack),
        ("no", b"org.apache.activemq.transport.stomp.ProtocolException: no", Refused),
        ("User u is not authorized to write to: queue://Q", b"User u is not authorized", NotAuthorized),
        ("the selector has 9 characters", b"", SelectorRefused),
        ("expected a value, found '=' at column 5", b"expected a value, found '=' at column 5\n  a", SelectorRefused),
        ("the disk is full", b"", NoRoom),
        ("whatever", b"", Refused),
    ],
)
def test_an_error_with_a_receipt_id_is_an_answer(message: str, body: bytes, kind: type[ClientError]) -> None:
    (event,) = opened().receive(server("ERROR", body, receipt_id="12", message=message))
    assert isinstance(event, Answered)
    assert (event.number, type(event.error), str(event.error)) == (12, kind, message)


def test_an_error_without_a_receipt_id_is_reported() -> None:
    (event,) = opened().receive(server("ERROR", message="Unexpected ACK"))
    assert isinstance(event, ErrorReported)


def test_a_message_too_large_for_the_broker_is_refused() -> None:
    conversation = opened()
    for number, size in ((20, 5), (21, 500), (22, 50)):
        conversation.request(SendMessage(message=outgoing(b"x" * size)), number, answer=True)
    (event,) = conversation.receive(server("ERROR", message="The maximum data length was exceeded"))
    assert isinstance(event, Answered)
    assert event.number == 21
    assert isinstance(event.error, FrameTooLarge)


def test_a_message_too_large_in_a_transaction_raises() -> None:
    conversation = opened()
    conversation.request(SendMessage(message=outgoing(b"x" * 500, transaction=1)), NUMBER, answer=False)
    with pytest.raises(FrameTooLarge):
        conversation.receive(server("ERROR", message="The maximum data length was exceeded"))


def test_the_disconnect_is_answered_last() -> None:
    conversation = opened()
    conversation.request(SendMessage(message=outgoing()), NUMBER, answer=True)
    conversation.close()
    frames = sent(conversation)
    assert [frame.command for frame in frames] == ["SEND", "DISCONNECT"]
    answers = server("RECEIPT", receipt_id=str(NUMBER)) + server("RECEIPT", receipt_id=frames[1].headers["receipt"])
    assert conversation.receive(answers) == [Answered(NUMBER), Ended("closed")]


# ---------------------------------------------------------------- time


def test_a_peer_without_connected_is_lost() -> None:
    conversation = StompConversation(initial_delay_ms=0)
    conversation.open(LOGIN)
    assert conversation.tick(10.0) == 20.0
    with pytest.raises(ConnectionLost):
        conversation.tick(20.0)


def test_heart_beats_are_sent_in_silence() -> None:
    conversation = opened(inactivity_ms=3000, initial_delay_ms=0)
    now = conversation.tick(0.0)
    for _ in range(3):
        conversation.receive(b"\n")
        now = conversation.tick(now)
    assert set(conversation.bytes_to_send()) == {ord("\n")}


def test_a_byte_is_sent_in_every_two_thirds_of_the_duration() -> None:
    conversation = opened(inactivity_ms=3000, initial_delay_ms=0)
    now, sent_at, longest = 0.0, 0.0, 0.0
    while now < 30:
        due_at = conversation.tick(now)
        conversation.receive(b"\n")
        if 9 < now < 12:  # the application is busy for a while
            conversation.request(BeginTransaction(transaction=1), NUMBER, answer=False)
        if conversation.bytes_to_send():
            longest, sent_at = max(longest, now - sent_at), now
        now = due_at
    assert longest <= 2.0 + 1e-9


def test_a_silent_broker_is_lost() -> None:
    conversation = opened(inactivity_ms=3000, initial_delay_ms=0)
    conversation.tick(0.0)
    with pytest.raises(ConnectionLost, match="silent"):
        conversation.tick(3.0)


def test_a_broker_without_heart_beats_is_not_monitored() -> None:
    conversation = StompConversation(inactivity_ms=3000)
    conversation.open(LOGIN)
    conversation.receive(server("CONNECTED", version="1.2", heart_beat="0,0"))
    assert conversation.tick(0.0) == float("inf")


def test_without_inactivity_there_are_no_heart_beats() -> None:
    conversation = StompConversation(inactivity_ms=0)
    conversation.open(LOGIN)
    assert sent(conversation)[0].headers["heart-beat"] == "0,0"
    conversation.receive(server("CONNECTED", version="1.2", heart_beat="0,0"))
    assert conversation.tick(0.0) == float("inf")


# ---------------------------------------------------------------- bytes


@given(st.lists(st.integers(1, 40), max_size=40))
def test_chunks_do_not_matter(sizes: list[int]) -> None:
    stream = (
        CONNECTED
        + server("RECEIPT", receipt_id="12")
        + server("ERROR", message="m")
        + server("RECEIPT", receipt_id="13")
    )
    conversation, events, start = StompConversation(), list[Event](), 0
    conversation.open(LOGIN)
    for size in [*sizes, len(stream)]:
        events += conversation.receive(stream[start : start + size])
        start += size
    kinds = [type(event) for event in events]
    assert kinds == [Opened, Answered, ErrorReported, Answered]


FRAMES = st.sampled_from([CONNECTED, message_frame(), server("RECEIPT", receipt_id="12"), server("ERROR", message="m")])


@given(st.lists(FRAMES | st.binary(max_size=20), max_size=6).map(b"".join), st.booleans())
def test_random_bytes_raise_only_what_is_documented(data: bytes, is_open: bool) -> None:
    conversation = opened() if is_open else StompConversation()
    try:
        for event in conversation.receive(data):
            if isinstance(event, Delivered):
                _ = event.message.properties
    except (ProtocolViolation, FrameTooLarge):
        pass
