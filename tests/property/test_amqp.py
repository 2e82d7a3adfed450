"""AMQP: every form decodes, values come back, chunks do not matter, nonsense raises only what is documented."""

from contextlib import suppress
from dataclasses import fields
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.amqp.codec import decode_value, encode_value
from pybroker.broker.domain.amqp.errors import AmqpFramingError, MalformedAmqp
from pybroker.broker.domain.amqp.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    AmqpFrameDecoder,
    AmqpInput,
    AmqpLimits,
    encode_disposition,
    encode_flow,
    encode_frame,
    encode_transfer,
)
from pybroker.broker.domain.amqp.performatives import (
    COMPOSITES,
    AmqpAccepted,
    AmqpDisposition,
    AmqpErrorCondition,
    AmqpFlow,
    AmqpModified,
    AmqpRejected,
    AmqpReleased,
    AmqpTransactionalState,
    AmqpTransfer,
)
from pybroker.broker.domain.amqp.schema import SPEC, FieldSpec, FieldType
from pybroker.broker.domain.amqp.sections import (
    AmqpBodyKind,
    AmqpMessage,
    AmqpMessageHeader,
    AmqpMessageProperties,
    bare_parts,
    decode_message,
    encode_message,
    require_sections,
    with_delivery_count,
)
from pybroker.broker.domain.amqp.values import AmqpDescribed, Symbol, UnsignedLong
from tests import amqp_values
from tests.amqp_values import Encoded, same

BY_NAME = {each.__name__: each for each in COMPOSITES}
FRAMED = [each for each in COMPOSITES if each.DESCRIPTOR <= 0x18 or each.DESCRIPTOR >= 0x40]


@st.composite
def _values(draw: st.DrawFn) -> Any:
    return draw(amqp_values.values())[0]


@st.composite
def _maps(draw: st.DrawFn) -> dict[Any, Any]:
    return draw(st.dictionaries(amqp_values.symbols, decoded, max_size=3))


uints = st.integers(0, 2**32 - 1)
decoded = _values()
maps = _maps()
FIELDS: dict[FieldType, st.SearchStrategy[Any]] = {
    FieldType.BOOLEAN: st.booleans(),
    FieldType.UBYTE: st.integers(0, 255),
    FieldType.USHORT: st.integers(0, 65535),
    FieldType.UINT: uints,
    FieldType.ULONG: st.integers(0, 2**64 - 1),
    FieldType.TIMESTAMP: st.integers(-(2**63), 2**63 - 1),
    FieldType.BINARY: st.binary(max_size=300),
    FieldType.STRING: amqp_values.texts,
    FieldType.SYMBOL: amqp_values.symbols,
    FieldType.SYMBOL | FieldType.ARRAY: st.lists(amqp_values.symbols, max_size=4).map(tuple),
    FieldType.MAP: maps,
    FieldType.ULONG | FieldType.UUID | FieldType.BINARY | FieldType.STRING: st.one_of(
        st.integers(0, 2**64 - 1).map(UnsignedLong), st.uuids(), st.binary(max_size=20), amqp_values.texts
    ),
}
foreign = st.builds(AmqpDescribed, amqp_values.symbols.map(lambda text: Symbol(f"x:{text}")), decoded)


def _field(spec: FieldSpec) -> st.SearchStrategy[Any]:
    if spec.types != FieldType.DESCRIBED:
        values = FIELDS[spec.types]
    else:
        values = st.one_of([composites(BY_NAME[name]) for name in spec.classes] + [foreign] * spec.is_open)
    return values if spec.is_mandatory else st.none() | values


@st.composite
def composites(draw: st.DrawFn, kind: type[Any]) -> Any:
    return kind(**{each.name: draw(_field(each.metadata[SPEC])) for each in fields(kind)})


@st.composite
def messages(draw: st.DrawFn) -> AmqpMessage:
    kind = draw(st.sampled_from(AmqpBodyKind))
    bodies: dict[AmqpBodyKind, st.SearchStrategy[Any]] = {
        AmqpBodyKind.NONE: st.none(),
        AmqpBodyKind.DATA: st.lists(st.binary(max_size=300), min_size=1, max_size=3),
        AmqpBodyKind.SEQUENCE: st.lists(st.lists(decoded, max_size=3), min_size=1, max_size=3),
        AmqpBodyKind.VALUE: decoded,
    }
    return AmqpMessage(
        header=draw(st.none() | composites(AmqpMessageHeader)),
        delivery_annotations=draw(st.none() | maps),
        message_annotations=draw(st.none() | maps),
        properties=draw(st.none() | composites(AmqpMessageProperties)),
        application_properties=draw(st.none() | maps),
        body_kind=kind,
        body=draw(bodies[kind]),
        footer=draw(st.none() | maps),
    )


def encoded(value: object) -> bytes:
    out = bytearray()
    encode_value(out, value)
    return bytes(out)


