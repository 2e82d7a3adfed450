# mypy: disable-error-code="arg-type, index, operator, union-attr"
"""SEND frames to messages, and messages to MESSAGE frames; destinations by name."""

import itertools
from dataclasses import replace

import pytest

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, to_message, view
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.stomp.frames import Version
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.transports.stomp.destinations import DestinationNames
from pybroker.transports.stomp.mapping import MessageReader, MessageWriter

NOW_MS = 1_700_000_000_000
CONNECTION_ID = "ID:host-1-7"
TRANSACTION = LocalTransactionId(CONNECTION_ID, 3)


class Connection:
    """Makes temporary destinations."""

    def __init__(self) -> None:
        self.made = 0

    def create_temporary(self, kind: DestinationType) -> Destination:
        self.made += 1
        return Destination(kind, f"{CONNECTION_ID}:{self.made}")


@pytest.fixture
def names() -> DestinationNames:
    return DestinationNames(Connection(), temporaries_max=2)


@pytest.fixture
def reader(names: DestinationNames) -> MessageReader:
    return MessageReader(CONNECTION_ID, names, lambda: NOW_MS, itertools.count(1).__next__)


def read(reader: MessageReader, headers: dict[str, str], body: bytes = b"x") -> OpenWireMessage:
    return view(reader.read({"destination": "/queue/q"} | headers, body, None))


# ---------------------------------------------------------------- destinations


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("/queue/A.B", queue("A.B")),
        ("/topic/A.B", topic("A.B")),
        (" /queue/A ", queue("A")),
        ("/queue/a/b", queue("a/b")),
        ("/queue/A?consumer.prefetchSize=1", queue("A")),
        ("/remote-temp-queue/ID:x:1", Destination(DestinationType.TEMP_QUEUE, "ID:x:1")),
        ("/remote-temp-topic/ID:x:1", Destination(DestinationType.TEMP_TOPIC, "ID:x:1")),
        ("plain", queue("plain")),
        ("/foo/bar", queue("/foo/bar")),
        ("queue://A", queue("queue://A")),
        ("/Queue/A", queue("/Queue/A")),
    ],
)
def test_destination_is_taken_literally_behind_its_prefix(
    names: DestinationNames, text: str, destination: Destination
) -> None:
    assert names.parse(text) == destination
    assert names.parse(text) == destination


@pytest.mark.parametrize("destination", [queue("A.B"), topic("a/b"), Destination(DestinationType.TEMP_QUEUE, "ID:x:1")])
def test_written_destination_is_parsed_again(names: DestinationNames, destination: Destination) -> None:
    assert names.parse(names.write(destination)) == destination


def test_temporary_destination_keeps_the_clients_name(names: DestinationNames) -> None:
    first = names.parse("/temp-queue/replies")
    assert names.parse(" /temp-queue/replies") == first
    assert first == Destination(DestinationType.TEMP_QUEUE, f"{CONNECTION_ID}:1")
    assert names.write(first) == "/temp-queue/replies"
    assert names.parse("/temp-topic/replies").type is DestinationType.TEMP_TOPIC
    with pytest.raises(RequestError, match="may have 2 temporary"):
        names.parse("/temp-queue/third")


@pytest.mark.parametrize(
    "text", ["/queue/", "/queue/ ", "/topic/?x=1", "/temp-queue/", "", " ", ",", "/queue/a,/queue/"]
)
def test_unusable_destination_is_refused(names: DestinationNames, text: str) -> None:
    with pytest.raises(RequestError):
        names.parse(text)


def test_memory_of_names_is_bounded(names: DestinationNames) -> None:
    for index in range(3000):
        assert names.parse(f"/queue/{index}") == queue(str(index))
        assert names.write(queue(str(index))) == f"/queue/{index}"
    assert len(names._parsed) <= 1000
    assert len(names._written) <= 1000


# ---------------------------------------------------------------- SEND


def test_plain_send_is_a_text_message_that_does_not_last(reader: MessageReader) -> None:
    message = reader.read({"destination": "/queue/q"}, "grüße".encode(), None)
    assert (message.message_id, message.destination, message.persistent) == (
        f"{CONNECTION_ID}:-1:1:1",
        queue("q"),
        False,
    )
    assert (message.priority, message.expiration, message.connection_id) == (4, 0, CONNECTION_ID)
    fields = view(message)
    assert (fields.type, fields.text(), fields.timestamp) == (MessageType.TEXT, "grüße", NOW_MS)
    assert fields.properties == {}


