"""Microseconds per message for each step of a message through the codecs: STOMP, OpenWire, AMQP, KahaDB, selectors.

Run from the root of the checkout: `python -m benchmarks.codecs`.
"""

import itertools
import timeit
from collections.abc import Callable
from statistics import median
from typing import cast

from benchmarks.report import Report, Row, parser
from benchmarks.workload import BODY_BYTES, PROPERTIES, QUEUE, messages, send_frame, template
from pybroker.broker.core.reference import Origin, Reference
from pybroker.broker.core.selector import compile_selector
from pybroker.broker.domain.amqp.frames import (
    AMQP_HEADER,
    AmqpFrameDecoder,
    AmqpLimits,
    encode_disposition,
    encode_transfer,
)
from pybroker.broker.domain.amqp.performatives import AmqpAccepted
from pybroker.broker.domain.amqp.sections import (
    AmqpBodyKind,
    AmqpMessage,
    AmqpMessageHeader,
    AmqpMessageProperties,
    bare_parts,
    encode_message,
)
from pybroker.broker.domain.amqp.sections import decode_message as decode_amqp_message
from pybroker.broker.domain.amqp.values import Byte, Symbol
from pybroker.broker.domain.openwire.body import encode_text_utf8
from pybroker.broker.domain.openwire.message import MessageType, routing
from pybroker.broker.domain.openwire.message import decode as decode_message
from pybroker.broker.domain.ports import ConnectionPort
from pybroker.broker.domain.stomp.codec import FrameDecoder
from pybroker.broker.domain.stomp.frames import StompLimits, Version
from pybroker.store.journal.commands import (
    AddMessage,
    Command,
    RemoveMessage,
    decode,
    encode_add_record,
    encode_remove_record,
)
from pybroker.store.journal.format import RECORD_HEADER_BYTES, Location
from pybroker.store.journal.state import StoreState
from pybroker.transports.stomp.destinations import DestinationNames
from pybroker.transports.stomp.mapping import MessageReader, MessageWriter

REPEATS = 7
CHUNK_FRAMES = 50
"""SEND frames in one chunk: about what one read of a busy socket brings (64 KiB)."""

CONNECTION_ID = "ID:bench-host-12345-1700000000000-1:1"
SELECTOR = "region = 'eu' AND customer LIKE 'ACME%' AND JMSPriority > 2"

Work = tuple[str, Callable[[], object], int]
"""Measured operation, the call that does it, and messages per call."""


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    report = Report(options)
    calls = 2_000 if options.quick else 40_000
    work = [*stomp_work(), *openwire_work(), *amqp_work(), *kahadb_work(calls), *selector_work()]
    report.table(
        f"one text message of {BODY_BYTES} bytes with three properties", [measured(*each, calls) for each in work]
    )
    report.finish()