def decode(chunks: list[bytes], frame_bytes_max: int = 1 << 20) -> list[AmqpInput]:
    decoder = AmqpFrameDecoder(AmqpLimits(frame_bytes_max=frame_bytes_max))
    return [each for chunk in chunks for each in decoder.feed(chunk)]


def alike(left: Any, right: Any) -> bool:
    """Return True if two composite values have the same fields; their maps may hold NaN, which equals nothing."""
    if type(left) is not type(right):
        return False
    if type(left) is AmqpMessage or type(left) in (AmqpMessageHeader, AmqpMessageProperties, *COMPOSITES):
        return all(alike(getattr(left, each.name), getattr(right, each.name)) for each in fields(left))
    return len(left) == len(right) and all(map(same, left, right)) if isinstance(left, tuple) else same(left, right)


# ---------------------------------------------------------------- values


@given(amqp_values.values(), st.binary(max_size=3))
def test_every_form_of_a_value_decodes(pair: Encoded, behind: bytes) -> None:
    value, data = pair
    found, offset = decode_value(b"<" + data + behind, 1, 1 + len(data))
    assert same(found, value)
    assert offset == 1 + len(data)


@given(amqp_values.values())
def test_value_comes_back_from_its_shortest_form(pair: Encoded) -> None:
    value, _ = pair
    short = encoded(value)
    assert same(decode_value(short, 0, len(short))[0], value)
    assert encoded(decode_value(short, 0, len(short))[0]) == short


@given(amqp_values.values(), st.integers(min_value=0))
def test_value_that_is_cut_short_is_refused(pair: Encoded, place: int) -> None:
    data = pair[1]
    end = place % len(data)
    for cut in (data, data[:end]):
        with pytest.raises(MalformedAmqp):
            decode_value(cut, 0, end)


@given(st.binary(max_size=60))
def test_nonsense_is_a_value_or_is_refused(data: bytes) -> None:
    with suppress(MalformedAmqp):
        value, _ = decode_value(data, 0, len(data))
        found, _ = decode_value(encoded(value), 0, len(encoded(value)))
        assert same(found, value)


@given(amqp_values.values(), st.integers(min_value=0), st.integers(0, 255))
def test_mutated_value_raises_only_what_is_documented(pair: Encoded, place: int, byte: int) -> None:
    data = bytearray(pair[1])
    data[place % len(data)] = byte
    with suppress(MalformedAmqp):
        decode_value(bytes(data), 0, len(data))


# ---------------------------------------------------------------- frames


@pytest.mark.parametrize("kind", FRAMED, ids=lambda kind: kind.__name__)
@given(st.data())
def test_performative_comes_back(kind: type[Any], data: st.DataObject) -> None:
    value = data.draw(composites(kind))
    payload = data.draw(st.binary(max_size=20)) if kind is AmqpTransfer else b""
    channel = data.draw(st.integers(0, 65535))
    _, frame = decode([AMQP_HEADER, encode_frame(channel, value, payload)])
    assert (frame.channel, frame.payload) == (channel, payload)  # type: ignore[union-attr] # as a frame has them
    assert alike(frame.performative, value)  # type: ignore[union-attr]


@st.composite
def _frames(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(FRAMED))
    payload = draw(st.binary(max_size=300)) if kind is AmqpTransfer else b""
    return encode_frame(1, draw(composites(kind)), payload)


frames = st.just(EMPTY_FRAME) | _frames()


@given(st.lists(frames, max_size=4), st.lists(st.integers(min_value=0), max_size=10))
def test_chunks_do_not_matter(made: list[bytes], places: list[int]) -> None:
    whole = AMQP_HEADER + b"".join(made)
    edges = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    found = [f"{each!r} {getattr(each, 'payload', b'')!r}" for each in decode([whole])]
    assert len(found) == 1 + len(made)
    for chunks in ([whole[at : at + 1] for at in range(len(whole))], [whole[a:b] for a, b in pairwise(edges)]):
        assert [f"{each!r} {getattr(each, 'payload', b'')!r}" for each in decode(chunks)] == found


@given(frames, st.integers(min_value=0))
def test_frame_that_is_cut_short_waits(frame: bytes, place: int) -> None:
    end = place % len(frame)
    decoder = AmqpFrameDecoder(AmqpLimits(frame_bytes_max=1 << 20))
    assert len(list(decoder.feed(AMQP_HEADER))) == 1
    assert list(decoder.feed(frame[:end])) == []
    assert decoder.received == end
    assert decoder.unfinished == (len(frame) if end >= 8 else end)
    assert len(list(decoder.feed(frame[end:]))) == 1
    assert decoder.unfinished == 0


