"""Bytes to protocol headers and frames, and frames to bytes. No conversation.

```text
protocol header   "AMQP", protocol id (0 AMQP, 3 SASL), major, minor, revision
frame             u32 size, u8 data offset in 4 bytes (2 at least), u8 type (0 AMQP, 1 SASL), u16 channel,
                  extended header up to the data offset, performative, payload (of a transfer)
```

Source: AMQP 1.0, parts 2 "Transport", 2.2 and 2.3, and 5 "Security", 5.3.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from pybroker.broker.domain.amqp.codec import AmqpReader, append_compound
from pybroker.broker.domain.amqp.composites import BY_TYPE, append_composite, append_state, read_descriptor, read_fields
from pybroker.broker.domain.amqp.errors import AmqpFramingError, MalformedAmqp, UnencodableAmqp
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpDeliveryState,
    AmqpPerformative,
    SaslPerformative,
)
from pybroker.broker.domain.big_endian import BYTE_AND_UNSIGNED_INT

AMQP_HEADER: Final = b"AMQP\0\1\0\0"
SASL_HEADER: Final = b"AMQP\3\1\0\0"
MAGIC: Final = b"AMQP"
"""The first bytes of a protocol header. Read as the size of a frame it is above every limit."""

FRAME_BYTES_MIN_MAX: Final = 512
"""The size of frames that each peer must accept."""
EMPTY_FRAME: Final = b"\0\0\0\x08\x02\0\0\0"
"""A frame without a performative, which only shows that its sender is alive."""

_HEADER_BYTES: Final = 8
_SASL_TYPE: Final = 1
_DATA_OFFSET: Final = 2
_TRANSFER: Final = 0x14
_HEAD: Final = Struct(">IBBH")
_head_at: Final = _HEAD.unpack_from
_pack_head: Final = _HEAD.pack
_pack_uint: Final = BYTE_AND_UNSIGNED_INT.pack
_SMALL: Final = [b"\x43", *[bytes((0x52, number)) for number in range(1, 256)]]
"""Encoded uints below 256."""


class AmqpHeaderSeen(NamedTuple):
    """A protocol header.

    Attributes:
        protocol_id: 0 for AMQP, 3 for SASL.
        major: 1, or 0 for AMQP 0-9-1 and its like.
        minor: the minor version.
        revision: the revision.
    """

    protocol_id: int
    major: int
    minor: int
    revision: int


class AmqpFrame(NamedTuple):
    """A frame.

    Attributes:
        channel: its channel; 0 in SASL.
        performative: None for an empty frame.
        payload: the bytes behind the performative, of a transfer only.
    """

    channel: int
    performative: AmqpPerformative | SaslPerformative | None
    payload: bytes

    def __repr__(self) -> str:
        """Return the frame without its payload."""
        return f"AmqpFrame({self.channel}, {self.performative!r}, {len(self.payload)} bytes)"


AmqpInput: TypeAlias = AmqpHeaderSeen | AmqpFrame
"""The units of a byte stream of AMQP: protocol headers and frames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpLimits:
    """Limits on what one peer may make the broker hold.

    Attributes:
        frame_bytes_max: the size of a frame, which the broker announces; 512 at least.
        message_bytes_max: the size of a message, whose frames are gathered.
        connect_seconds: time until open, after which the connection is closed.
        idle_seconds: the silence of a client after which its connection is closed; half is announced. 0: no limit.
        channels: sessions of a connection.
        handles: links of a session.
        producer_credit: messages that a producer may send ahead of the broker's answers.
    """

    frame_bytes_max: int = 128 * 1024
    message_bytes_max: int = 100 * 1024 * 1024
    connect_seconds: float = 30.0
    idle_seconds: float = 30.0
    channels: int = 256
    handles: int = 1024
    producer_credit: int = 1000


_new_frame: Final[Callable[[type[AmqpFrame], tuple[object, ...]], AmqpFrame]] = tuple.__new__  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
"""Creates an AmqpFrame without the Python code of its constructor, in half the time."""