def test_messages_are_numbered(reader: MessageReader) -> None:
    ids = [reader.read({"destination": f"/queue/{name}"}, b"", None).message_id for name in "abab"]
    assert ids == [f"{CONNECTION_ID}:-1:1:{number}" for number in (1, 2, 3, 4)]


def test_fields_and_properties(reader: MessageReader) -> None:
    headers = {
        "destination": "/topic/t",
        "persistent": "true",
        "priority": "7",
        "expires": "99",
        "timestamp": "11",
        "correlation-id": "c",
        "type": "t",
        "reply-to": "/queue/r",
        "JMSXGroupID": "g",
        "JMSXGroupSeq": "-1",
        "receipt": "r",
        "transaction": "t",
        "message-id": "m",
        "redelivered": "true",
        "subscription": "s",
        "JMSXUserID": "u",
        "x-y": "1",
        "content-type": "text/plain",
    }
    message = reader.read(headers, b"", TRANSACTION)
    fields = view(message)
    assert message.persistent
    assert (fields.priority, fields.expiration, fields.timestamp) == (7, 99, 11)
    assert (fields.correlation_id, fields.jms_type, fields.reply_to) == ("c", "t", queue("r"))
    assert (fields.group_id, fields.group_sequence, fields.transaction_id) == ("g", -1, TRANSACTION)
    assert fields.properties == {"x-y": "1", "content-type": "text/plain"}


def test_jms_names_set_the_same_fields_and_win(reader: MessageReader) -> None:
    headers = {
        "JMSCorrelationID": "c",
        "JMSType": "t",
        "JMSPriority": "8",
        "JMSReplyTo": "topic://r",
        "JMSDeliveryMode": "PERSISTENT",
        "JMSTimestamp": "5",
        "JMSExpiration": "6",
        "priority": "1",
        "correlation-id": "other",
    }
    fields = read(reader, headers)
    assert (fields.correlation_id, fields.jms_type, fields.priority) == ("c", "t", 8)
    assert (fields.reply_to, fields.persistent, fields.timestamp, fields.expiration) == (topic("r"), True, 5, 6)
    assert fields.properties == {}


@pytest.mark.parametrize(("text", "priority"), [("0", 0), ("-3", 0), ("+9", 9), ("42", 9), (" 5 ", 5)])
def test_priority_is_clamped(reader: MessageReader, text: str, priority: int) -> None:
    assert read(reader, {"priority": text}).priority == priority


@pytest.mark.parametrize("name", ["priority", "expires", "timestamp", "JMSXGroupSeq", "JMSPriority", "JMSExpiration"])
@pytest.mark.parametrize("text", ["high", "", "1.5", "1_0", "٣", "0x10", "9" * 19, "9" * 5000, "--1"])
def test_number_that_is_none_is_refused_by_name(reader: MessageReader, name: str, text: str) -> None:
    with pytest.raises(RequestError, match=r"^Invalid \S+ header: ") as caught:
        read(reader, {name: text})
    assert len(str(caught.value)) < 300


def test_unknown_delivery_mode_is_refused(reader: MessageReader) -> None:
    with pytest.raises(RequestError, match="Invalid JMSDeliveryMode"):
        read(reader, {"JMSDeliveryMode": "SOMETIMES"})


@pytest.mark.parametrize("text", ["TRUE", " true", "yes", ""])
def test_only_exactly_true_is_persistent(reader: MessageReader, text: str) -> None:
    assert not read(reader, {"persistent": text}).persistent


def test_reply_to_that_is_no_destination_is_a_property(reader: MessageReader) -> None:
    fields = read(reader, {"reply-to": "me"})
    assert fields.reply_to is None
    assert fields.properties == {"reply-to": "me"}


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({}, MessageType.TEXT),
        ({"content-length": "1"}, MessageType.BYTES),
        ({"amq-msg-type": "bytes"}, MessageType.BYTES),
        ({"amq-msg-type": "Text", "content-length": "1"}, MessageType.TEXT),
    ],
)
def test_body_type(reader: MessageReader, headers: dict[str, str], kind: MessageType) -> None:
    fields = read(reader, headers)
    assert fields.type is kind
    assert (fields.text() if kind is MessageType.TEXT else fields.body_bytes().decode()) == "x"
    assert fields.properties == (headers if "amq-msg-type" in headers else {})


