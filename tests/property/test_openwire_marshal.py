"""OpenWire's codec in every version and encoding: what is encoded decodes to the same, and nothing else by accident."""

import contextlib
import random
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.openwire.commands import (
    DataStructure,
    MessageAck,
    RemoveInfo,
    SessionId,
    SessionInfo,
    StackFrame,
    Throwable,
)
from pybroker.broker.domain.openwire.ids import DESTINATION_TYPES, ConsumerId
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, UnencodableOpenWire
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.framing import FrameReader
from pybroker.broker.domain.openwire.marshal.layouts import LAYOUTS, Layout
from pybroker.broker.domain.openwire.marshal.schema import FieldKind, Spec
from pybroker.broker.domain.openwire.marshal.wireformat import decode_offer
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId

WIRE = Path(__file__).parents[1] / "golden" / "openwire" / "wire"

LEVELS = 2
"""Structures inside one another; deeper ones show nothing new."""

VERSIONS = range(1, 13)
ENCODINGS = [(tight, cache_size) for tight in (False, True) for cache_size in (0, 100)]


# ---------------------------------------------------------------- values of every kind

NUMBERS = {FieldKind.BYTE: 8, FieldKind.INT: 32, FieldKind.LONG: 64}
NAMES = st.none() | st.text(max_size=8) | st.sampled_from(["ID:h-1-2-0:1", "\x00", "\U0001f600", "é" * 100])


def number(bits: int) -> st.SearchStrategy[int]:
    edges = [0, 1, 0xFFFF, 0x10000, 0xFFFFFFFF, 0x100000000, -1]
    limit = 1 << (bits - 1)
    return st.integers(-limit, limit - 1) | st.sampled_from([edge for edge in edges if edge < limit])


def throwables(stack_traces: bool) -> st.SearchStrategy[Throwable | None]:
    frames = st.builds(StackFrame, NAMES, NAMES, NAMES, number(32))
    plain = st.builds(Throwable, class_name=NAMES, message=NAMES)
    if not stack_traces:
        return st.none() | plain
    cause = st.none() | plain
    stack = st.lists(frames, max_size=2).map(tuple)
    return st.none() | st.builds(Throwable, class_name=NAMES, message=NAMES, stack=stack, cause=cause)


def is_leaf(layout: Layout) -> bool:
    return all(spec.kind not in (FieldKind.OBJECT, FieldKind.ARRAY) for _, spec in layout.fields)


def structures(wire: WireFormat, types: tuple[type | str, ...], levels: int) -> st.SearchStrategy[Any]:
    """Return what a nullable field of these types may hold."""
    layouts = [
        layout
        for layout in LAYOUTS.values()
        if layout.since <= wire.version
        and (not types or any(kind in types or kind.__name__ in types for kind in layout.types))
        and (levels > 0 or is_leaf(layout))
    ]
    if not layouts:
        return st.none()
    return st.none() | st.sampled_from(layouts).flatmap(lambda layout: values(wire, layout, levels - 1, not types))


def field_values(wire: WireFormat, spec: Spec, levels: int) -> st.SearchStrategy[Any]:
    match spec.kind:
        case FieldKind.BOOLEAN:
            return st.booleans()
        case FieldKind.STRING:
            return NAMES
        case FieldKind.BYTES:
            return st.none() | st.binary(max_size=20)
        case FieldKind.FIXED_BYTES:
            return st.binary(min_size=spec.size, max_size=spec.size)
        case FieldKind.OBJECT:
            return structures(wire, spec.types, levels)
        case FieldKind.ARRAY:
            return st.none() | st.lists(structures(wire, spec.types, levels), max_size=3).map(tuple)
        case FieldKind.THROWABLE:
            return throwables(wire.stack_traces)
        case kind:
            return number(NUMBERS[kind])