def measured(name: str, call: Callable[[], object], per_call: int, count: int) -> Row:
    """Return microseconds per message: the median is what to expect, the least is the cost of the code itself."""
    number = max(1, count // per_call)
    times = [seconds / (number * per_call) * 1e6 for seconds in timeit.repeat(call, number=number, repeat=REPEATS)]
    return {"step": name, "µs (median)": median(times), "µs (least)": min(times)}


def stomp_work() -> list[Work]:
    """Frames to messages and back."""
    limits = StompLimits()
    names = DestinationNames(cast("ConnectionPort", None), temporaries_max=0)  # used only for temporary destinations
    reader = MessageReader(CONNECTION_ID, names, lambda: 1_700_000_000_000, itertools.count(1).__next__)
    writer = MessageWriter(names, Version.V1_2, subscription_id="1", transformation=None)
    chunk = send_frame(f"/queue/{QUEUE.name}", receipt="4711") * CHUNK_FRAMES
    decoder = FrameDecoder(limits)
    decoder.version = Version.V1_2
    message = next(messages(1))
    fresh = Reference(message, cast("Origin", None), 0)
    decoded = Reference(next(messages(1)), cast("Origin", None), 0)
    decoded.message.decoded = decode_message(message.data)

    def decode_chunk() -> None:
        for _ in decoder.feed(chunk):
            pass

    def decode_and_map_chunk() -> None:
        for frame in decoder.feed(chunk):
            reader.read(frame.headers, frame.body, None)

    def render_first() -> None:
        message.decoded = None
        writer.write(fresh, CONNECTION_ID)

    return [
        ("STOMP: decode SEND", decode_chunk, CHUNK_FRAMES),
        ("STOMP: decode SEND and map it to a message", decode_and_map_chunk, CHUNK_FRAMES),
        ("STOMP: render MESSAGE, to the first consumer", render_first, 1),
        ("STOMP: render MESSAGE, to each further one", lambda: writer.write(decoded, CONNECTION_ID), 1),
    ]


def openwire_work() -> list[Work]:
    """Marshalled messages."""
    build = template().build
    content = encode_text_utf8(b"x" * BODY_BYTES)
    data = next(messages(1)).data

    def encode() -> None:
        build(type=MessageType.TEXT, sequence=1, content=content, properties=PROPERTIES, persistent=True, timestamp=1)

    return [
        ("OpenWire: encode (template)", encode, 1),
        ("OpenWire: read what routing needs", lambda: routing(data), 1),
        ("OpenWire: decode every field", lambda: decode_message(data), 1),
    ]


def amqp_work() -> list[Work]:
    """Frames with one message each, the sections of the message, and the broker's answers."""
    message = AmqpMessage(
        header=AmqpMessageHeader(durable=True, priority=7, ttl=60_000),
        message_annotations={Symbol("x-opt-jms-dest"): Byte(0), Symbol("x-opt-jms-msg-type"): Byte(5)},
        properties=AmqpMessageProperties(
            message_id=f"{CONNECTION_ID}:1:1",
            to=f"queue://{QUEUE.name}",
            subject="order",
            reply_to="queue://answers",
            correlation_id="4711",
            content_type=Symbol("text/plain"),
            creation_time=1_700_000_000_000,
        ),
        application_properties=dict(PROPERTIES),
        body_kind=AmqpBodyKind.DATA,
        body=[b"x" * BODY_BYTES],
    )
    payload = encode_message(message)
    tag = b"\0\0\1\0"
    accepted = AmqpAccepted()
    transfers = encode_transfer(0, 0, 70_000, tag, payload) * CHUNK_FRAMES
    dispositions = encode_disposition(0, 70_000, 70_010, accepted, is_receiver=True, settled=True) * CHUNK_FRAMES
    decoder = AmqpFrameDecoder(AmqpLimits())
    list(decoder.feed(AMQP_HEADER))

    def decode_frames(chunk: bytes) -> None:
        for _ in decoder.feed(chunk):
            pass

    return [
        ("AMQP: decode transfer", lambda: decode_frames(transfers), CHUNK_FRAMES),
        ("AMQP: decode disposition", lambda: decode_frames(dispositions), CHUNK_FRAMES),
        ("AMQP: decode all sections", lambda: decode_amqp_message(payload), 1),
        ("AMQP: find the sections", lambda: bare_parts(payload), 1),
        ("AMQP: encode all sections", lambda: encode_message(message), 1),
        ("AMQP: encode transfer", lambda: encode_transfer(0, 0, 70_000, tag, payload), 1),
        (
            "AMQP: encode disposition",
            lambda: encode_disposition(0, 70_000, None, accepted, is_receiver=True, settled=True),
            1,
        ),
    ]


def kahadb_work(count: int) -> list[Work]:
    """Journal records, and what they do to the store's state."""
    message = next(messages(1))
    add = encode_add_record(message)[RECORD_HEADER_BYTES:]
    remove = encode_remove_record(QUEUE, message.message_id)[RECORD_HEADER_BYTES:]
    adds = [AddMessage(QUEUE, f"{CONNECTION_ID}:1:{number}", message.data) for number in range(count)]
    commands: list[Command] = [*adds, *(RemoveMessage(QUEUE, each.message_id) for each in adds)]
    location = Location(1, 0)

    def apply_pairs() -> None:
        state = StoreState()
        for command in commands:
            state.apply(command, location)

    return [
        ("KahaDB: encode an add", lambda: encode_add_record(message), 1),
        ("KahaDB: encode a remove", lambda: encode_remove_record(QUEUE, message.message_id), 1),
        ("KahaDB: decode an add", lambda: decode(add), 1),
        ("KahaDB: decode a remove", lambda: decode(remove), 1),
        ("KahaDB: apply an add and a remove", apply_pairs, count),
    ]


def selector_work() -> list[Work]:
    """The check if a consumer wants a message."""
    selector = compile_selector(SELECTOR)
    message = next(messages(1))
    decoded = next(messages(1))
    decoded.decoded = decode_message(message.data)

    def first_match() -> None:
        message.decoded = None
        selector.matches(message)

    assert selector.matches(decoded)
    return [
        ("selector of three conditions: first look", first_match, 1),
        ("selector of three conditions: each further look", lambda: selector.matches(decoded), 1),
    ]


if __name__ == "__main__":
    main()