def test_unknown_body_type_is_refused(reader: MessageReader) -> None:
    with pytest.raises(RequestError, match="Unsupported message type 'map'"):
        read(reader, {"amq-msg-type": "map"})


def test_body_that_is_no_utf_8_becomes_bytes_by_default(reader: MessageReader) -> None:
    fields = read(reader, {}, b"gr\xfc\xdfe")
    assert (fields.type, fields.body_bytes()) == (MessageType.BYTES, b"gr\xfc\xdfe")
    with pytest.raises(RequestError, match="must be UTF-8"):
        read(reader, {"amq-msg-type": "text"}, b"gr\xfc\xdfe")


def test_text_is_stored_as_java_reads_it(reader: MessageReader) -> None:
    fields = read(reader, {"amq-msg-type": "text", "content-length": "6"}, "a\0😀".encode())
    assert fields.content == b"\0\0\0\x09a\xc0\x80\xed\xa0\xbd\xed\xb8\x80"


def test_transformation_that_was_not_made_is_marked(reader: MessageReader) -> None:
    fields = read(reader, {"transformation": "jms-json"}, b"{}")
    assert fields.properties["transformation-error"] == "Unknown transformation: jms-json"
    assert fields.text() == "{}"
    assert "transformation-error" not in read(reader, {"transformation": "my-own"}).properties
    assert "transformation-error" not in read(reader, {"transformation": "jms-xml", "content-length": "1"}).properties


def test_long_transformation_name_gets_a_short_reason(reader: MessageReader) -> None:
    body = b"<" + b"n" * 100_000 + b"/>"
    fields = read(reader, {"transformation": "jms-map-xml"}, body)
    assert fields.type is MessageType.TEXT
    assert len(str(fields.properties["transformation-error"])) < 300


@pytest.mark.parametrize("headers", [{}, {"destination": ""}, {"destination": " "}])
def test_send_needs_a_destination(reader: MessageReader, headers: dict[str, str]) -> None:
    with pytest.raises(RequestError, match="SEND received without a Destination specified!"):
        reader.read(headers, b"", None)


# ---------------------------------------------------------------- MESSAGE


PRODUCER = ProducerId("ID:java-1", 1, 1)
PLAIN = OpenWireMessage(
    type=MessageType.TEXT,
    destination=queue("q"),
    producer_id=PRODUCER,
    message_id=OpenWireMessageId(None, PRODUCER, 9),
    timestamp=5,
)


def written(
    names: DestinationNames,
    fields: OpenWireMessage,
    *,
    version: Version = Version.V1_2,
    ack: str | None = None,
    redelivery_count: int = 0,
    **options: str,
) -> tuple[dict[str, str], bytes]:
    """Render a message and return its raw headers and body."""
    writer = MessageWriter(
        names, version, subscription_id=options.get("subscription_id"), transformation=options.get("transformation")
    )
    data = writer.write(Delivery(to_message(fields), redelivery_count), ack)
    assert data.startswith(b"MESSAGE\n")
    assert data.endswith(b"\0\n")
    head, _, body = data[:-2].partition(b"\n\n")
    lines = [line.partition(":") for line in head.decode().split("\n")[1:]]
    assert len({name for name, _, _ in lines}) == len(lines)
    return {name: value for name, _, value in lines}, body


def test_plain_message(names: DestinationNames) -> None:
    headers, body = written(names, replace(PLAIN, content=b"\0\0\0\x01x"))
    assert headers == {
        "destination": "/queue/q",
        "message-id": "ID\\cjava-1\\c1\\c1\\c9",
        "expires": "0",
        "priority": "4",
        "timestamp": "5",
    }
    assert body == b"x"


def test_every_header_of_a_message(names: DestinationNames) -> None:
    fields = replace(
        PLAIN,
        persistent=True,
        priority=7,
        expiration=8,
        correlation_id="c",
        reply_to=names.parse("/temp-queue/r"),
        jms_type="t",
        user_id="u",
        original_destination=topic("o"),
        group_id="g",
        group_sequence=3,
        marshalled_properties=encode_map({"k": "v:w", "n": 5, "b": True, "d": 1.5, "z": None}),
    )
    headers, _ = written(names, fields, ack="ID:c:1:2", redelivery_count=1, subscription_id="s:1")
    assert headers == {
        "subscription": "s\\c1",
        "destination": "/queue/q",
        "message-id": "ID\\cjava-1\\c1\\c1\\c9",
        "ack": "ID\\cc\\c1\\c2",
        "expires": "8",
        "priority": "7",
        "timestamp": "5",
        "persistent": "true",
        "redelivered": "true",
        "correlation-id": "c",
        "reply-to": "/temp-queue/r",
        "type": "t",
        "JMSXUserID": "u",
        "original-destination": "/topic/o",
        "k": "v\\cw",
        "n": "5",
        "b": "true",
        "d": "1.5",
        "z": "null",
    }