def values(wire: WireFormat, layout: Layout, levels: int = LEVELS, blanks: bool = True) -> st.SearchStrategy[Any]:
    """Return values of a data type, in the fields that the version has."""
    present = {name: field_values(wire, spec, levels) for name, spec in layout.fields_in(wire.version)}
    if layout.types == (Destination,):
        return st.builds(Destination, st.just(DESTINATION_TYPES[layout.data_type]), st.text(max_size=8))
    if not blanks and LocalTransactionId in layout.types:
        return st.builds(LocalTransactionId, st.text(max_size=8), number(64))
    if not blanks and XATransactionId in layout.types:
        return st.builds(XATransactionId, number(32), st.binary(max_size=4), st.binary(max_size=4))
    if layout.build is None:
        return st.builds(layout.types[0], **present)
    # Of these only a message id has a field that some versions lack.
    parts = [present.get(name, st.none()) for name, _ in layout.fields]
    return st.builds(layout.build, *parts)


# Strategies of a whole type take a while to set up, which on a busy machine would count as too slow.
@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_value_comes_through(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(VERSIONS))
    tight, cache_size = data.draw(st.sampled_from(ENCODINGS))
    wire = WireFormat(
        version, tight=tight, cache_size=cache_size, reuse=cache_size > 0, stack_traces=data.draw(st.booleans())
    )
    layout = data.draw(st.sampled_from([layout for layout in LAYOUTS.values() if layout.since <= version]))
    value: DataStructure = data.draw(values(wire, layout))

    frame = wire.encode(value)
    decoded = wire.decode(frame)

    assert decoded == value
    assert type(decoded) is type(value)
    assert wire.decode(wire.encode(value)) == value


def frames_of(name: str) -> list[bytes]:
    reader = FrameReader()
    reader.feed((WIRE / name).read_bytes())
    found: list[bytes] = []
    while reader.advance():
        found.append(reader.data[reader.start : reader.stop])
    return found


def test_java_values_round_trip_in_every_version_and_encoding() -> None:
    source = WireFormat(12)
    golden: list[DataStructure] = []
    for frame in frames_of("v12-loose.bin"):
        with contextlib.suppress(MalformedOpenWire):  # encoded with stack traces
            golden.append(source.decode(frame))
    assert len(golden) > 150
    for version in VERSIONS:
        for tight, cache_size in ENCODINGS:
            wire = WireFormat(version, tight=tight, cache_size=cache_size)
            for value in golden:
                try:
                    frame = wire.encode(value)
                except UnencodableOpenWire:
                    continue  # younger than the version, or a string too long for tight encoding
                decoded = wire.decode(frame)
                assert type(decoded) is type(value)
                assert version < 12 or decoded == value
                assert wire.encode(decoded) == frame


# ---------------------------------------------------------------- caching: two tables that never meet

SESSIONS = st.builds(SessionInfo, session_id=st.none() | st.builds(SessionId, st.just("c"), st.integers(0, 150)))
ACKS = st.builds(
    MessageAck,
    destination=st.builds(Destination, st.sampled_from(DestinationType), st.sampled_from("abcdefgh")),
    consumer_id=st.builds(ConsumerId, st.just("c"), st.just(1), st.integers(0, 150)),
    transaction_id=st.none() | st.builds(LocalTransactionId, st.sampled_from("cd"), st.integers(0, 20)),
    # Some do not fit, when a part of the frame is written and cached.
    message_count=st.integers(0, 4).map(lambda count: count or 2**31),
)
REMOVALS = st.builds(
    RemoveInfo, object_id=st.none() | st.builds(ConsumerId, st.just("c"), st.just(1), st.integers(0, 150))
)


@given(st.booleans(), st.sampled_from([100, 101, 103, 130]), st.lists(SESSIONS | ACKS | REMOVALS, max_size=60))
def test_caches_stay_in_step(tight: bool, slots: int, sent: list[DataStructure]) -> None:
    writer = WireFormat(tight=tight, cache_size=slots, reuse=True)
    reader = WireFormat(tight=tight, cache_size=slots)
    for value in sent:
        try:
            frame = writer.encode(value)
        except UnencodableOpenWire:
            continue
        assert reader.decode(frame) == value


