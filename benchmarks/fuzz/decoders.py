"""The decoders alone, in this process: frames are mutated and decoded as fast as that goes.

Each decoder may raise what derives from `BrokerError`, and nothing else. A frame may take `SECONDS_MAX` at its best
of three, and memory in proportion to its length. Besides, each gets inputs of growing length of the kinds that a
decoder may be slow with: four times as much may not take much more than four times as long.
"""

import contextlib
import itertools
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from typing import Final

from benchmarks.fuzz import amqp_values, bytes_mutations, corpus, stomp_frames, websocket_frames
from benchmarks.fuzz.values import Values
from pybroker.broker.core.cron import Cron
from pybroker.broker.core.selector.selector import compile_selector
from pybroker.broker.domain.amqp import frames as amqp_frames
from pybroker.broker.domain.amqp import sections as amqp_sections
from pybroker.broker.domain.amqp.codec import decode_value, encode_value
from pybroker.broker.domain.destination import parse, parts
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.mqtt.codec import PacketDecoder
from pybroker.broker.domain.mqtt.packets import LEVEL_3_1_1, LEVEL_5, MqttLimits
from pybroker.broker.domain.mqtt.wire import encode_variable
from pybroker.broker.domain.openwire import message as openwire
from pybroker.broker.domain.openwire.loose import UnencodableOpenWire
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.framing import FrameReader
from pybroker.broker.domain.openwire.marshal.layouts import LAYOUTS
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, agree, broker_offer, decode_offer, encode_offer
from pybroker.broker.domain.openwire.values import decode_map, decode_stream, encode_map, has_more_values
from pybroker.broker.domain.stomp.codec import FrameDecoder
from pybroker.broker.domain.stomp.frames import StompLimits, Version
from pybroker.transports.stomp.transformation import bodies
from pybroker.transports.stomp.transformation.java_object import read_object, write_object
from pybroker.transports.websocket.handshake import HEAD_END, answer
from pybroker.transports.websocket.origins import OriginRule
from pybroker.transports.websocket.receiver import FrameReceiver
from pybroker.transports.websocket.subprotocols import STOMP

SECONDS_MAX: Final = 0.1
"""For one frame of at most 60,000 bytes."""
MEMORY_FACTOR: Final = 100
MEMORY_BYTES: Final = 4 << 20
"""Memory that a frame may take: so many times its length, and what caches keep."""
_MEASURED: Final = 200
"""Of so many frames one is decoded again with its memory measured, which is slow."""
_GROWTH: Final = 4
_RATIO_MAX: Final = 3 * _GROWTH
_TRIES: Final = 10
"""Measurements of each, of which the shortest counts: a busy machine only makes them longer."""
_GROWN_SECONDS_MIN: Final = 0.005
"""Times below this are noise."""

