"""Bytes to MQTT packets, with limits and violations; and the broker's packets to bytes."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pybroker.broker.domain.errors import ProtocolError
from pybroker.broker.domain.mqtt.codec import (
    PacketDecoder,
    encode_acknowledgement,
    encode_connack,
    encode_disconnect,
    encode_publish,
    encode_suback,
    encode_topic,
    encode_unsuback,
)
from pybroker.broker.domain.mqtt.errors import MqttProtocolError
from pybroker.broker.domain.mqtt.packets import (
    AcknowledgementPacket,
    AuthPacket,
    ConnectPacket,
    DisconnectPacket,
    FilterSubscription,
    MqttLimits,
    Packet,
    PacketType,
    PingPacket,
    PublishPacket,
    RetainHandling,
    SubscribePacket,
    UnsubscribePacket,
    Will,
)
from pybroker.broker.domain.mqtt.properties import NO_PROPERTIES, MqttProperties, encode_properties
from pybroker.broker.domain.mqtt.reason_codes import ReasonCode
from tests import mqtt_packets as client

GOLDEN = Path(__file__).parents[3] / "golden" / "mqtt"
USER_PROPERTY = b"\x26\0\1a\0\1b"
SMALL = MqttLimits(packet_bytes=100, unconnected_packet_bytes=50, filters=2, user_properties=1)


def decode(data: bytes, level: int = 4, limits: MqttLimits | None = None) -> list[Packet]:
    decoder = PacketDecoder(limits or MqttLimits())
    decoder.level = level
    return list(decoder.feed(data))


def one(data: bytes, level: int = 4) -> Packet:
    (found,) = decode(data, level)
    return found


def values(properties: MqttProperties) -> dict[str, object]:
    """Return the properties that were set."""
    return dict(vars(properties))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_every_packet_of_a_recorded_client_decodes(path: Path) -> None:
    """What the broker closed on ActiveMQ raises only the documented error."""
    by_connection: dict[str, list[bytes]] = {}
    closed: set[str] = set()
    for event in json.loads(path.read_text())["events"]:
        if event.get("dir") == "C":
            by_connection.setdefault(event["conn"], []).append(bytes.fromhex(event["hex"]))
        elif event.get("closed"):
            closed.add(event["conn"])
    for connection, packets in by_connection.items():
        decoder = PacketDecoder(MqttLimits())
        try:
            found = [each for packet in packets for each in decoder.feed(packet)]
        except MqttProtocolError:
            assert connection in closed
        else:
            assert len(found) == len(packets)


@pytest.mark.parametrize(
    ("data", "level", "packet"),
    [
        (
            client.connect("dev1", clean=False, keep_alive=60),
            4,
            ConnectPacket(level=4, client_id="dev1", clean=False, keep_alive=60, user=None, password=None, will=None),
        ),
        (
            client.connect("é", level=3, user="u", password="p", will=("w", b"gone"), will_qos=2, will_retain=True),
            4,
            ConnectPacket(
                level=3,
                client_id="é",
                clean=True,
                keep_alive=0,
                user="u",
                password=b"p",
                will=Will("w", b"gone", 2, True),
            ),
        ),
        (client.publish("a/b", b"body"), 4, PublishPacket("a/b", b"body", 0, False, False, 0)),
        (client.publish("a", b""), 4, PublishPacket("a", b"", 0, False, False, 0)),
        (
            client.publish("a/b", b"body", qos=2, packet_id=65535, retain=True, dup=True),
            4,
            PublishPacket("a/b", b"body", 2, True, True, 65535),
        ),
        (
            client.publish("a/b", b"body", qos=1, packet_id=7, pieces=()),
            5,
            PublishPacket("a/b", b"body", 1, False, False, 7),
        ),
        (client.packet(client.PUBACK, b"\0\7"), 4, AcknowledgementPacket(PacketType.PUBACK, 7)),
        (client.packet(client.PUBREL, b"\1\0"), 5, AcknowledgementPacket(PacketType.PUBREL, 256)),
        (
            client.packet(client.PUBREC, b"\0\7\x97"),
            5,
            AcknowledgementPacket(PacketType.PUBREC, 7, ReasonCode.QUOTA_EXCEEDED),
        ),
        (
            client.packet(client.PUBCOMP, b"\0\7\x92\x07" + USER_PROPERTY),
            5,
            AcknowledgementPacket(PacketType.PUBCOMP, 7, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND),
        ),
        (
            client.subscribe(9, ("a/+", 1), ("#", 2)),
            4,
            SubscribePacket(9, (FilterSubscription("a/+", 1), FilterSubscription("#", 2))),
        ),
        (
            client.subscribe(9, ("a", 0b0010_1110), pieces=()),
            5,
            SubscribePacket(9, (FilterSubscription("a", 2, True, True, RetainHandling.NEVER),)),
        ),
        (client.unsubscribe(3, "a", "b/#"), 4, UnsubscribePacket(3, ("a", "b/#"))),
        (client.unsubscribe(3, "a", pieces=(USER_PROPERTY,)), 5, UnsubscribePacket(3, ("a",))),
        (client.PINGREQ, 4, PingPacket()),
        (client.DISCONNECT, 5, DisconnectPacket()),
        (client.packet(0xE0, b"\x04"), 5, DisconnectPacket(ReasonCode.DISCONNECT_WITH_WILL)),
        (client.packet(0xF0, b"\x18\0"), 5, AuthPacket(0x18)),
        (client.packet(0xF0), 5, AuthPacket(0)),
    ],
    ids=repr,
)
def test_packets(data: bytes, level: int, packet: Packet) -> None:
    assert one(data, level) == packet


def test_connect_sets_the_level_of_what_follows() -> None:
    found = decode(client.connect("x", level=5) + client.publish("t", b"p", pieces=(b"\x23\0\1",)))
    assert isinstance(found[1], PublishPacket)
    assert found[1].properties.topic_alias == 1


@pytest.mark.parametrize(
    ("carrier", "pieces", "expected"),
    [
        ("connect", (b"\x11\0\0\0\5", b"\x21\0\1", b"\x27\0\0\1\0"), {
            "session_expiry": 5, "receive_maximum": 1, "maximum_packet_size": 256,
        }),
        ("connect", (b"\x22\0\5", b"\x17\0", b"\x19\1", b"\x15\0\1m", b"\x16\0\2dd"), {
            "topic_alias_maximum": 5, "request_problem_information": 0, "request_response_information": 1,
            "authentication_method": "m", "authentication_data": b"dd",
        }),
        ("will", (b"\x18\0\0\0\7", b"\x01\1", b"\x03\0\1t"), {
            "will_delay": 7, "payload_format": 1, "content_type": "t",
        }),
        ("publish", (b"\x02\0\0\0\x0a", b"\x08\0\1r", b"\x09\0\2\0\1", USER_PROPERTY, USER_PROPERTY), {
            "message_expiry": 10, "response_topic": "r", "correlation_data": b"\0\1",
            "user_properties": (("a", "b"), ("a", "b")),
        }),
        ("subscribe", (b"\x0b\x80\1",), {"subscription_ids": (128,)}),
        ("disconnect", (b"\x11\0\0\0\0", b"\x1f\0\1r"), {"session_expiry": 0, "reason_string": "r"}),
    ],
)  # fmt: skip
def test_properties(carrier: str, pieces: Sequence[bytes], expected: dict[str, object]) -> None:
    packet: Packet | Will | None
    match carrier:
        case "connect":
            packet = one(client.connect("x", level=5, pieces=pieces))
        case "will":
            found = one(client.connect("x", level=5, will=("w", b""), will_pieces=pieces))
            assert isinstance(found, ConnectPacket)
            packet = found.will
        case "publish":
            packet = one(client.publish("t", b"", pieces=pieces), 5)
        case "subscribe":
            packet = one(client.subscribe(1, ("t", 0), pieces=pieces), 5)
        case _:
            packet = one(client.packet(0xE0, b"\0", client.properties(*pieces)), 5)
    assert isinstance(packet, ConnectPacket | Will | PublishPacket | SubscribePacket | DisconnectPacket)
    assert values(packet.properties) == expected


@pytest.mark.parametrize(
    ("data", "level", "reason", "text"),
    [
        (b"\x00\x00", 4, ReasonCode.MALFORMED_PACKET, "type 0"),
        (b"\x20\x02\0\0", 4, ReasonCode.PROTOCOL_ERROR, "CONNACK comes from a broker"),
        (b"\xf0\x00", 4, ReasonCode.MALFORMED_PACKET, "AUTH belongs to MQTT 5"),
        (b"\xc0\x01\0", 4, ReasonCode.MALFORMED_PACKET, "PINGREQ has 1 bytes too many"),
        (b"\xc1\x00", 4, ReasonCode.MALFORMED_PACKET, "PINGREQ has the flags 0b0001"),
        (b"\x80" + client.subscribe(1, ("t", 0))[1:], 4, ReasonCode.MALFORMED_PACKET, "SUBSCRIBE has the flags"),
        (b"\xc0\x80\x80\x80\x80\x01", 4, ReasonCode.MALFORMED_PACKET, "more than four bytes"),
        (client.packet(0x30, b"\0"), 4, ReasonCode.MALFORMED_PACKET, "PUBLISH ends within its topic name"),
        (client.packet(0x30, b"\0\2t"), 4, ReasonCode.MALFORMED_PACKET, "PUBLISH ends before its payload"),
        (client.packet(0x32, b"\0\1t\0"), 4, ReasonCode.MALFORMED_PACKET, "PUBLISH ends before its payload"),
        (client.publish("t", b"", qos=3, packet_id=1), 4, ReasonCode.MALFORMED_PACKET, "QoS 3"),
        (client.publish("t", b"", qos=1, packet_id=0), 4, ReasonCode.MALFORMED_PACKET, "identifier of PUBLISH is 0"),
        (client.publish("t", b"", dup=True), 4, ReasonCode.MALFORMED_PACKET, "cannot have the DUP flag"),
        (client.packet(0x30, client.text(b"\xff")), 4, ReasonCode.MALFORMED_PACKET, "no UTF-8"),
        (client.packet(0x30, client.text(b"a\0")), 4, ReasonCode.MALFORMED_PACKET, "NUL"),
        (client.packet(0x30, client.text(b"\xed\xa0\x80")), 4, ReasonCode.MALFORMED_PACKET, "no UTF-8"),
        (client.packet(0x40, b"\0\0"), 4, ReasonCode.MALFORMED_PACKET, "identifier is 0"),
        (client.packet(0x40, b"\0\1\x55"), 5, ReasonCode.MALFORMED_PACKET, "unknown reason code 0x55"),
        (client.packet(0x82, b"\0\1"), 4, ReasonCode.PROTOCOL_ERROR, "SUBSCRIBE has no topic filters"),
        (client.packet(0xA2, b"\0\1"), 4, ReasonCode.PROTOCOL_ERROR, "UNSUBSCRIBE has no topic filters"),
        (client.subscribe(1, ("t", 3)), 4, ReasonCode.MALFORMED_PACKET, "options"),
        (client.subscribe(1, ("t", 4)), 4, ReasonCode.MALFORMED_PACKET, "options"),
        (client.subscribe(1, ("t", 0x30), pieces=()), 5, ReasonCode.MALFORMED_PACKET, "options"),
        (client.packet(0x10, client.text("MQTT"), b"\6\2\0\0", client.text("")), 4,
         ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, "level 0x06"),
        (client.packet(0x10, client.text("MQTT"), b"\x84\2\0\0", client.text("")), 4,
         ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, "level 0x84"),
        (client.packet(0x10, client.text("MQTT"), b"\3\2\0\0", client.text("")), 4,
         ReasonCode.MALFORMED_PACKET, "MQTT with level 3"),
        (client.packet(0x10, client.text("MQIsdp"), b"\4\2\0\0", client.text("")), 4,
         ReasonCode.MALFORMED_PACKET, "MQIsdp with level 4"),
        (client.packet(0x10, client.text("HTTP"), b"\4\2\0\0", client.text("")), 4,
         ReasonCode.MALFORMED_PACKET, "'HTTP'"),
        (client.packet(0x10, client.text("MQTT"), b"\4\3\0\0", client.text("")), 4,
         ReasonCode.MALFORMED_PACKET, "flags"),
        (client.packet(0x10, client.text("MQTT"), b"\4\x22\0\0", client.text("")), 4,
         ReasonCode.MALFORMED_PACKET, "flags"),
        (client.packet(0x10, client.text("MQTT"), b"\4\x1e\0\0", client.text("")), 4,
         ReasonCode.MALFORMED_PACKET, "flags"),
        (client.connect("x", password="p"), 4, ReasonCode.MALFORMED_PACKET, "password without a user"),
        (client.publish("t", b"", pieces=(b"\x11\0\0\0\1",)), 5, ReasonCode.MALFORMED_PACKET, "0x11 cannot be in"),
        (client.publish("t", b"", pieces=(b"\x0b\1",)), 5, ReasonCode.MALFORMED_PACKET, "0x0b cannot be in PUBLISH"),
        (client.publish("t", b"", pieces=(b"\x7f",)), 5, ReasonCode.MALFORMED_PACKET, "0x7f"),
        (client.publish("t", b"", pieces=(b"\1\2",)), 5, ReasonCode.PROTOCOL_ERROR, "payload_format cannot be 2"),
        (client.publish("t", b"", pieces=(b"\1\1", b"\1\1")), 5, ReasonCode.PROTOCOL_ERROR, "comes twice"),
        (client.publish("t", b"", pieces=(b"\2\0\0",)), 5, ReasonCode.MALFORMED_PACKET, "ends within a value of 4"),
        (client.packet(0x30, client.text("t"), b"\5\1"), 5, ReasonCode.MALFORMED_PACKET, "ends within a part of 5"),
        (client.connect("x", level=5, pieces=(b"\x21\0\0",)), 4, ReasonCode.PROTOCOL_ERROR, "maximum cannot be 0"),
        (client.subscribe(1, ("t", 0), pieces=(b"\x0b\0",)), 5, ReasonCode.PROTOCOL_ERROR, "ids cannot be 0"),
    ],
)  # fmt: skip
def test_violations(data: bytes, level: int, reason: ReasonCode, text: str) -> None:
    with pytest.raises(MqttProtocolError, match=text) as caught:
        decode(data, level)
    assert caught.value.reason is reason


def test_packets_before_a_broken_one_are_not_lost() -> None:
    packets = PacketDecoder(MqttLimits()).feed(client.publish("t", b"1") + b"\0\0")
    assert isinstance(next(packets), PublishPacket)
    with pytest.raises(ProtocolError):
        next(packets)


@pytest.mark.parametrize("size", [50, 51])
def test_limit_before_connect(size: int) -> None:
    data = client.packet(0x30, client.text("t"), bytes(size - 3))
    if size == 50:
        assert len(decode(data, limits=SMALL)) == 1
        return
    for chunks in ([data], [data[:2]]):
        decoder = PacketDecoder(SMALL)
        with pytest.raises(MqttProtocolError, match="51 bytes: 50 are allowed") as caught:
            [each for chunk in chunks for each in decoder.feed(chunk)]
        assert caught.value.reason is ReasonCode.PACKET_TOO_LARGE


def test_limit_once_connected() -> None:
    decoder = PacketDecoder(SMALL)
    decoder.packet_bytes_max = SMALL.packet_bytes
    assert len(list(decoder.feed(client.packet(0x30, client.text("t"), bytes(97))))) == 1
    with pytest.raises(MqttProtocolError, match="101 bytes: 100 are allowed"):
        list(decoder.feed(client.packet(0x30, client.text("t"), bytes(98))))


@pytest.mark.parametrize(
    "data",
    [
        client.subscribe(1, ("a", 0), ("b", 0), ("c", 0), pieces=()),
        client.unsubscribe(1, "a", "b", "c", pieces=()),
        client.publish("t", b"", pieces=(USER_PROPERTY, USER_PROPERTY)),
    ],
)
def test_limits_to_lists(data: bytes) -> None:
    with pytest.raises(MqttProtocolError, match=r"A packet may have [12] ") as caught:
        decode(data, 5, SMALL)
    assert caught.value.reason is ReasonCode.QUOTA_EXCEEDED


def test_unfinished_packet_is_counted() -> None:
    decoder = PacketDecoder(MqttLimits())
    data = client.publish("t", bytes(1000), qos=1, packet_id=1)
    assert (decoder.received, decoder.unfinished) == (0, 0)
    assert not list(decoder.feed(data[:2]))
    assert (decoder.received, decoder.unfinished) == (2, 2)
    assert not list(decoder.feed(data[2:500]))
    assert (decoder.received, decoder.unfinished) == (500, len(data))
    (packet,) = decoder.feed(data[500:] + data[:1])
    assert isinstance(packet, PublishPacket)
    assert packet.payload == bytes(1000)
    assert (decoder.received, decoder.unfinished) == (1, 1)
    decoder.clear()
    assert (decoder.received, decoder.unfinished) == (0, 0)


def test_no_secrets_in_representations() -> None:
    shown = repr(one(client.connect("x", user="u", password="secret", will=("w", b"secret"))))
    assert "secret" not in shown
    assert "secret" not in repr(one(client.publish("t", b"secret")))


def test_reserved_flag_of_mqtt_3_1_has_no_meaning() -> None:
    data = client.packet(0x10, client.text("MQIsdp"), b"\3\3\0\0", client.text("x"))
    (found,) = PacketDecoder(MqttLimits()).feed(data)
    assert isinstance(found, ConnectPacket)
    assert found.clean


# ---------------------------------------------------------------- the broker's packets


def test_connack() -> None:
    properties = MqttProperties()
    properties.assigned_client_id = "id"
    properties.receive_maximum = 100
    assert encode_connack(3, ReasonCode.SUCCESS, session_present=True, properties=properties) == b"\x20\2\0\0"
    assert encode_connack(4, ReasonCode.SUCCESS, session_present=True, properties=properties) == b"\x20\2\1\0"
    assert encode_connack(5, ReasonCode.SUCCESS, session_present=False, properties=properties) == bytes.fromhex(
        "200b 0000 08 12 0002 6964 21 0064"
    )


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, 1),
        (ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (ReasonCode.SERVER_BUSY, 3),
        (ReasonCode.BAD_USER_NAME_OR_PASSWORD, 5),
        (ReasonCode.NOT_AUTHORIZED, 5),
    ],
)
def test_refusals_before_mqtt_5_have_return_codes(reason: ReasonCode, code: int) -> None:
    assert encode_connack(3, reason, session_present=False, properties=NO_PROPERTIES) == bytes([0x20, 2, 0, code])
    assert encode_connack(5, reason, session_present=False, properties=NO_PROPERTIES) == bytes([0x20, 3, 0, reason, 0])


@pytest.mark.parametrize(("level", "qos"), [(4, 0), (4, 1), (5, 0), (5, 2)])
def test_publish(level: int, qos: int) -> None:
    """The broker's PUBLISH has the form of a client's."""
    properties = MqttProperties()
    properties.user_properties = (("n", "1"), ("n", "2"))
    properties.content_type = "text/plain"
    data = encode_publish(
        level,
        encode_topic("a/é"),
        b"body" * 100,
        qos=qos,
        retain=True,
        dup=bool(qos),
        packet_id=300,
        properties=encode_properties(properties),
    )
    found = one(data, level)
    assert isinstance(found, PublishPacket)
    expected = PublishPacket("a/é", b"body" * 100, qos, True, bool(qos), 300 if qos else 0, found.properties)
    assert found == expected
    assert values(found.properties) == (values(properties) if level == 5 else {})


def test_acknowledgements() -> None:
    assert encode_acknowledgement(4, PacketType.PUBACK, 258) == b"\x40\2\1\2"
    assert encode_acknowledgement(4, PacketType.PUBREL, 1) == b"\x62\2\0\1"
    assert encode_acknowledgement(4, PacketType.PUBREC, 1, ReasonCode.NOT_AUTHORIZED) == b"\x50\2\0\1"
    assert encode_acknowledgement(5, PacketType.PUBREC, 1, ReasonCode.NOT_AUTHORIZED) == b"\x50\3\0\1\x87"


def test_answers_to_subscriptions() -> None:
    reasons = [ReasonCode.GRANTED_QOS_2, ReasonCode.NOT_AUTHORIZED]
    assert encode_suback(4, 1, reasons) == b"\x90\4\0\1\2\x80"
    assert encode_suback(5, 1, reasons) == b"\x90\5\0\1\0\2\x87"
    assert encode_unsuback(4, 1, [ReasonCode.SUCCESS]) == b"\xb0\2\0\1"
    assert encode_unsuback(5, 1, [ReasonCode.NO_SUBSCRIPTION_EXISTED]) == b"\xb0\4\0\1\0\x11"


def test_disconnect() -> None:
    properties = MqttProperties()
    properties.reason_string = "bye"
    assert encode_disconnect(ReasonCode.SESSION_TAKEN_OVER) == b"\xe0\2\x8e\0"
    assert encode_disconnect(ReasonCode.SERVER_BUSY, properties) == b"\xe0\x08\x89\6\x1f\0\3bye"
