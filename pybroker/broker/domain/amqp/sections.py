"""The sections of a message: bytes to a message, a message to bytes, and changes that leave the rest as it is.

```text
section   0, descriptor, value; at most once each and in this order, but data and amqp-sequence may repeat
0x70 header (list)                  0x74 application-properties (map)
0x71 delivery-annotations (map)     0x75 data (binary)  |  0x76 amqp-sequence (list)  |  0x77 amqp-value (any)
0x72 message-annotations (map)      0x78 footer (map)
0x73 properties (list)
```

Source: AMQP 1.0, 3.2 "Message Format".
"""

from typing import Any, Final, NamedTuple

from pybroker.broker.domain.amqp.codec import AmqpReader, append_sized, encode_value
from pybroker.broker.domain.amqp.composites import CompositeLayout, append_fields, read_fields
from pybroker.broker.domain.amqp.errors import MalformedAmqp
from pybroker.broker.domain.amqp.message import AmqpBodyKind as AmqpBodyKind
from pybroker.broker.domain.amqp.message import AmqpMessage as AmqpMessage
from pybroker.broker.domain.amqp.message import AmqpMessageHeader as AmqpMessageHeader
from pybroker.broker.domain.amqp.message import AmqpMessageId as AmqpMessageId
from pybroker.broker.domain.amqp.message import AmqpMessageProperties as AmqpMessageProperties
from pybroker.broker.domain.amqp.performatives import AmqpFields
from pybroker.broker.domain.amqp.values import AmqpValue, Symbol, UnsignedLong


class SectionPart(NamedTuple):
    """The location of one section in an encoded message.

    Attributes:
        code: its descriptor, such as `DATA`.
        start: the offset at which the section begins.
        value: the offset at which its value begins.
        stop: the offset behind it.
    """

    code: int
    start: int
    value: int
    stop: int


HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_NAMES: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_REPEATABLE: Final = (DATA, SEQUENCE)
_BODY_KINDS: Final = {DATA: AmqpBodyKind.DATA, SEQUENCE: AmqpBodyKind.SEQUENCE, VALUE: AmqpBodyKind.VALUE}
_HEADER_LAYOUT: Final = CompositeLayout(AmqpMessageHeader)
_PROPERTIES_LAYOUT: Final = CompositeLayout(AmqpMessageProperties)
_SMALL_ULONG: Final = 0x53


def decode_message(payload: bytes, *, with_body: bool = True) -> AmqpMessage:
    """Decode a message.

    Args:
        payload: the message, of message format 0.
        with_body: decode the body too; otherwise `body` is None whatever the kind is, and nothing of it is judged but
            its size.

    Raises:
        MalformedAmqp: it is no message, or has more values or levels than the limit.
    """
    message = AmqpMessage()
    end = len(payload)
    reader = AmqpReader(payload, 0, end)
    last = 0
    sections: list[Any] = []
    while reader.offset < end:
        code = _section(reader, last)
        if code == HEADER:
            message.header = read_fields(reader, _HEADER_LAYOUT)
        elif code == PROPERTIES:
            message.properties = read_fields(reader, _PROPERTIES_LAYOUT)
        elif code == APPLICATION_PROPERTIES:
            message.application_properties = _read_map(reader)
        elif code == MESSAGE_ANNOTATIONS:
            message.message_annotations = _read_map(reader)
        elif code == DELIVERY_ANNOTATIONS:
            message.delivery_annotations = _read_map(reader)
        elif code == FOOTER:
            message.footer = _read_map(reader)
        else:
            message.body_kind = _BODY_KINDS[code]
            if not with_body:
                reader.skip()
            elif code == VALUE:
                message.body = reader.value()
            else:
                sections.append(_read_data(reader) if code == DATA else _read_list(reader))
        last = code
    if sections:
        message.body = sections
    return message


def bare_parts(payload: bytes) -> list[SectionPart]:
    """Return where each section of a message is, decoding nothing.

    Raises:
        MalformedAmqp: it is no message.
    """
    reader = AmqpReader(payload, 0, len(payload))
    found: list[SectionPart] = []
    last = 0
    while reader.offset < reader.end:
        start = reader.offset
        last = _section(reader, last)
        value = reader.offset
        reader.skip()
        found.append(SectionPart(last, start, value, reader.offset))
    return found