@given(st.booleans(), st.lists(st.binary(max_size=60)))
def test_nonsense_raises_only_what_is_documented(has_begun: bool, chunks: list[bytes]) -> None:
    with suppress(MalformedAmqp, AmqpFramingError):
        decode([AMQP_HEADER] * has_begun + chunks, 50)


@given(frames, st.integers(min_value=0), st.integers(0, 255))
def test_mutated_frame_raises_only_what_is_documented(frame: bytes, place: int, byte: int) -> None:
    data = bytearray(frame)
    data[place % len(data)] = byte
    with suppress(MalformedAmqp, AmqpFramingError):
        decode([AMQP_HEADER, bytes(data)])


@given(
    st.integers(0, 65535), uints, st.none() | uints, st.none() | st.binary(max_size=32), st.none() | uints,
    st.booleans(), st.booleans(), st.binary(max_size=300),
)  # fmt: skip
def test_fast_transfer_is_the_ordinary_one(
    channel: int,
    handle: int,
    delivery_id: int | None,
    tag: bytes | None,
    message_format: int | None,
    settled: bool,
    more: bool,
    payload: bytes,
) -> None:
    fast = encode_transfer(
        channel, handle, delivery_id, tag, payload, message_format=message_format, settled=settled, more=more
    )
    ordinary = AmqpTransfer(
        handle=handle,
        delivery_id=delivery_id,
        delivery_tag=tag,
        message_format=message_format,
        settled=settled,
        more=more or None,
    )
    assert fast == encode_frame(channel, ordinary, payload)


@given(
    st.integers(0, 65535),
    uints,
    st.none() | uints,
    st.none()
    | st.one_of([composites(each) for each in (AmqpAccepted, AmqpReleased, AmqpModified, AmqpTransactionalState)])
    | st.integers(0, 400).map(
        lambda size: AmqpRejected(error=AmqpErrorCondition(condition=Symbol("failed"), description="x" * size))
    ),
    st.booleans(),
    st.booleans(),
)
def test_fast_disposition_is_the_ordinary_one(
    channel: int, first: int, last: int | None, state: Any, is_receiver: bool, settled: bool
) -> None:
    fast = encode_disposition(channel, first, last, state, is_receiver=is_receiver, settled=settled)
    ordinary = AmqpDisposition(role=is_receiver, first=first, last=last, settled=settled, state=state)
    assert fast == encode_frame(channel, ordinary)


@given(
    st.integers(0, 65535),
    st.lists(uints, min_size=3, max_size=3),
    st.lists(st.none() | uints, min_size=5, max_size=5),
    st.booleans(),
)
def test_fast_flow_is_the_ordinary_one(channel: int, windows: list[int], others: list[int | None], drain: bool) -> None:
    next_incoming_id, handle, delivery_count, link_credit, available = others
    incoming_window, next_outgoing_id, outgoing_window = windows
    fast = encode_flow(
        channel,
        next_incoming_id,
        incoming_window,
        next_outgoing_id,
        outgoing_window,
        handle,
        delivery_count,
        link_credit,
        available=available,
        drain=drain,
    )
    ordinary = AmqpFlow(
        next_incoming_id=next_incoming_id,
        incoming_window=incoming_window,
        next_outgoing_id=next_outgoing_id,
        outgoing_window=outgoing_window,
        handle=handle,
        delivery_count=delivery_count,
        link_credit=link_credit,
        available=available,
        drain=drain,
    )
    assert fast == encode_frame(channel, ordinary)


# ---------------------------------------------------------------- messages


@given(messages())
def test_message_comes_back(message: AmqpMessage) -> None:
    payload = encode_message(message)
    assert alike(decode_message(payload), message)
    head = decode_message(payload, with_body=False)
    assert (head.body_kind, head.body) == (message.body_kind, None)
    head.body = message.body
    assert alike(head, message)
    parts = bare_parts(payload)
    assert [part.stop for part in parts][-1:] == [len(payload)] * bool(payload)
    assert all(first.stop == second.start for first, second in pairwise(parts))


@given(messages(), uints)
def test_delivery_count_changes_nothing_else(message: AmqpMessage, count: int) -> None:
    payload = encode_message(message)
    changed = with_delivery_count(payload, count)
    header = message.header or AmqpMessageHeader()
    rest = [part.start for part in bare_parts(payload) if part.code > 0x70]
    assert changed.endswith(payload[rest[0] :] if rest else b"")
    header.delivery_count = count
    message.header = header
    assert alike(decode_message(changed), message)


@given(messages(), st.integers(min_value=0), st.integers(0, 255))
def test_mutated_message_raises_only_what_is_documented(message: AmqpMessage, place: int, byte: int) -> None:
    data = bytearray(encode_message(message) or b"\0")
    data[place % len(data)] = byte
    for read in (decode_message, bare_parts, require_sections, lambda payload: with_delivery_count(payload, 1)):
        with suppress(MalformedAmqp):
            read(bytes(data))