# ---------------------------------------------------------------- whatever a peer may send


def mutated(frame: bytes, dice: random.Random) -> bytes:
    """Return a frame with a byte or two changed, a piece cut out, or a piece twice."""
    changed = bytearray(frame)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(max(1, len(changed)))
        match dice.randrange(5):
            case 0 if changed:
                changed[at] ^= 1 << dice.randrange(8)
            case 1 if changed:
                changed[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
            case 2:
                changed[at : at + dice.randint(1, 8)] = bytes(dice.randrange(256) for _ in range(dice.randint(0, 8)))
            case 3:
                changed[at:at] = changed[at : at + dice.randint(1, 40)]
            case _:
                del changed[at + 1 :]
    return bytes(changed)


def decode_or_refuse(wire: WireFormat, frame: bytes) -> bool:
    """Return True if a frame decodes; then it is a value that can be encoded again."""
    try:
        value = wire.decode(frame)
    except MalformedOpenWire:
        return False
    with contextlib.suppress(UnencodableOpenWire):  # a string of 32767 bytes and more in tight encoding
        assert wire.decode(wire.encode(value)) == value
    return True


@cache
def formats() -> list[WireFormat]:
    return [
        WireFormat(version, tight=tight, cache_size=cache_size, stack_traces=stack_traces)
        for version in VERSIONS
        for tight, cache_size in ENCODINGS
        for stack_traces in (False, True)
    ]


def test_mutated_golden_frames_are_refused_or_differ() -> None:
    dice = random.Random(20)
    outcomes = {False: 0, True: 0}
    for path in sorted(WIRE.glob("v*.bin")):
        wire = WireFormat(int(path.name[1:3]), tight="tight" in path.name, stack_traces=True)
        for frame in frames_of(path.name):
            if len(frame) < 5000:
                for _ in range(3):
                    outcomes[decode_or_refuse(wire, mutated(frame, dice))] += 1
    assert min(outcomes.values()) > 1000


def test_mutated_frames_with_caching_are_refused_or_differ() -> None:
    dice = random.Random(21)
    outcomes = {False: 0, True: 0}
    for path in sorted(WIRE.glob("cached-*.bin")):
        version, tight, slots = int(path.name[8:10]), "tight" in path.name, 104 if "evict" in path.name else 16383
        for _ in range(8):
            wire = WireFormat(version, tight=tight, cache_size=slots, stack_traces=True)
            for frame in frames_of(path.name):
                decode_or_refuse(wire, frame)
                outcomes[decode_or_refuse(wire, mutated(frame, dice))] += 1
    assert min(outcomes.values()) > 100


@settings(max_examples=500)
@given(st.sampled_from(sorted(LAYOUTS)), st.binary(max_size=200), st.data())
def test_random_bytes_are_refused_or_mean_something(data_type: int, rest: bytes, data: st.DataObject) -> None:
    decode_or_refuse(data.draw(st.sampled_from(formats())), bytes((data_type,)) + rest)


@given(st.binary(max_size=100))
def test_random_offers_are_refused_or_mean_something(rest: bytes) -> None:
    for frame in (rest, b"\x01ActiveMQ" + rest, b"\x01ActiveMQ\x00\x00\x00\x0c\x01" + len(rest).to_bytes(4) + rest):
        with contextlib.suppress(MalformedOpenWire):
            decode_offer(frame)


@given(st.lists(st.binary(max_size=12), max_size=12))
def test_random_chunks_are_frames_or_refused(chunks: list[bytes]) -> None:
    whole, pieces = FrameReader(1000), FrameReader(1000)

    def decoded(reader: FrameReader, given: list[bytes]) -> list[bytes]:
        found: list[bytes] = []
        with contextlib.suppress(MalformedOpenWire):
            for chunk in given:
                reader.feed(chunk)
                while reader.advance():
                    found.append(reader.data[reader.start : reader.stop])
        return found

    assert decoded(whole, [b"".join(chunks)]) == decoded(pieces, chunks)