def require_sections(payload: bytes) -> None:
    """Check that bytes are a message, as `bare_parts` does, which says where its sections are.

    Raises:
        MalformedAmqp: it is no message.
    """
    reader = AmqpReader(payload, 0, len(payload))
    last = 0
    while reader.offset < reader.end:
        last = _section(reader, last)
        reader.skip()


def encode_message(message: AmqpMessage) -> bytes:
    """Encode a message, whose body has one section at least if its kind is DATA or SEQUENCE.

    Raises:
        UnencodableAmqp: a value cannot be encoded, or does not fit its type.
    """
    out = bytearray()
    if message.header is not None:
        append_fields(out, _HEADER_LAYOUT, message.header)
    _append_section(out, DELIVERY_ANNOTATIONS, message.delivery_annotations)
    _append_section(out, MESSAGE_ANNOTATIONS, message.message_annotations)
    if message.properties is not None:
        append_fields(out, _PROPERTIES_LAYOUT, message.properties)
    _append_section(out, APPLICATION_PROPERTIES, message.application_properties)
    body: Any = message.body
    match message.body_kind:
        case AmqpBodyKind.DATA:
            for part in body:
                out += b"\0\x53\x75"
                append_sized(out, 0xA0, part)
        case AmqpBodyKind.SEQUENCE:
            for part in body:
                _append_section(out, SEQUENCE, part)
        case AmqpBodyKind.VALUE:
            out += b"\0\x53\x77"
            encode_value(out, body)
        case AmqpBodyKind.NONE:
            pass
    _append_section(out, FOOTER, message.footer)
    return bytes(out)


def with_delivery_count(payload: bytes, count: int) -> bytes:
    """Return an encoded message with another delivery count; all but the header stays byte for byte.

    Raises:
        MalformedAmqp: its first section is none, or is a header that cannot be decoded.
        UnencodableAmqp: the count does not fit 32 bits.
    """
    header = AmqpMessageHeader()
    rest = 0
    if payload:
        reader = AmqpReader(payload, 0, len(payload))
        if _section(reader, 0) == HEADER:
            header = read_fields(reader, _HEADER_LAYOUT)
            rest = reader.offset
    header.delivery_count = count
    out = bytearray()
    append_fields(out, _HEADER_LAYOUT, header)
    return bytes(out) + payload[rest:]


def _section(reader: AmqpReader, last: int) -> int:
    """Read the constructor and descriptor of a section, and return its code."""
    data, start = reader.data, reader.offset
    if start + 3 > reader.end or data[start]:
        raise MalformedAmqp(f"no section of a message at offset {start}")
    code = data[start + 2]
    reader.offset = start + 3
    if data[start + 1] != _SMALL_ULONG:
        reader.offset = start + 1
        descriptor = reader.value()
        code = 0
        if isinstance(descriptor, Symbol):
            code = _NAMES.get(descriptor, 0)
        elif isinstance(descriptor, UnsignedLong):
            code = int(descriptor)
    if not HEADER <= code <= FOOTER:
        raise MalformedAmqp(f"no section of a message at offset {start}, but another described value")
    if (code <= last or (last >= DATA and code != FOOTER)) and (code != last or code not in _REPEATABLE):
        raise MalformedAmqp(f"the section {code:#x} cannot follow the section {last:#x}")
    return code


def _read_map(reader: AmqpReader) -> AmqpFields:
    start = reader.offset
    code = reader.byte()
    if code not in (0xC1, 0xD1):
        raise MalformedAmqp(f"the section with the value at offset {start} is no map")
    return reader.mapped(1 if code == 0xC1 else 4)


def _read_list(reader: AmqpReader) -> list[AmqpValue]:
    start = reader.offset
    code = reader.byte()
    if code not in (0x45, 0xC0, 0xD0):
        raise MalformedAmqp(f"the section with the value at offset {start} is no list")
    found: Any = reader.body(code)
    return found  # type: ignore[no-any-return] # by its constructor


def _read_data(reader: AmqpReader) -> bytes:
    start = reader.offset
    code = reader.byte()
    if code not in (0xA0, 0xB0):
        raise MalformedAmqp(f"the section with the value at offset {start} is no binary")
    return reader.take(reader.unsigned(1 if code == 0xA0 else 4))


def _append_section(out: bytearray, code: int, value: Any) -> None:
    if value is not None:
        out += bytes((0, _SMALL_ULONG, code))
        encode_value(out, value)