class AmqpFrameDecoder:
    """Turns chunks into protocol headers and frames.

    Attributes:
        frame_bytes_max: the greatest size of a frame.
    """

    __slots__ = ("_has_begun", "_needed", "_reader", "_started", "_unfinished", "frame_bytes_max")

    def __init__(self, limits: AmqpLimits) -> None:
        self.frame_bytes_max = limits.frame_bytes_max
        self._reader = AmqpReader(b"", 0, 0)
        self._has_begun = False
        """A protocol header has come."""
        self._unfinished: BytesIO | None = None
        """The bytes of a frame whose size is known, and that is not complete."""
        self._needed: int = 0
        """The size of that frame."""
        self._started: bytes = b""
        """The bytes of a header or frame whose size is not known yet, seven at most."""

    def feed(self, chunk: bytes) -> Iterator[AmqpInput]:
        """Yield each header and frame that `chunk` completes, decoding it only when requested.

        The iterator must be exhausted before the next chunk, except when no more chunks follow.

        Raises:
            AmqpFramingError: the bytes are no frame, or one above the limit. Nothing can be decoded after that.
            MalformedAmqp: the frame's content is no performative. Nothing can be decoded after that.
        """
        start = 0
        unfinished = self._unfinished
        if unfinished is not None:
            start = self._needed - unfinished.tell()
            if start > len(chunk):
                unfinished.write(chunk)
                return
            unfinished.write(memoryview(chunk)[:start])
            whole = unfinished.getvalue()
            self._unfinished = unfinished = None
            _, data_offset, kind, channel = _head_at(whole)
            frame = self._decode(whole, 4 * data_offset, len(whole), kind, channel)
            del whole  # the payload is a copy
            yield frame
        elif self._started:
            chunk = self._started + chunk
            self._started = b""
        end = len(chunk)
        while end - start >= _HEADER_BYTES:
            size, data_offset, kind, channel = _head_at(chunk, start)
            if not self._has_begun or size > self.frame_bytes_max:
                yield self._header(chunk, start, size)
                start += _HEADER_BYTES
                continue
            stop = start + size
            if size < _HEADER_BYTES:
                raise AmqpFramingError(f"A frame of {size} bytes: it has 8 at least")
            if kind > _SASL_TYPE or not 2 <= data_offset <= size >> 2:
                raise AmqpFramingError(f"A frame of type {kind} and {size} bytes with the data offset {data_offset}")
            if stop > end:
                self._unfinished = BytesIO()
                self._unfinished.write(memoryview(chunk)[start:])
                self._needed = size
                return
            yield self._decode(chunk, start + 4 * data_offset, stop, kind, channel)
            start = stop
        self._reader.data = b""  # a silent connection must not hold the last chunk
        self._started = chunk[start:]
        if not self._has_begun and not MAGIC.startswith(self._started[:4]):
            raise _no_header(self._started)

    @property
    def received(self) -> int:
        """How many bytes of an unfinished frame have come."""
        return len(self._started) if self._unfinished is None else self._unfinished.tell()

    @property
    def unfinished(self) -> int:
        """The size of the unfinished frame; 0 for none."""
        return len(self._started) if self._unfinished is None else self._needed

    def clear(self) -> None:
        """Drop all bytes: the connection has ended, and the garbage collection that finds this object may come late."""
        self._unfinished = None
        self._started = b""

    def _header(self, chunk: bytes, start: int, size: int) -> AmqpHeaderSeen:
        if not chunk.startswith(MAGIC, start):
            if self._has_begun:
                raise AmqpFramingError(f"A frame of {size} bytes: {self.frame_bytes_max} are allowed here")
            raise _no_header(chunk[start : start + _HEADER_BYTES])
        self._has_begun = True
        return AmqpHeaderSeen(chunk[start + 4], chunk[start + 5], chunk[start + 6], chunk[start + 7])

    def _decode(self, data: bytes, body: int, stop: int, kind: int, channel: int) -> AmqpFrame:
        if body == stop:
            return _new_frame(AmqpFrame, (channel, None, b""))
        reader = self._reader
        reader.restart(data, body, stop)
        layout = read_descriptor(reader)
        if layout is None or layout.group != kind:
            raise MalformedAmqp(f"A frame of type {kind} begins with no performative of it")
        performative = read_fields(reader, layout)
        at = reader.offset
        if at == stop:
            return _new_frame(AmqpFrame, (channel, performative, b""))
        if layout.code != _TRANSFER:
            raise MalformedAmqp(f"{layout.name} has {stop - at} bytes too many")
        return _new_frame(AmqpFrame, (channel, performative, data[at:stop]))


def _no_header(data: bytes) -> AmqpFramingError:
    return AmqpFramingError(f"The connection begins with {data!r}: AMQP 1.0 is spoken here")


def encode_frame(channel: int, performative: AmqpPerformative | SaslPerformative, payload: bytes = b"") -> bytes:
    """Encode a frame.

    Args:
        channel: its channel; 0 in SASL.
        performative: its performative.
        payload: the payload, of a transfer only.

    Raises:
        UnencodableAmqp: a field or the channel does not fit its type.
    """
    out = bytearray(_HEADER_BYTES)
    append_composite(out, performative)
    kind = BY_TYPE[type(performative)].group
    if kind > _SASL_TYPE:
        raise UnencodableAmqp(f"{type(performative).__name__} is no performative")
    try:
        out[:_HEADER_BYTES] = _pack_head(len(out) + len(payload), _DATA_OFFSET, kind, channel)
    except StructError as error:
        raise UnencodableAmqp(f"a frame of channel {channel} cannot be encoded: {error}") from error
    out += payload
    return bytes(out)