def test_properties_override_only_optional_headers(
    names: DestinationNames,
) -> None:
    properties = {"priority": "p", "type": "t", "subscription": "x", "ack": "y", "content-length": "99", "k": "v"}
    fields = replace(PLAIN, content=b"\0\0\0\x01x", marshalled_properties=encode_map(properties))
    headers, _ = written(names, fields, ack="a", subscription_id="s", redelivery_count=2)
    assert headers["priority"] == "p"
    assert headers["type"] == "t"
    assert headers["redelivered"] == "true"
    assert headers["k"] == "v"
    assert (headers["subscription"], headers["ack"], headers["content-length"]) == ("s", "a", "1")
    headers, _ = written(names, replace(fields, persistent=True))
    assert (headers["subscription"], headers["ack"], headers["persistent"]) == ("x", "y", "true")


def test_a_property_does_not_replace_the_user(names: DestinationNames) -> None:
    fields = replace(PLAIN, marshalled_properties=encode_map({"JMSXUserID": "boss"}))
    assert written(names, fields)[0]["JMSXUserID"] == "boss"
    assert written(names, replace(fields, user_id="u"))[0]["JMSXUserID"] == "u"


def test_bytes_have_a_length_and_other_bodies_are_empty(names: DestinationNames) -> None:
    assert written(names, replace(PLAIN, type=MessageType.BYTES, content=b"a\0b"))[0]["content-length"] == "3"
    for kind in (MessageType.STREAM, MessageType.MESSAGE, MessageType.TEXT):
        headers, body = written(names, replace(PLAIN, type=kind), transformation="jms-json")
        assert body == b""
        assert "content-length" not in headers
        assert headers["transformation"] == "jms-json"
    assert "transformation" not in written(names, replace(PLAIN, type=MessageType.BYTES), transformation="jms-json")[0]


@pytest.mark.parametrize("kind", [MessageType.MAP, MessageType.OBJECT, MessageType.STREAM])
def test_body_without_transformation_is_empty_and_logged_once(
    names: DestinationNames, caplog: pytest.LogCaptureFixture, kind: MessageType
) -> None:
    writer = MessageWriter(names, Version.V1_2, subscription_id="s", transformation=None)
    message = to_message(replace(PLAIN, type=kind, content=b"\0\0\0\0"))
    with caplog.at_level("INFO"):
        frames = [writer.write(Delivery(message, 0)) for _ in range(2)]
    assert frames[0].endswith(b"\n\n\0\n")
    assert len(caplog.records) == 1
    assert caplog.records[0].message.startswith(
        f"subscription s gets {kind.name.lower()} messages without their bodies"
    )


def test_topic_message_has_each_subscriptions_form(names: DestinationNames) -> None:
    message = to_message(replace(PLAIN, type=MessageType.MAP, destination=topic("t"), content=encode_map({"a": 1})))
    asked = ["jms-json", "jms-json", "jms-xml", None]
    frames = [
        MessageWriter(names, Version.V1_2, subscription_id="1", transformation=each).write(Delivery(message, 0))
        for each in asked
    ]
    assert frames[0] == frames[1]
    assert b'{"map":{"entry":{"string":"a","int":1}}}' in frames[0]
    assert b"<int>1</int>" in frames[2]
    assert frames[3].endswith(b"\n\n\0\n")


def test_subscriptions_transformation_wins_over_the_property(names: DestinationNames) -> None:
    fields = replace(PLAIN, marshalled_properties=encode_map({"transformation": "theirs"}))
    assert written(names, fields, transformation="ours")[0]["transformation"] == "ours"
    assert written(names, fields)[0]["transformation"] == "theirs"


def test_text_with_nul_is_sent_in_utf_8_with_a_length(names: DestinationNames) -> None:
    fields = replace(PLAIN)
    fields.content = encode_text("a\0é😀")
    headers, body = written(names, fields)
    assert body == "a\0é😀".encode()
    assert headers["content-length"] == str(len(body))