Decode = Callable[[bytes], object]
Make = Callable[[Random], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderFinding:
    """A frame that a decoder does not withstand.

    Attributes:
        decoder: its name.
        what: the exception, the time or the memory.
        data: the frame.
    """

    decoder: str
    what: str
    data: bytes


@dataclass(frozen=True, slots=True)
class _Decoder:
    decode: Decode
    make: Make
    grown: Sequence[Callable[[int], bytes]]


def run(seed: int, begin: int, frames: int, ends_at: float) -> Iterator[DecoderFinding | int]:
    """Decode frames, from a number on; yield findings, and at the end the next number.

    Args:
        seed: of the run.
        begin: the number of the first frame.
        frames: how many.
        ends_at: by `time.monotonic()`.
    """
    decoders = list(_decoders().items())
    for number in range(begin, begin + frames):
        name, decoder = decoders[number % len(decoders)]
        data = decoder.make(Random(f"{seed} {number}"))
        yield from (DecoderFinding(decoder=name, what=what, data=data) for what in judged(decoder.decode, data))
        if number % _MEASURED == 0:
            yield from (DecoderFinding(decoder=name, what=what, data=data) for what in weighed(decoder.decode, data))
            if time.monotonic() > ends_at:
                yield number + 1
                return
    yield begin + frames


def grown() -> Iterator[DecoderFinding]:
    """Decode inputs of growing length; yield those for which time grows faster than length."""
    for name, decoder in _decoders().items():
        for number, make in enumerate(decoder.grown):
            short, long = make(10_000), make(10_000 * _GROWTH)
            least = most = float("inf")
            for _ in range(_TRIES):
                least = min(least, _seconds(decoder.decode, short))
                most = min(most, _seconds(decoder.decode, long))
                if most < max(_GROWN_SECONDS_MIN, _RATIO_MAX * least):
                    break
            else:
                what = (
                    f"input {number}: {len(short)} bytes {1000 * least:.1f} ms, {len(long)} bytes {1000 * most:.1f} ms"
                )
                yield DecoderFinding(decoder=name, what=what, data=long[:1_000])


def replay(name: str, data: bytes) -> list[str]:
    """Return what a decoder does not withstand in a frame."""
    decode = _decoders()[name].decode
    return [*judged(decode, data), *weighed(decode, data)]


def judged(decode: Decode, data: bytes) -> Iterator[str]:
    """Decode a frame; yield what is wrong with that."""
    began = time.perf_counter()
    try:
        decode(data)
    except BrokerError:
        pass
    except Exception as error:  # what this looks for
        yield f"{type(error).__name__}: {error}"
    if time.perf_counter() - began > SECONDS_MAX:
        best = min(_seconds(decode, data) for _ in range(3))
        if best > SECONDS_MAX:
            yield f"{best:.3f} s for {len(data)} bytes"


def weighed(decode: Decode, data: bytes) -> Iterator[str]:
    """Decode a frame; yield its memory, if that is too much."""
    tracemalloc.start()
    try:
        _seconds(decode, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > MEMORY_BYTES + MEMORY_FACTOR * len(data):
        yield f"{peak:,} bytes of memory for {len(data)} bytes"


def _seconds(decode: Decode, data: bytes) -> float:
    began = time.perf_counter()
    with contextlib.suppress(Exception):
        decode(data)
    return time.perf_counter() - began


# ---------------------------------------------------------------- the decoders

_WIRES: Final = tuple(
    WireFormat(version, tight=tight, stack_traces=version % 2 == 0)
    for version, tight in itertools.product((1, 2, 3, 5, 6, 9, 10, 11, 12), (False, True))
)
_STRUCTURES: Final[Sequence[Callable[[int], bytes]]] = (
    lambda size: (
        b"\x21\0\0\0\1\1\0\0\0\1\1" + (size // 3).to_bytes(2, "big") + b"\1\x78\0" * (size // 3)
    ),  # an array of empty ids
    lambda size: b"\x20\0\0\0\1\1\0\0\0\1" + b"\1\x20\0\0\0\1\1\0\0\0\1" * (size // 11),  # a response in a response …
    lambda size: b"\x0e\0\0\0\1\0\1\xff\xff" + b"\xc3\xa9" * (size // 2),
)


def _wire_decoder(wire: WireFormat) -> _Decoder:
    others = corpus.openwire_frames(wire.version, tight=wire.tight)

    def make(dice: Random) -> bytes:
        if dice.random() < 0.5:
            return bytes_mutations.mutated(dice.choice(others), dice, others)
        try:
            frame = wire.encode(_values(dice).command(wire.version))
        except UnencodableOpenWire:
            frame = dice.choice(others)
        return bytes_mutations.mutated(frame, dice, others)

    def decode(data: bytes) -> object:
        value = wire.decode(data)
        try:
            return wire.encode(value)
        except UnencodableOpenWire:  # a string of 32,767 bytes and more in tight encoding
            return None

    return _Decoder(decode, make, _STRUCTURES)


def _values(dice: Random) -> Values:
    return Values(dice, "fuzz-1", "fuzz-0", (None, None))


def _stored(data: bytes) -> object:
    """Read a message as the broker reads a peer's, and then in all ways in which it reads a stored one."""
    message = openwire.routing(data, partial(openwire.decode, with_content=False))
    fields = openwire.view(message)
    for read in (lambda: fields.properties, fields.text, fields.map, fields.stream, lambda: fields.body_bytes(1 << 20)):
        with contextlib.suppress(BrokerError):
            read()
    for form in (None, "jms-json", "jms-xml"):
        with contextlib.suppress(BrokerError):
            bodies.render(fields, form, 1 << 20)
    return message


def _stored_frame(dice: Random) -> bytes:
    others = corpus.openwire_frames(12)
    layout = LAYOUTS[dice.choice((23, 24, 25, 26, 27, 28))]
    try:
        frame = _FORMAT.encode(_values(dice).structure(layout, 12, 2))
    except UnencodableOpenWire:
        frame = dice.choice(others)
    return bytes_mutations.mutated(frame, dice, others) if dice.random() < 0.7 else frame


def _offer(data: bytes) -> object:
    return agree(broker_offer(), decode_offer(data))


def _framing(data: bytes) -> object:
    reader, count = FrameReader(65_536), 0
    for start in range(0, len(data), 97):
        reader.feed(data[start : start + 97])
        while reader.advance():
            count += 1
    return count


def _stomp_decoder(version: Version) -> _Decoder:
    def decode(data: bytes) -> object:
        decoder = FrameDecoder(StompLimits())
        decoder.version = version
        cut = len(data) // 2
        return [list(decoder.feed(piece)) for piece in (data[:cut], data[cut:])]

    def make(dice: Random) -> bytes:
        frame = stomp_frames.frame(dice)
        return stomp_frames.mutated(frame, dice, [stomp_frames.frame(dice)]) + stomp_frames.frame(dice)

    grown = (
        lambda size: b"SEND\na:" + b"\\n" * min(4_000, size // 2) + b"\n\n\0",
        lambda size: b"SEND\n" + b"a:b\n" * min(900, size // 4) + b"\n" + b"x" * size + b"\0",
        lambda size: b"\n\0" * (size // 2),
        lambda size: b"SEND\n\n\0" * (size // 7),
    )
    return _Decoder(decode, make, grown)


_FAMILIES: Final = (STOMP,)
_ORIGINS: Final = OriginRule("same-host")


def _websocket(data: bytes) -> object:
    """Answer a request, and read the frames behind it."""
    head, end, frames = data.partition(HEAD_END)
    found = answer(head + end, _FAMILIES, _ORIGINS)
    if found.upgraded is None:
        return found
    receiver = FrameReceiver(found.upgraded.protocol, 65_536)
    payloads: list[bytes] = []
    cut = len(frames) // 2
    for chunk in (frames[:cut], frames[cut:]):
        receiver.add(chunk)
        while (payload := receiver.next()) is not None:
            payloads.append(payload)
            receiver.output()
            if receiver.is_over:
                break
    receiver.clear()
    return payloads


def _websocket_data(dice: Random) -> bytes:
    if dice.random() < 0.2:
        return websocket_frames.wrong_request(dice) + websocket_frames.frame(1, b"a")
    frames = [websocket_frames.messages(dice.randbytes(dice.choice((0, 5, 200, 40_000))), dice) for _ in range(4)]
    at = dice.randrange(len(frames))
    frames[at] = bytes_mutations.mutated(frames[at], dice, frames)
    return websocket_frames.request(dice) + b"".join(frames)


_REQUEST: Final = websocket_frames.request(Random(1))
_WEBSOCKET_GROWN: Final[Sequence[Callable[[int], bytes]]] = (
    lambda size: _REQUEST + websocket_frames.frame(1, b"") * (size // 6),
    lambda size: _REQUEST + websocket_frames.frame(9, b"ping") * (size // 10),
    lambda size: _REQUEST + websocket_frames.frame(2, bytes(size)),
    lambda size: (
        _REQUEST
        + websocket_frames.frame(1, b"", is_last=False)
        + websocket_frames.frame(0, b"a", is_last=False) * (size // 7)
    ),
    lambda size: b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * (size // 5) + HEAD_END,
)


def _mqtt_decoder(level: int) -> _Decoder:
    packets = _MQTT_5 if level == LEVEL_5 else corpus.mqtt_packets()

    def decode(data: bytes) -> object:
        decoder = PacketDecoder(MqttLimits())
        decoder.level = level
        cut = len(data) // 2
        return [list(decoder.feed(piece)) for piece in (data[:cut], data[cut:])]

    def make(dice: Random) -> bytes:
        packet = bytes_mutations.mutated(dice.choice(packets), dice, packets)
        if len(packet) > 1 and dice.random() < 0.7:  # the length is right, for all of it to be read
            packet = packet[:1] + encode_variable(len(packet) - 2) + packet[2:]
        return dice.choice(packets) + packet

    none = b"\0" if level == LEVEL_5 else b""
    grown = (
        lambda size: b"\xc0\0" * (size // 2),
        lambda size: _mqtt_packet(0x30, b"\0\1t" + none + bytes(size)),
        lambda size: _mqtt_packet(0x82, b"\0\1" + none + b"\0\1a\0" * min(990, size // 4)) * 4,
        lambda size: _mqtt_packet(0x30, b"\0\1t" + encode_variable(size // 7 * 7) + b"\x26\0\1a\0\1b" * (size // 7)),
    )
    return _Decoder(decode, make, grown)


def _mqtt_packet(head: int, content: bytes) -> bytes:
    return bytes((head,)) + encode_variable(len(content)) + content


_MQTT_5: Final = (
    _mqtt_packet(
        0x10,
        b"\0\4MQTT\5\xc2\0\x3c\x0c\x11\0\0\0\x0a\x21\0\5\x17\0\x19\0\0\1c\0\1u\0\1p",
    ),
    _mqtt_packet(0x32, b"\0\3a/b\0\1\x0b\1\1\2\0\0\0\5\3\0\1tbody"),
    b"\x82\x0b\0\1\2\x0b\1\0\3a/+\x2d",
    b"\x40\x0b\0\1\x10\7\x26\0\1a\0\1b",
    b"\xe0\7\4\5\x11\0\0\0\1",
    b"\xf0\x07\x18\5\x15\0\2ab",
)


def _amqp(data: bytes) -> object:
    """Decode frames and the messages in them, and encode what can be."""
    decoder = amqp_frames.AmqpFrameDecoder(amqp_frames.AmqpLimits())
    cut = len(data) // 2
    found: list[object] = []
    for piece in (amqp_frames.AMQP_HEADER, data[:cut], data[cut:]):
        for each in decoder.feed(piece):
            if isinstance(each, amqp_frames.AmqpFrame) and each.performative is not None:
                found.append(amqp_frames.encode_frame(each.channel, each.performative, each.payload))
                with contextlib.suppress(BrokerError):
                    _amqp_message(each.payload)
    return found


def _amqp_message(data: bytes) -> object:
    """Read a message in all ways in which the broker reads one."""
    for read in (amqp_sections.bare_parts, partial(amqp_sections.with_delivery_count, count=1)):
        with contextlib.suppress(BrokerError):
            read(data)
    amqp_sections.decode_message(data, with_body=False)
    return amqp_sections.encode_message(amqp_sections.decode_message(data))


def _amqp_value(data: bytes) -> object:
    value, _ = decode_value(data, 0, len(data))
    out = bytearray()
    encode_value(out, value)
    return decode_value(bytes(out), 0, len(out))


def _amqp_data(dice: Random) -> bytes:
    frames = corpus.amqp_frames()
    if dice.random() < 0.2:
        return amqp_values.frame(dice, amqp_values.performative(dice) + amqp_values.message(dice))
    body = bytes_mutations.mutated(dice.choice(frames)[8:], dice, frames)
    kind = 1 if body[2:3] >= b"\x40" else 0
    whole = amqp_values.frame(dice, body, kind)
    return bytes_mutations.mutated(whole, dice, frames) if dice.random() < 0.2 else dice.choice(frames) + whole


def _amqp_wide(code: int, count: int, content: bytes) -> bytes:
    return bytes((code,)) + (len(content) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + content


_AMQP_GROWN: Final[Sequence[Callable[[int], bytes]]] = (
    lambda size: _amqp_wide(0xD0, size, b"\x45" * size),
    lambda size: _amqp_wide(0xD1, size // 7 * 2, b"".join(b"\xa1\4%04x\x40" % n for n in range(size // 7))),
    lambda size: _amqp_wide(0xD1, size // 18 * 2, b"".join(b"\x98%016d\x40" % n for n in range(size // 18))),
    lambda size: _amqp_wide(0xF0, size // 2, b"\xa3" + b"\1a" * (size // 2)),
    lambda size: b"\0\x53\1" * (size // 3),
    lambda size: b"\0" * size,
)


def _made_of(*texts: str) -> Make:
    """Return a maker of texts of pieces, some with mutated bytes."""

    def make(dice: Random) -> bytes:
        text = " ".join(dice.choice(texts) for _ in range(dice.choice((1, 3, 10, 60)))).encode()
        others = [each.encode() for each in texts]
        return bytes_mutations.mutated(text, dice, others) if dice.random() < 0.7 else text

    return make


def _text(decode: Callable[[str], object]) -> Decode:
    return lambda data: decode(data.decode(errors="replace"))


def _bytes_of(*samples: bytes) -> Make:
    return lambda dice: bytes_mutations.mutated(dice.choice(samples), dice, samples)


_FORMAT: Final = WireFormat()
_SELECTOR: Final = (
    "a", "=", "<>", ">", "'x'", "(", ")", "AND", "OR", "NOT", "LIKE", "'%_'", "ESCAPE", "'!'", "IN", ",", "BETWEEN",
    "1", "IS", "NULL", "-", "+", "*", "/", "1e9", "0x1F", "07", "1.5D", "TRUE", "JMSPriority", "a AND b", "''",
    '"q"', "é",
)  # fmt: skip
_MAP: Final = encode_map({"a": 1, "b": "text", "c": [1, "x", {"d": None}], "e": 1.5, "f": b"bytes", "g": True})
_JSON: Final = b'{"map":{"entry":[{"string":["a","b"]},{"string":"c","int":1}]}}'
_XML: Final = b"<map><entry><string>a</string><int>1</int></entry><entry><string>b</string><null/></entry></map>"


@cache
def _decoders() -> dict[str, _Decoder]:
    return {
        **{f"openwire-{wire.version}-{'tight' if wire.tight else 'loose'}": _wire_decoder(wire) for wire in _WIRES},
        **{f"stomp-{version.value}": _stomp_decoder(version) for version in Version},
        "mqtt-3.1.1": _mqtt_decoder(LEVEL_3_1_1),
        "mqtt-5": _mqtt_decoder(LEVEL_5),
        "amqp": _Decoder(
            _amqp,
            _amqp_data,
            (
                lambda size: amqp_frames.EMPTY_FRAME * (size // 8),
                lambda size: amqp_frames.encode_transfer(0, 0, 1, b"t", b"\0\x53\x75\xa0\0" * (size // 5)),
            ),
        ),
        "amqp-message": _Decoder(_amqp_message, amqp_values.message, (lambda size: b"\0\x53\x76\x45" * (size // 4),)),
        "amqp-value": _Decoder(_amqp_value, amqp_values.value, _AMQP_GROWN),
        "websocket": _Decoder(_websocket, _websocket_data, _WEBSOCKET_GROWN),
        "stored-message": _Decoder(_stored, _stored_frame, ()),
        "offer": _Decoder(_offer, _bytes_of(encode_offer(Offer(host="h", provider_name="p"))[4:]), ()),
        "framing": _Decoder(
            _framing,
            _bytes_of(b"\0\0\0\x05hello" * 5, b"\0\0\0\1\0\0\0\0\2ab"),
            (lambda size: b"\0\0\0\1\0" * (size // 5),),
        ),
        "map": _Decoder(
            decode_map,
            _bytes_of(_MAP, encode_map({})),
            (
                lambda size: b"\0\0\0\1\0\1a" + b"\x0b\0\0\0\1\0\1a" * (size // 8),
                lambda size: (size // 7).to_bytes(4, "big") + b"".join(b"\0\4%04x\0" % n for n in range(size // 7)),
            ),
        ),
        "stream": _Decoder(
            decode_stream, _bytes_of(_MAP[7:], b"\x09\0\1a\5\0\0\0\1"), (lambda size: b"\x09\0\1a" * (size // 4),)
        ),
        "object": _Decoder(read_object, _bytes_of(b"\xac\xed\0\5t\0\1x", write_object(7), write_object("x")), ()),
        "count": _Decoder(lambda data: has_more_values(data, 100), _bytes_of(_MAP), ()),
        "json": _Decoder(
            partial(bodies.read, "jms-map-json"),
            _bytes_of(_JSON, b'{"list":[{"int":[1,2]}]}', b"[1e999, -0]"),
            (lambda size: b"[" * (size // 2) + b"]" * (size // 2), lambda size: b'{"map":"' + b"x" * size + b'"}'),
        ),
        "xml": _Decoder(
            partial(bodies.read, "jms-object-xml"),
            _bytes_of(_XML, b"<list><char>x</char><float>1</float></list>"),
            (
                lambda size: b"<list>" * (size // 6),
                lambda size: b"<list>" + b"<int>1</int>" * (size // 12) + b"</list>",
            ),
        ),
        "selector": _Decoder(
            _text(compile_selector),
            _made_of(*_SELECTOR),
            (lambda size: b"(" * min(8_000, size // 5), lambda size: b"a = 1" + b" OR a = 1" * min(900, size // 45)),
        ),
        "cron": _Decoder(
            _text(Cron),
            _made_of("*", "*/5", "1-5", "0,30", "* * * * *", "29 2 31 2 *", "MON", "-1", "99"),
            (lambda size: b",".join([b"1-59"] * min(190, size // 53)) + b" * * * *",),
        ),
        "name": _Decoder(
            _text(lambda text: parts(parse(text))),
            _made_of("queue://", "a,", "topic://b", "?x=1", ">", "*", "\0", ","),
            (lambda size: b"a," * (size // 2),),
        ),
    }