def encode_transfer(
    channel: int,
    handle: int,
    delivery_id: int | None,
    delivery_tag: bytes | None,
    payload: bytes,
    *,
    message_format: int | None = 0,
    settled: bool = False,
    more: bool = False,
) -> bytes:
    """Encode the frame of a transfer.

    Args:
        channel: the session's channel.
        handle: the link's handle.
        delivery_id: None in the frames after the first of a delivery.
        delivery_tag: None in the frames after the first of a delivery.
        payload: the message, or the part of it.
        message_format: 0 for AMQP's own; None in the frames after the first of a delivery.
        settled: the delivery is settled.
        more: the message has more frames.

    Raises:
        UnencodableAmqp: a number does not fit, or the tag is too long.
    """
    try:
        fields = b"".join(
            (
                _uint(handle),
                b"\x40" if delivery_id is None else _uint(delivery_id),
                b"\x40" if delivery_tag is None else b"\xa0%c%b" % (len(delivery_tag), delivery_tag),
                b"\x40" if message_format is None else _uint(message_format),
                b"\x41" if settled else b"\x42",
                b"\x41" if more else b"",
            )
        )
        size = len(fields)
        return b"%b\0\x53\x14\xc0%c%c%b%b" % (
            _pack_head(14 + size + len(payload), _DATA_OFFSET, 0, channel),
            size + 1,
            6 if more else 5,
            fields,
            payload,
        )
    except (StructError, OverflowError) as error:
        raise UnencodableAmqp(f"a transfer of delivery {delivery_id} cannot be encoded: {error}") from error


def _uint(number: int) -> bytes:
    return _SMALL[number] if 0 <= number < 256 else _pack_uint(0x70, number)


_ACCEPTED: Final = b"\0\x53\x24\x45"


def encode_disposition(
    channel: int, first: int, last: int | None, state: AmqpDeliveryState | None, *, is_receiver: bool, settled: bool
) -> bytes:
    """Encode the frame of a disposition.

    Args:
        channel: the session's channel.
        first: the delivery id of the first delivery.
        last: that of the last one; None if there is only one.
        state: their state; None for none.
        is_receiver: the role: the broker has received them.
        settled: they are settled.

    Raises:
        UnencodableAmqp: a number or the state cannot be encoded.
    """
    if type(state) is AmqpAccepted:
        encoded = _ACCEPTED
    elif state is None:
        encoded = b""
    else:
        content = bytearray()
        append_state(content, state)
        encoded = bytes(content)
    try:
        fields = b"%b%b%b%b%b" % (
            b"\x41" if is_receiver else b"\x42",
            _uint(first),
            b"\x40" if last is None else _uint(last),
            b"\x41" if settled else b"\x42",
            encoded,
        )
        listed = bytearray()
        append_compound(listed, 0xC0, 5 if encoded else 4, fields)
        return b"%b\0\x53\x15%b" % (_pack_head(11 + len(listed), _DATA_OFFSET, 0, channel), bytes(listed))
    except StructError as error:
        raise UnencodableAmqp(f"a disposition of delivery {first} cannot be encoded: {error}") from error


def encode_flow(
    channel: int,
    next_incoming_id: int | None,
    incoming_window: int,
    next_outgoing_id: int,
    outgoing_window: int,
    handle: int | None = None,
    delivery_count: int | None = None,
    link_credit: int | None = None,
    *,
    available: int | None = None,
    drain: bool = False,
) -> bytes:
    """Encode the frame of a flow; see `AmqpFlow` for its fields.

    Raises:
        UnencodableAmqp: a number does not fit.
    """
    numbers = (
        next_incoming_id,
        incoming_window,
        next_outgoing_id,
        outgoing_window,
        handle,
        delivery_count,
        link_credit,
        available,
    )
    try:
        fields = b"".join([b"\x40" if each is None else _uint(each) for each in numbers])
        fields += b"\x41" if drain else b"\x42"
        size = len(fields)
        return b"%b\0\x53\x13\xc0%c\x09%b" % (_pack_head(14 + size, _DATA_OFFSET, 0, channel), size + 1, fields)
    except StructError as error:
        raise UnencodableAmqp(f"a flow cannot be encoded: {error}") from error