def test_text_that_activemq_stored_unread_goes_back_as_it_came(names: DestinationNames) -> None:
    assert written(names, replace(PLAIN, content=b"\0\0\0\x03gr\xfc"))[1] == b"gr\xfc"


@pytest.mark.parametrize("version", list(Version))
def test_no_property_can_write_headers_or_end_the_frame(names: DestinationNames, version: Version) -> None:
    properties = {"a\nb:c\0": "x\nevil:1\0\n\n", "k": "v"}
    headers, body = written(names, replace(PLAIN, marshalled_properties=encode_map(properties)), version=version)
    assert "evil" not in headers
    assert headers["k"] == "v"
    assert body == b""
    assert "\0" not in "".join(headers) + "".join(headers.values())


def test_end_of_browsing(names: DestinationNames) -> None:
    writer = MessageWriter(names, Version.V1_1, subscription_id="1", transformation=None)
    frame = writer.end_of_browsing("/queue/q")
    assert sorted(frame.decode().split("\n")) == sorted(
        ["MESSAGE", "subscription:1", "destination:/queue/q", "message-id:0", "browser:end", "", "\0", ""]
    )


# ---------------------------------------------------------------- one rendering for all consumers of a topic

BROADCAST = replace(PLAIN, destination=topic("t"), content=b"\0\0\0\x01x", jms_type="t")


def a_writer(
    names: DestinationNames, version: Version = Version.V1_2, transformation: str | None = None
) -> MessageWriter:
    return MessageWriter(names, version, subscription_id="s:1", transformation=transformation)


def test_topics_message_is_rendered_once_per_version(names: DestinationNames) -> None:
    message = to_message(BROADCAST)
    first = a_writer(names).write(Delivery(message))
    rendered = view(message).rendered
    assert rendered is not None
    assert a_writer(names).write(Delivery(message)) == first
    assert view(message).rendered is rendered


def test_queues_message_holds_no_second_copy_of_its_body(names: DestinationNames) -> None:
    message = to_message(replace(BROADCAST, destination=queue("q")))
    a_writer(names).write(Delivery(message))
    assert view(message).rendered is None


def test_rendering_differs_only_in_consumers_headers(names: DestinationNames) -> None:
    message = to_message(replace(BROADCAST, correlation_id="a:b"))
    fresh = {version: a_writer(names, version).write(Delivery(to_message(view(message)))) for version in Version}
    assert len(set(fresh.values())) > 1
    for version in (*Version, *Version):
        assert a_writer(names, version).write(Delivery(message)) == fresh[version]
    tracked = a_writer(names).write(Delivery(message, redelivery_count=1), "c:1:2")
    assert sorted(tracked.split(b"\n\n")[0].split(b"\n")) == sorted(
        [*fresh[Version.V1_2].split(b"\n\n")[0].split(b"\n"), b"ack:c\\c1\\c2", b"redelivered:true"]
    )


def test_temporary_reply_destination_is_named_per_consumer(names: DestinationNames) -> None:
    temporary = names.parse("/temp-queue/r")
    message = to_message(replace(BROADCAST, reply_to=temporary))
    elsewhere = DestinationNames(Connection(), temporaries_max=2)
    assert b"\nreply-to:/temp-queue/r\n" in a_writer(names).write(Delivery(message))
    assert f"\nreply-to:/remote-temp-queue/{temporary.name}\n".replace("ID:host-1-7:", r"ID\chost-1-7\c").encode() in (
        a_writer(elsewhere).write(Delivery(message))
    )


def test_transformation_is_the_subscriptions_own(names: DestinationNames) -> None:
    message = to_message(BROADCAST)
    plain = a_writer(names)
    transforming = a_writer(names, transformation="jms-json")
    for _ in range(2):
        assert b"\ntransformation:jms-json\n" in transforming.write(Delivery(message))
        assert b"transformation" not in plain.write(Delivery(message))


def test_message_with_overriding_properties_is_not_shared(names: DestinationNames) -> None:
    message = to_message(replace(BROADCAST, marshalled_properties=encode_map({"priority": "p", "ack": "y"})))
    first = a_writer(names).write(Delivery(message), "a1")
    assert view(message).rendered is None
    assert b"\nack:a1\n" in first
    assert b"\nack:a2\n" in a_writer(names).write(Delivery(message), "a2")
