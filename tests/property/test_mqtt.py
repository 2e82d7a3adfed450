"""MQTT: chunks do not matter, prefixes wait, nonsense raises only what is documented, names are exchanged both ways."""

from contextlib import suppress
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.mqtt.codec import PacketDecoder
from pybroker.broker.domain.mqtt.errors import MqttProtocolError
from pybroker.broker.domain.mqtt.packets import MqttLimits, Packet
from pybroker.broker.domain.mqtt.topics import InvalidTopic, check_filter, check_name, jms_name, mqtt_name, shared
from tests import mqtt_packets as client

levels = st.sampled_from([4, 5])
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
numbers = st.integers(1, 65535)
payloads = st.binary(max_size=300)


@st.composite
def packets(draw: st.DrawFn, level: int) -> bytes:
    """A valid packet of a client."""
    pieces = () if level == 5 else None
    match draw(st.integers(0, 5)):
        case 0:
            qos = draw(st.integers(0, 2))
            made = client.publish(draw(texts), draw(payloads), qos=qos, packet_id=draw(numbers), pieces=pieces)
        case 1:
            made = client.subscribe(draw(numbers), (draw(texts), draw(st.integers(0, 2))), pieces=pieces)
        case 2:
            made = client.unsubscribe(draw(numbers), draw(texts), draw(texts), pieces=pieces)
        case 3:
            made = client.packet(draw(st.sampled_from([0x40, 0x50, 0x62, 0x70])), client.short(draw(numbers)))
        case 4:
            made = client.connect(draw(texts), level=level, user=draw(texts), will=(draw(texts), draw(payloads)))
        case _:
            made = draw(st.sampled_from([client.PINGREQ, client.DISCONNECT]))
    return made


def decoder_for(level: int, limits: MqttLimits | None = None) -> PacketDecoder:
    decoder = PacketDecoder(limits or MqttLimits())
    decoder.level = level
    return decoder


def decode(decoder: PacketDecoder, chunks: list[bytes]) -> list[str]:
    return [_shown(packet) for chunk in chunks for packet in decoder.feed(chunk)]


def _shown(packet: Packet) -> str:
    """Return a packet as text, with payloads, as representations leave them out."""
    return f"{packet!r} {getattr(packet, 'payload', b'')!r}"


@given(st.data(), levels, st.lists(st.integers(min_value=0), max_size=10))
def test_chunks_do_not_matter(data: st.DataObject, level: int, places: list[int]) -> None:
    made = data.draw(st.lists(packets(level), min_size=1, max_size=5))
    whole = b"".join(made)
    edges = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    found = decode(decoder_for(level), [whole])
    assert len(found) == len(made)
    assert decode(decoder_for(level), [whole[at : at + 1] for at in range(len(whole))]) == found
    assert decode(decoder_for(level), [whole[begin:end] for begin, end in pairwise(edges)]) == found


@given(st.data(), levels)
def test_every_prefix_waits(data: st.DataObject, level: int) -> None:
    packet = data.draw(packets(level))
    for end in range(len(packet)):
        decoder = decoder_for(level)
        assert decode(decoder, [packet[:end]]) == []
        assert decoder.received == end


@given(st.lists(st.binary(max_size=60)), levels)
def test_nonsense_raises_only_what_is_documented(chunks: list[bytes], level: int) -> None:
    with suppress(MqttProtocolError):
        decode(decoder_for(level, MqttLimits(packet_bytes=50)), chunks)


@given(st.data(), levels, st.integers(min_value=0), st.integers(0, 255))
def test_mutation_raises_only_what_is_documented(data: st.DataObject, level: int, place: int, byte: int) -> None:
    packet = bytearray(data.draw(packets(level)))
    packet[place % len(packet)] = byte
    with suppress(MqttProtocolError):
        decode(decoder_for(level), [bytes(packet)])


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_topics_raise_only_what_is_documented(text: str) -> None:
    assert mqtt_name(jms_name(text)) == text.strip()
    for check in (check_name, check_filter, shared):
        with suppress(InvalidTopic):
            check(text)
